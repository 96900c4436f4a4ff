import PosternCore
import PosternSimulatorKit

/// A text after `enc` (section 4.2) was undone: UTF-8, `A-Z a-z 0-9 . - _ ~` as they are, a space as `+`, every other
/// byte as `%XX` in upper case.
struct CurioText {
    /// What `enc` never writes, although it can be decoded.
    enum Oddity: String {
        case lowerCase = "a percent escape in lower case"
        case needless = "a percent escape of a character that needs none"
        case raw = "a character that is not escaped"
    }

    let text: String
    /// The first; nil when these are the bytes that `enc` writes.
    let oddity: Oddity?

    /// Nil if an escape is not valid, or the bytes are not UTF-8.
    init?(decoding raw: some Collection<UInt8>) {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(raw.count)
        var oddity: Oddity?
        var rest = raw[...]
        while let byte = rest.popFirst() {
            switch byte {
            case UInt8(ascii: "+"): bytes.append(0x20)
            case UInt8(ascii: "%"):
                guard let first = rest.popFirst(), let second = rest.popFirst(), let high = first.hexadecimalValue,
                    let low = second.hexadecimalValue
                else { return nil }
                let decoded = high << 4 | low
                if first >= 0x60 || second >= 0x60 { oddity = oddity ?? .lowerCase }
                if decoded.isUnreserved || decoded == 0x20 { oddity = oddity ?? .needless }
                bytes.append(decoded)
            default:
                if !byte.isUnreserved { oddity = oddity ?? .raw }
                bytes.append(byte)
            }
        }
        guard let text = String(validating: bytes, as: UTF8.self) else { return nil }
        self.text = text
        self.oddity = oddity
    }
}
