import PosternSimulatorKit

/// Client id and secret in an `Authorization` of the scheme Basic (RFC 7617), in UTF-8.
struct Login: Sendable, Equatable {
    let clientId: String
    let clientSecret: String

    /// Nil unless `authorization` is `Basic `, standard base64 with padding on one line, and nothing else. The id ends
    /// at the first colon.
    init?(authorization: String) {
        guard authorization.hasPrefix("Basic "), let bytes = base64Decoded(authorization.dropFirst(6)),
            let text = String(validating: bytes, as: UTF8.self),
            let colon = text.unicodeScalars.firstIndex(of: ":")
        else { return nil }
        clientId = String(text.unicodeScalars[..<colon])
        clientSecret = String(text.unicodeScalars[colon...].dropFirst())
    }
}
