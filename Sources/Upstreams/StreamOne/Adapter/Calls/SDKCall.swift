import Crypto
import Foundation
import PosternCore

/// A call as one of the platform's SDKs makes it (the specification's section 10). It is parsed strictly, and authentic
/// if `isSigned` returns true.
struct SDKCall: Sendable {
    let call: StreamOneCall
    /// The id of its session.
    let session: String?
    /// In the order received, without the signature.
    private let parameters: [StreamOneCall.Argument]
    private let signature: [UInt8]

    /// The permitted deviation of the sender's clock, in either direction (Assumption of 3.6).
    private static let tolerance = 300

    /// Rejects a call as the platform would. `actor`: the required sender.
    init(_ request: UpstreamRouteRequest, by actor: StreamOneActor) throws(RefusedCall) {
        let (command, action) = (request.parameters["command"] ?? "", request.parameters["action"] ?? "")
        guard StreamOneCall.isName(command), StreamOneCall.isName(action) else {
            throw .init(5, "commands and actions are names of lower-case letters and digits")
        }
        guard let parameters = StreamOneEncoding.pairs(of: request.queryText.utf8) else {
            throw .init(6, "the query is not a list of names and values in form encoding")
        }
        let values = try Self.values(of: parameters)
        call = StreamOneCall(
            command: command, action: action,
            scope: try Self.scope(account: values["account"] ?? "", customer: values["customer"] ?? ""),
            timezone: values["timezone"].flatMap { $0.isEmpty ? nil : $0 }, arguments: try Self.arguments(of: request))
        try Self.checkTimestamp(values["timestamp"] ?? "", now: request.receivedAt)
        try Self.checkSender(values, actor)
        session = values["session"]
        // In lower case, as both SDKs write it.
        let digits = values["signature"].flatMap { $0 == $0.lowercased() ? $0 : nil }
        signature = digits.flatMap { [UInt8](hexadecimal: $0) } ?? []
        self.parameters = parameters.filter { $0.name != "signature" }
    }

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

    /// PHP sends no body if there are no arguments.
    private static func arguments(
        of request: UpstreamRouteRequest
    ) throws(RefusedCall) -> [StreamOneCall.Argument] {
        let type = request.header("Content-Type")?.split(separator: ";").first?.lowercased().filter { $0 != " " }
        guard request.body.isEmpty || type == nil || type == "application/x-www-form-urlencoded",
            let arguments = StreamOneEncoding.pairs(of: request.body)
        else { throw .init(6, "the body is not a list of names and values in form encoding") }
        // No SDK can send a name twice, no source defines which of the two counts, and equal calls are recognized by
        // their arguments without an order.
        guard Set(arguments.map { Array($0.name.utf8) }).count == arguments.count else {
            throw .init(6, "an argument is given twice")
        }
        return arguments
    }

    private static func checkTimestamp(_ text: String, now: Timestamp) throws(RefusedCall) {
        let isNumber = text.utf8.allSatisfy { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
        guard isNumber, let seconds = Int64(text) else {
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
            throw .init(3, "there is no such authentication_type")
        }
        for stranger in kind == .user ? ["application", "session"] : ["user"] where values[stranger] != nil {
            throw .init(7, "there is no parameter \(stranger) with authentication_type \(kind.rawValue)")
        }
        guard kind == actor.kind, values[kind.rawValue] == actor.id else {
            throw .init(3, "this is not the \(actor.kind.rawValue) that the gateway is configured with")
        }
    }

    // MARK: Signature

    /// Whether it was signed with `key`, by either SDK. Both read the clock separately for the signature and the
    /// parameter, so the signature may be for the next second.
    func isSigned(with key: String) -> Bool {
        let key = SymmetricKey(data: Array(key.utf8))
        return [0, 1].contains { delay in
            StreamOneEncoding.Dialect.allCases.contains { dialect in
                // Takes the same time whatever the signature is.
                HMAC<Insecure.SHA1>.isValidAuthenticationCode(
                    signature, authenticating: signed(dialect, delay: delay), using: key)
            }
        }
    }

    private func signed(_ dialect: StreamOneEncoding.Dialect, delay: Int64) -> [UInt8] {
        let parameters = parameters.map { parameter in
            guard delay > 0, parameter.name == "timestamp", let seconds = Int64(parameter.value) else {
                return parameter
            }
            return StreamOneCall.Argument(parameter.name, String(seconds + delay))
        }
        return Array("\(call.path)?".utf8) + StreamOneEncoding.encode(parameters, as: dialect) + [UInt8(ascii: "&")]
            + StreamOneEncoding.encode(call.arguments, as: dialect)
    }
}

/// Why a call is rejected, as a status of the platform (the specification's section 8).
struct RefusedCall: Error, Equatable {
    let status: Status
    /// For people. Never contains a secret, and of the request at most the name of a parameter.
    let detail: String

    init(_ number: Int, _ detail: String) {
        status = Status(number)
        self.detail = detail
    }

    /// HTTP 200 in any case: PHP reads nothing else.
    var answer: UpstreamRouteResponse {
        .json(
            JSONWriter.object { json in
                json.object("header") { json in
                    json.number("status", status.number)
                    json.string("statusmessage", "\(status.name): \(detail)")
                    json.number("apiversion", 3)
                    json.flag("cacheable", false)
                }
                json.raw("body", "null")
            })
    }
}
