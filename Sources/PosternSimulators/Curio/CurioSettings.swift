/// What `/control` changes.
struct CurioSettings: Sendable, Equatable {
    /// How the answers to starts of screens and events bring their code.
    enum CodeForm: String, CaseIterable {
        /// 32 hexadecimal digits in a string.
        case string
        /// A number beyond 2^53.
        case number
        /// Either, or a string that has to be escaped in JSON and in a form.
        case mixed
        /// JSON without the member.
        case missing
        /// No JSON.
        case html
    }

    /// Empty: any.
    var apiKey = ""
    var trackingCode = ""
    /// Instead of what requests say; nil to go by them.
    var sessionTimeoutMinutes: Double?
    /// How probably a session dies just before a request that needs it: 0 to 1.
    var killSessionRate = 0.0
    var codeForm = CodeForm.string
    /// Answer `/offline/create` with the code of a session that the server opened in the batch's place.
    var adoptOtherSessionCode = false

    static let names = [
        "adoptOtherSessionCode", "apiKey", "codeForm", "killSessionRate", "killSessions", "seed",
        "sessionTimeoutMinutes", "trackingCode",
    ]
}

/// One `POST /control`: settings to change and things to do once.
struct CurioChange {
    private(set) var settings: CurioSettings
    /// A visitor's code, or empty for all.
    private(set) var killed: String?
    private(set) var seed: UInt64?
    /// One line each; with any of them nothing is to be changed.
    private(set) var problems: [String] = []

    init(_ body: [UInt8], to settings: CurioSettings) {
        self.settings = settings
        let isObject = body.withUnsafeBufferPointer { text in
            var scanner = JSONScanner(text)
            guard scanner.peek() == UInt8(ascii: "{") else { return false }
            var names: [String] = []
            guard scanner.members({ key, _ in names.append(key.name) }), scanner.peek() == nil else { return false }
            for name in names {
                guard let value = member(name, of: text) else { continue }
                apply(name, value.kind, value.text)
            }
            return true
        }
        if !isObject { problems = ["the body is no JSON object"] }
    }

    private mutating func apply(_ name: String, _ kind: JSONScanner.Kind, _ text: String) {
        let wanted: String?
        switch name {
        case "apiKey": wanted = set(\.apiKey, kind == .string ? text : nil, "a string; empty for any")
        case "trackingCode": wanted = set(\.trackingCode, kind == .string ? text : nil, "a string; empty for any")
        case "sessionTimeoutMinutes":
            let minutes = number(kind, text).flatMap { $0 > 0 && $0 <= 1440 ? $0 : nil }
            wanted = set(
                \.sessionTimeoutMinutes, kind == .null ? .some(nil) : minutes.map { $0 },
                "null or a number above 0, at most 1440")
        case "killSessionRate":
            let rate = number(kind, text).flatMap { (0...1).contains($0) ? $0 : nil }
            wanted = set(\.killSessionRate, rate, "a number from 0 to 1")
        case "codeForm":
            let form = kind == .string ? CurioSettings.CodeForm(rawValue: text) : nil
            let known = CurioSettings.CodeForm.allCases.map(\.rawValue).joined(separator: ", ")
            wanted = set(\.codeForm, form, "one of \(known)")
        case "adoptOtherSessionCode":
            wanted = set(
                \.adoptOtherSessionCode, [.true: true, .false: false][kind], "true or false")
        case "killSessions":
            if kind == .string, !text.isEmpty { killed = text == "all" ? "" : text }
            wanted = killed == nil ? "\"all\" or a visitorCode" : nil
        case "seed":
            seed = kind == .integer ? UInt64(text) : nil
            wanted = seed == nil ? "a number from 0" : nil
        default:
            return problems.append("unknown member; known are \(CurioSettings.names.joined(separator: ", "))")
        }
        if let wanted { problems.append("\(name) is \(wanted)") }
    }

    /// Sets what is there; otherwise says what was wanted.
    private mutating func set<Value>(
        _ path: WritableKeyPath<CurioSettings, Value>, _ value: Value?, _ wanted: String
    ) -> String? {
        guard let value else { return wanted }
        settings[keyPath: path] = value
        return nil
    }

    private func number(_ kind: JSONScanner.Kind, _ text: String) -> Double? {
        kind == .integer || kind == .decimal ? Double(text) : nil
    }
}
