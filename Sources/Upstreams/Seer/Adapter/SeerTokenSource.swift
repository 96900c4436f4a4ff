import Foundation
import PosternCore
import PosternJSON

/// How to obtain Seer's token (the specification's "Authentication").
struct SeerTokenSource: TokenSource {
    let tokenRequest: UpstreamRequest
    /// How long before its expiry it is renewed, or a tenth of its lifetime if that is less (Assumption 3).
    static let longestLead = Duration.seconds(60)
    /// For how long a token without a readable date is used (Assumption 4).
    static let lifeWithoutDate = Duration.seconds(300)
    /// 2001-09-09 in milliseconds; any date of this century has as many digits, seconds have fewer.
    private static let leastMilliseconds: Double = 1_000_000_000_000

    init(url: String, clientID: String, clientSecret: String) {
        let credentials = Data("\(clientID):\(clientSecret)".utf8).base64EncodedString()
        tokenRequest = UpstreamRequest(
            url: url,
            headers: [
                ("Authorization", "Basic \(credentials)"), ("Content-Type", "application/x-www-form-urlencoded"),
            ], body: Array("grant_type=client_credentials".utf8))
    }

    func token(from response: UpstreamResponse, now: Timestamp) throws(TokenError) -> Token {
        guard (200...299).contains(response.status) else {
            throw TokenError(
                credentialsRefused: [400, 401, 403].contains(response.status),
                detail: "HTTP \(response.status) for the token request")
        }
        let read = JSONParser.ofThisThread.parse(response.body) { body -> (value: String, expiresAt: Timestamp?)? in
            guard let value = body["access_token"], value.isFilledString, let text = value.string,
                Self.isSendable(text)
            else { return nil }
            return (text, body["expiration_date"].flatMap(Self.date))
        }
        guard case .success(let found?) = read else {
            throw TokenError(
                credentialsRefused: false, detail: "the response to the token request contains no usable access_token")
        }
        guard let expiresAt = found.expiresAt else {
            let end = now + Self.lifeWithoutDate
            return Token(value: found.value, renewAt: end, expiresAt: end)
        }
        let lead = min(Self.longestLead, max(.zero, expiresAt - now) / 10)
        return Token(value: found.value, renewAt: expiresAt + (.zero - lead), expiresAt: expiresAt)
    }

    /// It is used in a header as it is.
    private static func isSendable(_ token: String) -> Bool { token.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F } }

    /// When a token has expired: from the millisecond after the second that `expiration_date` falls in has begun, as
    /// the SDK compares whole seconds. Nil if it is not a number of milliseconds.
    static func date(_ value: JSONValue) -> Timestamp? {
        let text: String? = value.kind == .number ? String(decoding: value.bytes, as: UTF8.self) : value.string
        guard let milliseconds = text.flatMap(Double.init), milliseconds >= leastMilliseconds, milliseconds < 1e17
        else {
            return nil
        }
        return Timestamp(milliseconds: Int64(milliseconds) / 1000 * 1000 + 1)
    }
}
