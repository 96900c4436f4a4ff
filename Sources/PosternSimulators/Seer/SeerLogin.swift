/// Client id and secret as they come in an `Authorization` of the scheme Basic (RFC 7617), in UTF-8.
struct SeerLogin: Sendable, Equatable {
    let clientId: String
    let clientSecret: String

    /// Nil unless `authorization` is `Basic `, standard base64 with padding on one line, and nothing else. The id ends
    /// at the first colon.
    init?(authorization: String) {
        guard authorization.hasPrefix("Basic "), let bytes = base64Decoded(authorization.dropFirst(6).utf8),
            let text = String(validating: bytes, as: UTF8.self),
            let colon = text.unicodeScalars.firstIndex(of: ":")
        else { return nil }
        clientId = String(text.unicodeScalars[..<colon])
        clientSecret = String(text.unicodeScalars[colon...].dropFirst())
    }
}

/// The letters of standard base64 (RFC 4648, section 4).
let base64Letters = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)

/// Nil for anything but the one canonical encoding.
private func base64Decoded(_ text: some Collection<UInt8>) -> [UInt8]? {
    let padding = text.reversed().prefix { $0 == UInt8(ascii: "=") }.count
    guard text.count % 4 == 0, padding <= 2 else { return nil }
    var bytes: [UInt8] = []
    var (bits, count): (UInt32, UInt32) = (0, 0)
    for letter in text.dropLast(padding) {
        guard let value = base64Letters.firstIndex(of: letter) else { return nil }
        bits = bits << 6 | UInt32(value)
        count += 6
        if count >= 8 {
            count -= 8
            bytes.append(UInt8(truncatingIfNeeded: bits >> count))
        }
    }
    // What is left over is zero in the canonical form.
    return bits & (1 << count - 1) == 0 ? bytes : nil
}
