/// How far an item of app monitoring is, stored with the message before each request leaves.
struct MonitoringProgress: Equatable {
    /// The step of the last request. `Message.mayHaveArrived` is about this step.
    var sent: Step?

    init(sent: Step?) { self.sent = sent }

    /// The letter of that step, after a colon.
    init(_ stored: [UInt8]?) {
        let parts = String(decoding: stored ?? [], as: UTF8.self).split(
            separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        sent = parts.dropFirst().first?.first.flatMap(Step.init(letter:))
    }

    var stored: [UInt8] { Array(":\(sent.map { String($0.letter) } ?? "")".utf8) }
}
