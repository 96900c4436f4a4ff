import PosternCore
import PosternSimulatorKit

/// Names and values as the platform writes them: `name=value`, joined by `&`, each name and value encoded by itself.
/// Letters, digits, and `-_.` are not escaped; a space is `+`; every other byte is `%` and two upper-case digits.
struct StreamOneForm {
    /// Decoded, in the order received.
    private(set) var pairs: [(name: String, value: String)] = []
    /// Whether encoding the pairs again gives exactly the bytes that were received.
    private(set) var isExact = true
    private(set) var isUTF8 = true

    init(_ bytes: some Collection<UInt8>) {
        guard !bytes.isEmpty else { return }
        for pair in bytes.split(separator: UInt8(ascii: "&"), omittingEmptySubsequences: false) {
            let sides = pair.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
            let name = PercentDecoded(sides[0], plusIsSpace: true).bytes
            let value = sides.count > 1 ? PercentDecoded(sides[1], plusIsSpace: true).bytes : []
            isExact = isExact && (Self.encoded(name) + [UInt8(ascii: "=")] + Self.encoded(value)).elementsEqual(pair)
            pairs.append((text(of: name), text(of: value)))
        }
    }

    /// The first name that occurs twice.
    var repeatedName: String? {
        var seen: Set<String> = []
        return pairs.first { !seen.insert($0.name).inserted }?.name
    }

    /// The value of a name; nil when there is none.
    subscript(name: String) -> String? { pairs.first { $0.name == name }?.value }

    private mutating func text(of bytes: [UInt8]) -> String {
        if let text = String(validating: bytes, as: UTF8.self) { return text }
        isUTF8 = false
        return String(decoding: bytes, as: UTF8.self)
    }

    static func encoded(_ text: some Sequence<UInt8>) -> [UInt8] {
        var result: [UInt8] = []
        for byte in text {
            switch byte {
            case _ where byte.isAlphanumeric || "-_.".utf8.contains(byte): result.append(byte)
            case UInt8(ascii: " "): result.append(UInt8(ascii: "+"))
            default: result += [UInt8(ascii: "%"), upperHex(byte >> 4), upperHex(byte & 15)]
            }
        }
        return result
    }

    private static func upperHex(_ value: UInt8) -> UInt8 { value < 10 ? 0x30 + value : 0x37 + value }
}
