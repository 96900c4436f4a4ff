import PosternSimulatorKit

/// What is found out about a request while it is read.
struct Findings {
    /// One sentence each, without repetition; never a value of the request.
    private(set) var violations: [String] = []
    /// The request cannot be used at all: 400.
    private(set) var isRefused = false

    /// Something a gateway never does, though the server puts up with it.
    mutating func note(_ sentence: String) {
        if !violations.contains(sentence) { violations.append(sentence) }
    }

    mutating func refuse(_ sentence: String) {
        note(sentence)
        isRefused = true
    }
}
