import PosternCore
import PosternSimulatorKit

/// The forms of ids, names, and tokens (specification, section 9).
enum AppServicesForm {
    static func isUUID(_ text: String) -> Bool {
        let bytes = Array(text.utf8)
        guard bytes.count == 36 else { return false }
        return bytes.enumerated().allSatisfy { index, byte in
            [8, 13, 18, 23].contains(index) ? byte == UInt8(ascii: "-") : isHexDigit(byte)
        }
    }

    /// Also accepts the form of a mail address, more freely than the specification's own readers.
    static func isUserID(_ text: String) -> Bool {
        guard (1...128).contains(text.utf8.count), !isUUID(text), !["me", ".", ".."].contains(text) else {
            return false
        }
        if text.utf8.allSatisfy({ $0.isAlphanumeric || "_.'+-".utf8.contains($0) }) { return true }
        let sides = text.split(separator: "@", omittingEmptySubsequences: false)
        guard sides.count == 2, !sides[0].isEmpty, text.utf8.allSatisfy({ (0x21...0x7e).contains($0) }) else {
            return false
        }
        let labels = sides[1].split(separator: ".", omittingEmptySubsequences: false)
        return labels.count > 1
            && labels.allSatisfy { !$0.isEmpty && $0.utf8.allSatisfy { $0.isAlphanumeric || $0 == UInt8(ascii: "-") } }
            && !sides[0].contains("/")
    }

    static func isGroupName(_ text: String) -> Bool {
        (1...128).contains(text.utf8.count)
            && text.utf8.allSatisfy { $0.isAlphanumeric || $0 == UInt8(ascii: "-") }
    }

    static func isToken(_ text: String) -> Bool {
        (1...8192).contains(text.utf8.count) && text.utf8.allSatisfy { (0x21...0x7e).contains($0) }
            && !["(null)", "null", "nil"].contains(text)
    }

    static func isHexDigit(_ byte: UInt8) -> Bool { byte.hexadecimalValue != nil }
}
