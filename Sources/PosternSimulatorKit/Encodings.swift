import PosternCore

internal import Foundation

/// The lowest `count` hexadecimal digits of `number`, in lower case.
package func hexDigits(_ number: UInt64, count: Int = 16) -> String {
    let digits = String(number, radix: 16).suffix(count)
    return String(repeating: "0", count: count - digits.utf8.count) + digits
}

/// Decodes percent-encoded text.
package struct PercentDecoded {
    package private(set) var bytes: [UInt8] = []
    /// Whether every percent sign is followed by two digits. One that is not is kept.
    package private(set) var isWhole = true

    package var text: String? { String(validating: bytes, as: UTF8.self) }

    /// - Parameter plusIsSpace: As in forms.
    package init(_ raw: some Collection<UInt8>, plusIsSpace: Bool) {
        bytes.reserveCapacity(raw.count)
        var rest = raw[...]
        while let byte = rest.popFirst() {
            if byte == UInt8(ascii: "%") {
                if let high = rest.first?.hexadecimalValue, let low = rest.dropFirst().first?.hexadecimalValue {
                    bytes.append(high << 4 | low)
                    rest = rest.dropFirst(2)
                    continue
                }
                isWhole = false
            }
            bytes.append(plusIsSpace && byte == UInt8(ascii: "+") ? 0x20 : byte)
        }
    }
}

/// Nil for anything but the one canonical encoding in standard base64 (RFC 4648, section 4).
package func base64Decoded(_ text: some StringProtocol) -> [UInt8]? {
    let text = String(text)
    return Data(base64Encoded: text).flatMap { $0.base64EncodedString() == text ? Array($0) : nil }
}

package func digest(of text: String) -> UInt64 {
    var text = text
    return text.withUTF8 { digest($0) }
}
