import Crypto

/// 128 bits that depend on texts alone, for values that have to be the same in each attempt, also in a later run.
package enum TextDigest {
    /// The first 128 bits of a SHA-256. If no text contains a NUL, different lists give different bytes.
    package static func of(_ texts: [String]) -> (UInt64, UInt64) {
        let digest = Array(SHA256.hash(data: Array(texts.joined(separator: "\0").utf8)))
        func number(_ bytes: ArraySlice<UInt8>) -> UInt64 { bytes.reduce(0) { $0 << 8 | UInt64($1) } }
        return (number(digest[..<8]), number(digest[8..<16]))
    }
}
