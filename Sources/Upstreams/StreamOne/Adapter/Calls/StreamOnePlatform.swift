import Crypto
import Foundation
import PosternCore
import PosternUpstream

/// The signing actor: a user or an application, each with an id and a pre-shared key.
struct StreamOneActor: Hashable, Sendable {
    enum Kind: String, Sendable, CaseIterable { case application, user }
    let kind: Kind
    let id: String
}

/// The URL of the platform, and how calls to it are signed (the specification's sections 3 and 4).
struct StreamOnePlatform: Sendable {
    let base: BaseURL
    let actor: StreamOneActor
    let psk: String
    let defaultAccount: String?

    /// Whether it can sign at all.
    var hasCredentials: Bool { !actor.id.isEmpty && !psk.isEmpty }

    /// Distinguishes this platform and actor from others.
    var realm: String {
        let text = "\(base.text) \(actor.kind.rawValue) \(actor.id)"
        return String(SHA256.hash(data: Array(text.utf8)).hexadecimal.prefix(16))
    }

    /// Distinguishes these credentials from others, without showing the key.
    var fingerprint: String {
        let key = SymmetricKey(data: Array(psk.utf8))
        return Array(HMAC<SHA256>.authenticationCode(for: Data(realm.utf8), using: key).prefix(8)).hexadecimal
    }

    /// The request for `call`, signed at `now`: its timestamp is taken here and nowhere else. `session`: a session's id
    /// and key; only an application has them.
    func request(for call: StreamOneCall, in session: (id: String, key: String)? = nil, at now: Timestamp)
        -> UpstreamRequest
    {
        let query = StreamOneEncoding.encode(parameters(of: call, session: session?.id, now))
        let body = StreamOneEncoding.encode(call.arguments)
        let signature = Self.signature(
            of: Array("\(call.path)?".utf8), query, [UInt8(ascii: "&")], body, key: psk + (session?.key ?? ""))
        return UpstreamRequest(
            url: "\(base.text)\(call.path)?\(String(decoding: query, as: UTF8.self))&signature=\(signature)",
            headers: [("Content-Type", "application/x-www-form-urlencoded")], body: body, proofs: [signature],
            maxResponseBytes: Self.maxResponseBytes, statusDecides: { !(200...299).contains($0) })
    }

    /// If a response were cut, the result of a queued write would not be known, so the limit is much higher than
    /// elsewhere.
    private static let maxResponseBytes = 16 << 20

    /// 40 lower-case digits of HMAC-SHA1, of the parts one after the other.
    static func signature(of parts: [UInt8]..., key: String) -> String {
        var code = HMAC<Insecure.SHA1>(key: SymmetricKey(data: Array(key.utf8)))
        for part in parts { code.update(data: part) }
        return code.finalize().hexadecimal
    }

    /// In the order of the PHP SDK. An account replaces the default account, if one is configured.
    private func parameters(of call: StreamOneCall, session: String?, _ now: Timestamp) -> [StreamOneCall.Argument] {
        var parameters = [StreamOneCall.Argument("api", "3"), .init("format", "json")]
        let accounts = call.scope.accounts.joined(separator: ",")
        if defaultAccount != nil, !accounts.isEmpty { parameters.append(.init("account", accounts)) }
        parameters.append(.init("authentication_type", actor.kind.rawValue))
        if let timezone = call.timezone { parameters.append(.init("timezone", timezone)) }
        if defaultAccount == nil, !accounts.isEmpty { parameters.append(.init("account", accounts)) }
        if let customer = call.scope.customer { parameters.append(.init("customer", customer)) }
        parameters.append(.init("timestamp", String(now.milliseconds / 1000)))
        parameters.append(.init(actor.kind.rawValue, actor.id))
        if let session { parameters.append(.init("session", session)) }
        return parameters
    }
}
