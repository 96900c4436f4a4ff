import Crypto
import Foundation
import PosternCore
import PosternUpstream

/// A call as one of the platform's SDKs makes it (the specification's section 10). Its query is parsed strictly. Its body
/// is parsed only after `proof` has shown that the call is authentic.
struct SDKCall: Sendable {
    /// The id of its session.
    let session: String?
    let path: String
    /// The call without its arguments.
    private let addressed: StreamOneCall
    /// The arguments, as they were sent.
    private let form: [UInt8]
    /// In the order received, without the signature.
    private let parameters: [StreamOneCall.Argument]
    private let signature: [UInt8]

    /// The permitted deviation of the sender's clock, in either direction (Assumption of 3.6).
    private static let tolerance = 300

    /// Rejects a call as the platform would, by what costs little to check. `actor`: the required sender.
    init(_ request: UpstreamRouteRequest, by actor: StreamOneActor) throws(RefusedCall) {
        let (command, action) = (request.parameters["command"] ?? "", request.parameters["action"] ?? "")
        guard StreamOneCall.isName(command), StreamOneCall.isName(action) else {
            throw .init(5, "commands and actions are names of lower-case letters and digits")
        }
        guard let parameters = StreamOneEncoding.pairs(of: request.queryText.utf8) else {
            throw .init(6, "the query is not a list of names and values in form encoding")
        }
        let values = try Self.values(of: parameters)
        addressed = StreamOneCall(
            command: command, action: action,
            scope: try Self.scope(account: values["account"] ?? "", customer: values["customer"] ?? ""),
            timezone: values["timezone"].flatMap { $0.isEmpty ? nil : $0 })
        path = addressed.path
        try Self.checkTimestamp(values["timestamp"] ?? "", now: request.receivedAt)
        try Self.checkSender(values, actor)
        // PHP sends no body if there are no arguments.
        let type = request.header("Content-Type")?.split(separator: ";").first?.lowercased().filter { $0 != " " }
        guard request.body.isEmpty || type == nil || type == "application/x-www-form-urlencoded" else {
            throw Self.isNoForm
        }
        session = values["session"]
        // In lower case, as both SDKs write it.
        let digits = values["signature"].flatMap { $0 == $0.lowercased() ? $0 : nil }
        signature = digits.flatMap { [UInt8](hexadecimal: $0) } ?? []
        self.parameters = parameters.filter { $0.name != "signature" }
        form = request.body
    }

    static let isNoForm = RefusedCall(6, "the body is not a list of names and values in form encoding")

    private static let names: Set = [
        "api", "format", "account", "customer", "timezone", "authentication_type", "timestamp", "user", "application",
        "session", "signature",
    ]

    private static func values(
        of parameters: [StreamOneCall.Argument]
    ) throws(RefusedCall) -> [String: String] {
        var values: [String: String] = [:]
        for parameter in parameters {
            guard names.contains(parameter.name) else {
                throw .init(7, "there is no parameter \(parameter.name.prefix(40))")
            }
            guard values.updateValue(parameter.value, forKey: parameter.name) == nil else {
                throw .init(7, "the parameter \(parameter.name) is given twice")
            }
        }
        for (name, value) in [("api", "3"), ("format", "json")] where values[name] != value {
            throw .init(6, "\(name) has to be \(value)")
        }
        return values
    }

    private static func scope(account: String, customer: String) throws(RefusedCall) -> Scope {
        guard account.isEmpty || customer.isEmpty else { throw .init(6, "account and customer exclude each other") }
        if !customer.isEmpty { return .customer(customer) }
        // Without either, it concerns no account: the SDK has its own default account.
        guard !account.isEmpty else { return .none }
        let accounts = account.split(separator: ",", omittingEmptySubsequences: false).map(String.init)
        guard !accounts.contains("") else { throw .init(6, "one of the accounts is empty") }
        return .accounts(accounts)
    }

    /// The call with its arguments.
    func whole() throws(RefusedCall) -> StreamOneCall {
        guard let arguments = StreamOneEncoding.pairs(of: form) else { throw Self.isNoForm }
        // No SDK can send a name twice, no source defines which of the two counts, and equal calls are recognized by
        // their arguments without an order.
        guard Set(arguments.map { Array($0.name.utf8) }).count == arguments.count else {
            throw .init(6, "an argument is given twice")
        }
        var call = addressed
        call.arguments = arguments
        return call
    }

