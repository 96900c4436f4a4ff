import Crypto
import Foundation
import PosternCore
import PosternUpstream

/// A cached response as the store keeps it.
struct StoredResponse: Sendable {
    let key: Cache.Key
    let answer: Answer
    /// The session in which it was received.
    let session: String?
    let storedAt: Timestamp
    let expiresAt: Timestamp
}

/// Encrypts cached responses for the store, with AES-256-GCM.
///
/// The encryption key is derived from the actor's pre-shared key, which is in the configuration, and in a session also
/// from the session's key. That one is in the store only if it is encrypted there, and is deleted with its session.
/// So the store alone does not show a response, and none can be read after its session, or after the pre-shared key has
/// changed. A response is bound to its row: it cannot be passed off as the response to another call.
struct CacheCipher: Sendable {
    /// The keys of all rows are below this one, each below its command: `cache/item/3f…`.
    static let root = StateChange.cacheRoot
    static func branch(_ command: String) -> String { "\(root)/\(command)" }
    static func removal(of commands: [String]) -> [StateChange] { commands.map { .removeAll(below: branch($0)) } }

    private let platform: StreamOnePlatform

    init(_ platform: StreamOnePlatform) { self.platform = platform }

    /// The row of a response. It does not show the call, not even to one who can guess it.
    func row(of key: Cache.Key) -> String {
        let code = HMAC<SHA256>.authenticationCode(for: Data(key.text.utf8), using: secret("names"))
        return "\(Self.branch(key.call.command))/\(Array(code.prefix(16)).hexadecimal)"
    }

    /// The value for that row: the session's id, preceded by its length, and what is encrypted. Nil for an id that is too
    /// long.
    func value(of response: StoredResponse, sessionKey: String, in row: String) -> [UInt8]? {
        let session = Array((response.session ?? "").utf8)
        guard session.count < 256 else { return nil }
        let head = JSONWriter.object { json in
            json.raw("key", response.key.text)
            json.number("storedAt", Int(response.storedAt.milliseconds))
            json.number("expiresAt", Int(response.expiresAt.milliseconds))
        }
        let text = Array(head.utf8) + [UInt8(ascii: "\n")] + response.answer.bytes
        let sealed = try? AES.GCM.seal(
            text, using: secret("responses", sessionKey: sessionKey), authenticating: bound(to: row, session))
        return sealed?.combined.map { [UInt8(session.count)] + session + $0 }
    }

    /// Nil if the value was encrypted for another actor, session, or row.
    ///
    /// - Parameter sessionKey: Returns the key of a session; nil if it has ended.
    func response(
        in row: String, _ value: [UInt8], sessionKey: (String) throws -> String?
    ) rethrows -> StoredResponse? {
        guard let count = value.first.map(Int.init), value.count > 1 + count else { return nil }
        let session = Array(value[1..<(1 + count)])
        let id = session.isEmpty ? nil : String(decoding: session, as: UTF8.self)
        guard let key = try id.map(sessionKey) ?? "",
            let box = try? AES.GCM.SealedBox(combined: value[(1 + count)...]),
            let text = try? AES.GCM.open(
                box, using: secret("responses", sessionKey: key), authenticating: bound(to: row, session)),
            let end = text.firstIndex(of: UInt8(ascii: "\n")), let answer = Answer(Array(text[(end + 1)...]))
        else { return nil }
        let read = JSONParser.ofThisThread.parse(Array(text[..<end])) { head -> StoredResponse? in
            guard let key = head["key"].flatMap({ Cache.Key($0, by: platform.actor) }),
                let storedAt = head["storedAt"]?.integer, let expiresAt = head["expiresAt"]?.integer
            else { return nil }
            return StoredResponse(
                key: key, answer: answer, session: id, storedAt: Timestamp(milliseconds: storedAt),
                expiresAt: Timestamp(milliseconds: expiresAt))
        }
        return (try? read.get()) ?? nil
    }

    private func secret(_ use: String, sessionKey: String = "") -> SymmetricKey {
        HKDF<SHA256>.deriveKey(
            inputKeyMaterial: SymmetricKey(data: Array((platform.psk + sessionKey).utf8)),
            salt: Array("postern cache 1 \(use)".utf8), info: Array(platform.realm.utf8), outputByteCount: 32)
    }

    private func bound(to row: String, _ session: [UInt8]) -> [UInt8] { Array(row.utf8) + [0] + session }
}

extension Cache.Key {
    /// As JSON, the same for equal keys. Without the actor.
    fileprivate var text: String {
        JSONWriter.object { json in
            json.string("user", user)
            json.flag("isForRights", use != .requests)
            if case .rights(let session) = use { json.string("session", session) }
            json.object("call") { json in
                json.string("command", call.command)
                json.string("action", call.action)
                if let timezone = call.timezone { json.string("timezone", timezone) }
                if !call.scope.accounts.isEmpty {
                    json.raw("accounts", JSONWriter.array(call.scope.accounts.map(JSONEscapes.quoted)))
                }
                if let customer = call.scope.customer { json.string("customer", customer) }
                json.object("arguments") { json in
                    for argument in call.arguments {
                        let name = JSONEscapes.quoted(argument.name).dropFirst().dropLast()
                        json.string(String(name), argument.value)
                    }
                }
            }
        }
    }

    fileprivate init?(_ json: JSONValue, by actor: StreamOneActor) {
        guard let call = json["call"].flatMap({ try? StreamOneCall($0, defaultAccount: nil) }),
            let isForRights = json["isForRights"]
        else { return nil }
        let use = isForRights.kind == .true ? Use.rights(session: json["session"]?.string) : .requests
        self.init(call, by: actor, user: json["user"]?.string, for: use)
    }
}
