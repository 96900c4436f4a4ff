import PosternCore
import PosternUpstream

/// How to obtain Seer's token (the specification's "Authentication"). It is renewed before it expires (Assumption 3), and
/// used for 5 minutes if it has no readable date (Assumption 4).
enum SeerTokenSource {
    /// 2001-09-09 in milliseconds; any date of this century has as many digits, seconds have fewer.
    private static let leastMilliseconds: Double = 1_000_000_000_000

    static func make(url: String, clientID: String, clientSecret: String) -> ClientCredentials {
        ClientCredentials(
            url: url, id: clientID, secret: clientSecret, body: "grant_type=client_credentials"
        ) { body, _ in body["expiration_date"].flatMap(date) }
    }

    /// When a token has expired: from the millisecond after the second that `expiration_date` falls in has begun, as
    /// the SDK compares whole seconds. Nil if it is not a number of milliseconds.
    private static func date(_ value: JSONValue) -> Timestamp? {
        let text: String? = value.kind == .number ? String(decoding: value.bytes, as: UTF8.self) : value.string
        guard let milliseconds = text.flatMap(Double.init), milliseconds >= leastMilliseconds, milliseconds < 1e17
        else {
            return nil
        }
        return Timestamp(milliseconds: Int64(milliseconds) / 1000 * 1000 + 1)
    }
}
