import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import StreamOneClient

/// The part of one of the platform's SDKs that builds and signs calls.
struct StreamOneSDK {
    var actor = StreamOneVectors.application
    var psk = StreamOneVectors.psk(of: StreamOneVectors.application)
    var session: (id: String, key: String)?
    /// Whether it is placed before or after `authentication_type`, as in PHP.
    var parameters: [(String, String)] = []

    struct Sent {
        var query: String
        var body: String
    }

    func sent(
        _ action: String, _ arguments: [(String, String)] = [], at now: Timestamp, signedLater: Int64 = 0
    ) -> Sent {
        func query(_ seconds: Int64) -> String {
            var pairs = [("api", "3"), ("format", "json"), ("authentication_type", actor.kind.rawValue)] + parameters
            pairs += [("timestamp", String(seconds)), (actor.kind.rawValue, actor.id)]
            if let session { pairs.append(("session", session.id)) }
            return Self.form(pairs)
        }
        let seconds = now.milliseconds / 1000
        let body = Self.form(arguments)
        let signature = Self.signature(
            of: "/api/\(action)?\(query(seconds + signedLater))&\(body)", key: psk + (session?.key ?? ""))
        return Sent(query: query(seconds) + "&signature=" + signature, body: body)
    }

    static func signature(of text: String, key: String) -> String {
        StreamOnePlatform.signature(of: Array(text.utf8), key: key)
    }

    /// As PHP writes it.
    static func form(_ pairs: [(String, String)]) -> String {
        pairs.map { "\(formEncoded($0.0, bare: "-_."))=\(formEncoded($0.1, bare: "-_."))" }.joined(separator: "&")
    }
}

extension Upstream {
    /// Makes a call as an SDK does. `change` may make it invalid.
    @discardableResult func call(
        _ action: String, with arguments: [(String, String)] = [], by sdk: StreamOneSDK = StreamOneSDK(),
        _ harness: StreamOneHarness, change: (inout StreamOneSDK.Sent) -> Void = { _ in }
    ) throws -> StreamOneReply {
        var sent = sdk.sent(action, arguments, at: harness.clock.now)
        change(&sent)
        return try ask(
            .post, "api/\(action)", headers: [("Content-Type", "application/x-www-form-urlencoded")],
            queryText: sent.query, body: sent.body, harness)
    }
}

extension StreamOneReply {
    /// `header.status` of an answer that an SDK can read; anything else fails the test.
    var status: Int? {
        guard let json, json.status == 200, let answer = Answer(Array(json.text.utf8)) else {
            Issue.record("no answer of the platform's kind: \(String(describing: self.answer))")
            return nil
        }
        return answer.status.number
    }

    var cache: String? { json?.headers["X-Cache"] }
}
