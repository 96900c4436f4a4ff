internal import Glibc
import PosternCore
import PosternSimulatorKit

/// One request as the platform reads it.
struct Call {
    let command: String
    let action: String
    /// The query's, authentication included.
    let parameters: StreamOneForm
    /// The body's.
    let arguments: StreamOneForm
    /// The signed text, byte by byte as received, without the signature itself.
    let signedText: [UInt8]
    /// Whether the response will not reach the gateway.
    let isAnswerLost: Bool
    /// When the gateway sent it; nil if that was now.
    let sentAt: MonotonicInstant?
    /// Faults of its headers for which it is not rejected.
    private(set) var oddities: [String] = []

    var name: String { "\(command)/\(action)" }
    var session: String? { parameters["session"] }
    var customer: String? { filled("customer") }
    var accounts: [String] { filled("account")?.split(separator: ",").map(String.init) ?? [] }

    /// Nil if the path is not one of the API.
    init?(_ request: SimulatedRequest, prefix: String) {
        let root = prefix + "/api/"
        guard request.path.hasPrefix(root) else { return nil }
        let names = request.path.dropFirst(root.count).split(separator: "/", omittingEmptySubsequences: false)
        guard names.count == 2 else { return nil }
        command = String(names[0])
        action = String(names[1])
        (isAnswerLost, sentAt) = (request.isAnswerLost, request.sentAt)
        let query = request.query ?? ""
        parameters = StreamOneForm(query.utf8)
        let type = request.header("Content-Type")
        // PHP does not parse a body of another type.
        let isForm = type?.lowercased().split(separator: ";").first == Self.formType[...]
        arguments = StreamOneForm(isForm ? request.body : [])
        let signed = query.utf8.split(separator: UInt8(ascii: "&"), omittingEmptySubsequences: false)
            .filter { !$0.starts(with: "signature=".utf8) }
        signedText =
            Array("/api/\(command)/\(action)?".utf8) + Array(signed.joined(separator: "&".utf8)) + Array("&".utf8)
            + request.body
        if type != Self.formType { oddities.append("a Content-Type other than \(Self.formType)") }
        // PHP's SDK sends none without arguments.
        if request.header("Content-Length") == nil, !request.body.isEmpty { oddities.append("no Content-Length") }
        for name in Self.uselessHeaders where request.header(name) != nil {
            oddities.append("a header \(name): only the signature authenticates, and bodies are plain")
        }
    }

    private static let formType = "application/x-www-form-urlencoded"
    private static let uselessHeaders = [
        "Authorization", "Proxy-Authorization", "Cookie", "Content-Encoding", "Postern-Session",
    ]

    private func filled(_ name: String) -> String? { parameters[name].flatMap { $0.isEmpty ? nil : $0 } }

    // MARK: What can be checked without knowing the actor

    /// Adds to `violations` what a gateway must never do. Throws if the platform would reject the call.
    func check(_ violations: inout [String]) throws(StreamOneError) {
        func refuse(_ status: Status, _ violation: String) throws(StreamOneError) {
            violations.append(violation)
            throw .status(status)
        }
        guard Self.isName(command), Self.isName(action) else {
            return try refuse(.invalidAction, "a command or action other than lower-case letters and digits")
        }
        if !parameters.pairs.allSatisfy({ Self.places[$0.name] != nil }) {
            try refuse(.unknownParameter, "a parameter that the platform does not know")
        }
        if parameters.repeatedName != nil { try refuse(.unknownParameter, "a parameter twice") }
        if parameters["api"] != "3" { try refuse(.inputError, "an api other than 3") }
        if parameters["format"] != "json" { try refuse(.inputError, "a format other than json") }
        if !parameters.isUTF8 || !arguments.isUTF8 { try refuse(.inputError, "names or values that are not UTF-8") }
        if arguments.repeatedName != nil { try refuse(.inputError, "an argument twice") }
        if arguments[""] != nil { try refuse(.inputError, "an argument without a name") }
        if parameters["account"] != nil, parameters["customer"] != nil {
            try refuse(.inputError, "an account and a customer")
        }
        let list = parameters["account"] ?? ""
        if list.split(separator: ",", omittingEmptySubsequences: false).contains(""), !list.isEmpty {
            try refuse(.inputError, "an empty ID among the accounts")
        }
        for name in ["account", "customer"] where parameters[name] == "" {
            violations.append("an empty \(name): leave it out")
        }
        if !isInOrder { violations.append("parameters in another order than PHP's") }
    }

    /// Whether query and body are encoded as the platform encodes them: to check the signature, it may encode again what
    /// it decoded.
    func checkEncoding(_ violations: inout [String]) -> Bool {
        if !parameters.isExact { violations.append("a query in another encoding than the platform's") }
        if !arguments.isExact { violations.append("a body in another encoding than the platform's") }
        return parameters.isExact && arguments.isExact
    }

    private static func isName(_ text: String) -> Bool {
        text.utf8.first?.isLowercaseLetter == true && text.utf8.allSatisfy { $0.isLowercaseLetter || $0.isDigit }
    }

    /// PHP's order; those with one place come in any order. A default account directly follows `format`.
    private static let places = [
        "api": 0, "format": 1, "authentication_type": 3, "account": 4, "customer": 4, "timezone": 4, "timestamp": 5,
        "user": 6, "application": 6, "session": 7, "signature": 8,
    ]

    private var isInOrder: Bool {
        var last = 0
        for (index, pair) in parameters.pairs.enumerated() {
            let position = pair.name == "account" && index == 2 ? 2 : Self.places[pair.name] ?? 0
            guard position >= last else { return false }
            last = position
        }
        return true
    }

    // MARK: The request

    /// By name alone: the platform does not say which actions are reads. Sessions are neither read nor written.
    var isRead: Bool {
        command != "session"
            && (action == "info"
                || ["view", "get", "my", "list", "search", "count", "stats"].contains { action.hasPrefix($0) })
    }

    /// Whether it names no zone, or one of the time zone database.
    var isTimezoneKnown: Bool {
        guard let name = parameters["timezone"] else { return true }
        let isPlain = name.utf8.allSatisfy { $0.isAlphanumeric || "/_+-".utf8.contains($0) }
        guard isPlain, !name.isEmpty, let file = fopen("/usr/share/zoneinfo/\(name)", "r") else { return false }
        defer { fclose(file) }
        var mark: [UInt8] = [0, 0, 0, 0]
        return fread(&mark, 1, 4, file) == 4 && mark == Array("TZif".utf8)
    }

    /// The call as `/received` shows it. The credentials of a login are hidden.
    var received: String {
        var scope = ""
        if !accounts.isEmpty {
            scope = "\"account\":\(quoted(accounts.joined(separator: ","))),"
        } else if let customer {
            scope = "\"customer\":\(quoted(customer)),"
        }
        let hidden = command == "session" ? ["challenge", "response", "v2hash"] : []
        let values = arguments.pairs.map { name, value in
            "\(quoted(name)):\(quoted(hidden.contains(name) ? "hidden" : value))"
        }
        var text = """
            {\(scope)"command":"\(command)","action":"\(action)","arguments":{\(values.joined(separator: ","))}
            """
        if let timezone = parameters["timezone"] { text += ",\"timezone\":\(quoted(timezone))" }
        if let session { text += ",\"session\":\(quoted(session))" }
        return text + "}"
    }
}

/// Why a call is rejected.
enum StreamOneError: Error {
    case status(Status)
    /// Rejected by an intermediary in front of the platform.
    case http(Int)
}
