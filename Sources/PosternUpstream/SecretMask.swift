import Foundation
import PosternCore

/// Replaces secrets in text that an upstream sent, or that shows a request.
///
/// An upstream may echo a secret in any form that a request or a log contains. Each byte is therefore also found when
/// it is percent-encoded or escaped as in JSON, and the whole secret inside Base64.
public struct SecretMask: Sendable {
    /// Shown in place of a secret, whatever its length.
    public static let mask = "***"
    /// A shorter secret is not masked: it may be part of any word, and hardly protects anything.
    public static let shortestSecret = 6
    /// A shorter piece of a secret may be part of an ordinary word.
    private static let shortestPiece = 4
    private static let longestExcerpt = 400

    private let needles: [[UInt8]]
    /// Bytes with which a match may begin.
    private let starts: Set<UInt8>

    public init(_ secrets: some Sequence<String>) {
        var needles: Set<[UInt8]> = []
        for secret in secrets {
            for form in Self.credentials(in: secret) {
                needles.insert(form)
                needles.formUnion(
                    (0..<3).map { Base64.piece(of: form, at: $0) }.filter { $0.count >= Self.shortestPiece })
            }
        }
        self.needles = Array(needles)
        let special = [UInt8(ascii: "%"), UInt8(ascii: "\\"), UInt8(ascii: "+"), UInt8(ascii: "-"), UInt8(ascii: "_")]
        starts = needles.isEmpty ? [] : Set(needles.map { $0[0] } + special)
    }

    /// Replaces every secret in a complete text.
    public func masked(_ text: String) -> String {
        needles.isEmpty ? text : String(decoding: masked(Array(text.utf8)), as: UTF8.self)
    }

    /// The same for bytes, which need not be UTF-8.
    public func masked(_ text: [UInt8]) -> [UInt8] { scan(text, mayBeCut: false) }

    /// The same for the start of a text, which may end inside a secret.
    public func maskedStart(of text: [UInt8]) -> [UInt8] { scan(text, mayBeCut: true) }

    /// Shortens a text, which may have been cut anywhere, even inside a secret, to what a person reads.
    public func excerpt(_ text: String) -> String {
        let text = needles.isEmpty ? text : String(decoding: scan(Array(text.utf8), mayBeCut: true), as: UTF8.self)
        return text.count > Self.longestExcerpt ? text.prefix(Self.longestExcerpt) + "…" : text
    }

    private func scan(_ text: [UInt8], mayBeCut: Bool) -> [UInt8] {
        var result: [UInt8] = []
        result.reserveCapacity(text.count)
        var index = 0
        while index < text.count {
            if starts.contains(text[index]), let end = matchEnd(in: text, at: index, mayBeCut: mayBeCut) {
                result += Self.mask.utf8
                index = end
            } else {
                result.append(text[index])
                index += 1
            }
        }
        return result
    }

    /// The end of the longest match.
    private func matchEnd(in text: [UInt8], at start: Int, mayBeCut: Bool) -> Int? {
        var longest: Int?
        for needle in needles {
            var index = start
            var matched = 0
            while matched < needle.count, index < text.count {
                guard let (bytes, length) = Self.unit(in: text, at: index, like: needle[matched...]) else { break }
                matched += bytes
                index += length
            }
            let isMatch = matched == needle.count || mayBeCut && index == text.count && matched >= Self.shortestPiece
            if isMatch { longest = max(longest ?? 0, index) }
        }
        return longest
    }

    /// How many bytes of `needle` the text contains next, and in how many bytes.
    private static func unit(
        in text: [UInt8], at index: Int, like needle: ArraySlice<UInt8>
    ) -> (bytes: Int, length: Int)? {
        let wanted = needle[needle.startIndex]
        switch text[index] {
        case UInt8(ascii: "%"):
            if hexadecimal(text, at: index + 1, count: 2) == UInt32(wanted) { return (1, 3) }
        case UInt8(ascii: "\\") where index + 1 < text.count:
            if let value = hexadecimal(text, at: index + 2, count: 4), text[index + 1] == UInt8(ascii: "u") {
                let bytes = Unicode.Scalar(value).map { Array(String($0).utf8) } ?? []
                return !bytes.isEmpty && needle.starts(with: bytes) ? (bytes.count, 6) : nil
            }
            if JSONEscapes.character(text[index + 1]) == wanted { return (1, 2) }
        case UInt8(ascii: "+") where wanted == UInt8(ascii: " "): return (1, 1)
        // RFC 4648, section 5.
        case UInt8(ascii: "-") where wanted == UInt8(ascii: "+"): return (1, 1)
        case UInt8(ascii: "_") where wanted == UInt8(ascii: "/"): return (1, 1)
        default: break
        }
        return text[index] == wanted ? (1, 1) : nil
    }

    private static func hexadecimal(_ text: [UInt8], at start: Int, count: Int) -> UInt32? {
        guard start + count <= text.count else { return nil }
        var value: UInt32 = 0
        for byte in text[start..<start + count] {
            guard let digit = byte.hexadecimalValue else { return nil }
            value = value << 4 | UInt32(digit)
        }
        return value
    }

    /// Those long enough of: the secret, and if it is a header value such as `Bearer abc` or `Basic dXNlcjpwYXNz`, what follows the scheme.
    private static func credentials(in secret: String) -> [[UInt8]] {
        let parts = secret.split(separator: " ", maxSplits: 1)
        guard parts.count == 2, parts[0].allSatisfy(\.isLetter), parts[1].utf8.count >= shortestPiece else {
            return secret.count < shortestSecret ? [] : [Array(secret.utf8)]
        }
        var found = [Array(secret.utf8), Array(parts[1].utf8)]
        if parts[0].lowercased() == "basic", let pair = Base64.decode(parts[1]) {
            found.append(pair)
            if let colon = pair.firstIndex(of: UInt8(ascii: ":")) { found.append(Array(pair[(colon + 1)...])) }
        }
        return found.filter { String(decoding: $0, as: UTF8.self).count >= shortestSecret }
    }
}

/// The part of RFC 4648, section 4, that finding secrets requires.
enum Base64 {
    private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)

    /// The characters that depend on `bytes` alone if these begin `offset` bytes after a multiple of three in a longer
    /// text.
    static func piece(of bytes: [UInt8], at offset: Int) -> [UInt8] {
        let bits = offset * 8
        let first = (bits + 5) / 6
        let end = (bits + bytes.count * 8) / 6
        guard first < end else { return [] }
        let padded = [UInt8](repeating: 0, count: offset) + bytes + [0, 0]
        return (first..<end).map { position in
            let bit = position * 6
            let pair = UInt16(padded[bit / 8]) << 8 | UInt16(padded[bit / 8 + 1])
            return alphabet[Int(pair >> UInt16(10 - bit % 8) & 63)]
        }
    }

    /// Padding may be missing.
    static func decode(_ text: some StringProtocol) -> [UInt8]? {
        let letters = text.prefix { $0 != "=" }
        return Data(base64Encoded: letters + String(repeating: "=", count: (4 - letters.utf8.count % 4) % 4)).map(
            Array.init)
    }
}
