import PosternSimulatorKit

/// What `/received` shows of a request that was taken: a JSON object in one line, made here because most requests have
/// no body.
struct Item {
    /// One item.
    let items: SimulatedResult.Items

    /// `body` is the text as sent; everything else was understood from it, the path and the headers. Two items are the
    /// same when step, names and body are; the token does not count, nor does the time of metrics.
    init(_ call: Call, _ step: Call.Step, tokenNumber: Int?, _ tokens: Tokens) {
        let user = call.user ?? call.auth.flatMap { tokens[$0.token]?.user }
        var text = "{"
        func add(_ name: String, _ value: String?) {
            guard let value else { return }
            text += (text.utf8.count == 1 ? "" : ",") + "\"\(name)\":" + value
        }
        add("user", user.map { quoted($0) })
        add("device", call.device.map { quoted($0) })
        add("group", call.group.map { quoted($0) })
        add("step", quoted(step.rawValue))
        add("file", call.file.map { quoted($0) })
        add("notifier", call.notifier.map { quoted($0) })
        add("deviceToken", call.deviceToken.map { quoted($0) })
        let same = [
            step.rawValue, call.user?.lowercased() ?? "", call.device ?? "", call.group?.lowercased() ?? "",
            call.file ?? "", Self.withoutTime(call.json, step),
        ].joined(separator: "\n")
        add("provider", call.auth.map { quoted($0.provider) })
        add("token", tokenNumber.map { "\($0)" })
        if case .json(_, let body) = call.body { add("body", String(decoding: body, as: UTF8.self)) }
        let bytes = Array((text + "}").utf8)
        items = SimulatedResult.Items(
            text: bytes, ranges: [0..<bytes.count],
            identities: [digest(of: same)])
    }

    private static func withoutTime(_ body: JSONTree?, _ step: Call.Step) -> String {
        guard step == .metrics, let members = body?.members else { return body?.canonical ?? "" }
        return JSONTree.object(members.filter { $0.name != "timeStamp" }).canonical
    }

    /// The answer to an item that is poisoned.
    func refusal(by poisons: [Faults.Poison], _ answers: Answer) -> SimulatedAnswer? {
        let poison = items.text.withUnsafeBufferPointer { text in poisons.first { $0.matches(text) } }
        switch poison?.answer {
        case nil: return nil
        case .failure: return answers.error("uncaught_exception", 500, "Internal Server Error")
        case .tooLarge: return Answer.html(413, "Request Entity Too Large")
        case .refusal: return answers.error("illegal_argument", 400, "Poisoned")
        case .unauthorized, .forbidden, .absent: return poison.map { Answer.html($0.status, "Poisoned") }
        case .naming: return answers.error("forbidden_service_operation", 403, "Poisoned")
        }
    }
}
