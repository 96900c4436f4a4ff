extension Lane {
    /// How a digest is shown where the name is not known: 16 hexadecimal digits.
    public static func text(ofDigest digest: Int64) -> String {
        let digits = String(UInt64(bitPattern: digest), radix: 16)
        return String(repeating: "0", count: 16 - digits.count) + digits
    }

    /// Whether `text` is its name, or the digest of its name as it is shown.
    public func isCalled(_ text: String) -> Bool {
        switch self {
        case .none: false
        case .named(let name, _): name == text
        case .digest(let digest): Self.text(ofDigest: digest) == text || Self.digest(of: text.utf8) == self
        }
    }

    /// FNV-1a of 64 bits. Digests are stored, so this never changes.
    ///
    /// Worked values of the hash: `` is 0xcbf29ce484222325, `a` is 0xaf63dc4c8601ec8c, `foobar` is 0x85944171f73967e8.
    @inlinable public static func digest(of bytes: some Sequence<UInt8>) -> Lane {
        var hash: UInt64 = 0xCBF2_9CE4_8422_2325
        for byte in bytes { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01B3 }
        return .digest(Int64(bitPattern: hash))
    }
}
