import Crypto
import Foundation
package import PosternCore
package import PosternUpstream

/// The signing actor: a user or an application, each with an id and a pre-shared key.
package struct StreamOneActor: Hashable, Sendable {
    package enum Kind: String, Sendable, CaseIterable { case application, user }
    let kind: Kind
    let id: String

    package init(kind: Kind, id: String) {
        self.kind = kind
        self.id = id
    }
}

/// The URL of the platform, and how calls to it are signed (the specification's sections 3 and 4).
package struct StreamOnePlatform: Sendable {
    let base: BaseURL
    let actor: StreamOneActor
    let psk: String
    package let defaultAccount: String?

    package init(base: BaseURL, actor: StreamOneActor, psk: String, defaultAccount: String?) {
        self.base = base
        self.actor = actor
        self.psk = psk
        self.defaultAccount = defaultAccount
    }

    /// Whether it can sign at all.
    var hasCredentials: Bool { !actor.id.isEmpty && !psk.isEmpty }

    /// Distinguishes this platform and actor from others.
    var realm: String {
        let text = "\(base.text) \(actor.kind.rawValue) \(actor.id)"
        return String(SHA256.hash(data: Array(text.utf8)).hexadecimal.prefix(16))
    }

    /// Distinguishes these credentials from others, without showing the key.
    package var fingerprint: String {
        let key = SymmetricKey(data: Array(psk.utf8))
        return Array(HMAC<SHA256>.authenticationCode(for: Data(realm.utf8), using: key).prefix(8)).hexadecimal
    }

    /// The request for `call`, signed at `now`: its timestamp is taken here and nowhere else. `session`: a session's id
    /// and key; only an application has them.
    package func request(for call: StreamOneCall, in session: (id: String, key: String)? = nil, at now: Timestamp)
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

extension UpstreamResponse {
    /// For the operator: how far this clock is from the platform's; nil if that is a minute at most, or not known.
    package func clockSkew(now: Timestamp) -> String? {
        guard let date = header("Date").flatMap({ Timestamp(httpDate: $0, now: now) }) else { return nil }
        let seconds = (now - date).components.seconds
        guard seconds.magnitude > 60 else { return nil }
        return "the clock here is \(seconds.magnitude) s \(seconds > 0 ? "ahead of" : "behind") the platform's"
    }
}
