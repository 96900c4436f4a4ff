import Crypto
import PosternUpstream

/// SHA-256 of a key's text, as four words: cheap to look up, and compared in constant time.
struct KeyDigest: Sendable {
    private let words: (UInt64, UInt64, UInt64, UInt64)

    /// Finds candidates. Digests of different keys may share a prefix; the probability is that of guessing half a
    /// digest.
    var prefix: UInt64 { words.0 }

    /// Nil unless there are 32 bytes.
    init?(_ bytes: [UInt8]) {
        guard bytes.count == 32 else { return nil }
        words = bytes.withUnsafeBytes { Self.words($0) }
    }

    /// The digest of the key in `Bearer <key>` (RFC 6750, section 2.1); nil without a key. The case of the scheme does
    /// not matter (RFC 9110, section 11.1).
    init?(ofBearer authorization: UnsafeBufferPointer<UInt8>) {
        let scheme: StaticString = "bearer"
        let length = scheme.utf8CodeUnitCount
        guard authorization.count > length, authorization[length] == UInt8(ascii: " "),
            (0..<length).allSatisfy({ authorization[$0] | 0x20 == scheme.utf8Start[$0] }),
            let start = authorization[length...].firstIndex(where: { $0 != UInt8(ascii: " ") })
        else { return nil }
        var hash = SHA256()
        hash.update(bufferPointer: UnsafeRawBufferPointer(rebasing: UnsafeRawBufferPointer(authorization)[start...]))
        words = hash.finalize().withUnsafeBytes { Self.words($0) }
    }

    /// The digest of the password in `Basic <credentials>` (RFC 7617, section 2); nil without one. The user does not matter.
    init?(ofBasic authorization: UnsafeBufferPointer<UInt8>) {
        guard let credentials = BasicCredentials(String(decoding: authorization, as: UTF8.self)) else { return nil }
        words = SHA256.hash(data: credentials.password).withUnsafeBytes { Self.words($0) }
    }

    private static func words(_ bytes: UnsafeRawBufferPointer) -> (UInt64, UInt64, UInt64, UInt64) {
        func word(_ index: Int) -> UInt64 { bytes.loadUnaligned(fromByteOffset: 8 * index, as: UInt64.self) }
        return (word(0), word(1), word(2), word(3))
    }

    /// Compares all words, whichever of them differ.
    static func == (left: Self, right: Self) -> Bool {
        (left.words.0 ^ right.words.0) | (left.words.1 ^ right.words.1) | (left.words.2 ^ right.words.2)
            | (left.words.3 ^ right.words.3) == 0
    }
}