    private static func checkTimestamp(_ text: String, now: Timestamp) throws(RefusedCall) {
        guard text.utf8.allSatisfy(\.isDigit), let seconds = Int64(text) else {
            throw .init(2, "the timestamp is not a whole number of seconds")
        }
        let late = now.milliseconds / 1000 - seconds
        guard late.magnitude <= tolerance else {
            throw .init(
                2, "the timestamp is \(late.magnitude) s \(late > 0 ? "behind" : "ahead of") the gateway's clock")
        }
    }

    private static func checkSender(
        _ values: [String: String], _ actor: StreamOneActor
    ) throws(RefusedCall) {
        // The documentation's default; both SDKs send it.
        guard let kind = StreamOneActor.Kind(rawValue: values["authentication_type"] ?? "user") else {
            throw .init(3, "there is no such authentication_type", .unauthorized)
        }
        for stranger in kind == .user ? ["application", "session"] : ["user"] where values[stranger] != nil {
            throw .init(7, "there is no parameter \(stranger) with authentication_type \(kind.rawValue)")
        }
        guard kind == actor.kind, values[kind.rawValue] == actor.id else {
            throw .init(
                3, "this is not the \(actor.kind.rawValue) that the gateway is configured with", .unauthorized)
        }
    }

    // MARK: Signature

    /// The result of checking the signature.
    enum Proof: Sendable, Equatable {
        case signed, unsigned
        /// The body can be read in several ways, or in none.
        case isNoForm
        /// The check was cancelled.
        case abandoned
    }

    /// Whether it was signed with `key`, by either SDK. Both read the clock separately for the signature and the
    /// parameter, so the signature may be for the next second. Takes little memory, whatever the length of the body, and
    /// asks every few dozen kilobytes whether it is cancelled.
    func proof(with key: String, isCancelled: () -> Bool = { false }) -> Proof {
        guard signature.count == Insecure.SHA1.byteCount else { return .unsigned }
        let key = SymmetricKey(data: Array(key.utf8))
        let dialects = StreamOneEncoding.Dialect.allCases
        var isDisputed = Set(dialects.map { query(as: $0, delay: 0) }).count > 1
        for dialect in dialects {
            for delay: Int64 in [0, 1] {
                var code = HMAC<Insecure.SHA1>(key: key)
                code.update(data: Array("\(path)?".utf8) + query(as: dialect, delay: delay) + [UInt8(ascii: "&")])
                let recoded = StreamOneEncoding.recode(form, as: dialect) { piece in
                    code.update(data: piece)
                    return !isCancelled()
                }
                switch recoded {
                case nil: return .abandoned
                case .ambiguous: return .isNoForm
                case .same: break
                case .disputed: isDisputed = true
                }
                // Takes the same time whatever the signature is.
                if code.finalize() == signature { return .signed }
            }
            // Most calls are the same in both dialects.
            guard isDisputed else { break }
        }
        return .unsigned
    }

    private func query(as dialect: StreamOneEncoding.Dialect, delay: Int64) -> [UInt8] {
        let parameters = parameters.map { parameter in
            guard delay > 0, parameter.name == "timestamp", let seconds = Int64(parameter.value) else {
                return parameter
            }
            return StreamOneCall.Argument(parameter.name, String(seconds + delay))
        }
        return StreamOneEncoding.encode(parameters, as: dialect)
    }
}

/// Why a call is rejected, as a status of the platform (the specification's section 8).
struct RefusedCall: Error, Equatable {
    let status: Status
    let outcome: SDKAnswer.Outcome
    /// For people. Never contains a secret, and of the request at most the name of a parameter.
    let detail: String

    init(_ number: Int, _ detail: String, _ outcome: SDKAnswer.Outcome = .refused) {
        status = Status(number)
        self.outcome = outcome
        self.detail = detail
    }

    /// In the platform's form.
    var text: String {
        JSONWriter.object { json in
            json.object("header") { json in
                json.number("status", status.number)
                json.string("statusmessage", "\(status.name): \(detail)")
                json.number("apiversion", 3)
                json.flag("cacheable", false)
            }
            json.raw("body", "null")
        }
    }
}
