/// Identifies a message; ids sort by acceptance, across all upstreams of a store.
///
/// The number is `sequence << 8 | upstream`: the sequence counts every acceptance of the store, the low byte says in
/// which queue to look, so that finding a message by its id needs no second index. Callers see 13 characters of
/// Crockford's Base32 in lower case; the text sorts as the number does.
public struct MessageID: Hashable, Comparable, Sendable, CustomStringConvertible {
    /// `sequence << 8 | upstream`.
    public let rawValue: Int64

    @inlinable public init(rawValue: Int64) { self.rawValue = rawValue }

    /// `sequence` is below 2^55.
    @inlinable public init(sequence: Int64, upstream: UpstreamNumber) {
        rawValue = sequence << 8 | Int64(upstream.rawValue)
    }

    /// Counts the messages of all upstreams in the order of acceptance.
    @inlinable public var sequence: Int64 { rawValue >> 8 }
    @inlinable public var upstream: UpstreamNumber { UpstreamNumber(rawValue: UInt8(truncatingIfNeeded: rawValue)) }

    /// Orders messages as they were accepted, over all upstreams.
    @inlinable public static func < (left: MessageID, right: MessageID) -> Bool { left.rawValue < right.rawValue }

    private static let alphabet = Array("0123456789abcdefghjkmnpqrstvwxyz".utf8)

    public var description: String {
        String(unsafeUninitializedCapacity: 13) { text in
            for index in 0..<13 {
                text[12 - index] = Self.alphabet[Int(truncatingIfNeeded: rawValue >> (5 * Int64(index))) & 31]
            }
            return 13
        }
    }

    /// Nil if `text` is not an id in the form of `description`.
    public init?(_ text: some StringProtocol) {
        guard text.utf8.count == 13 else { return nil }
        var value: UInt64 = 0
        for (index, character) in text.utf8.enumerated() {
            guard let digit = Self.alphabet.firstIndex(of: character), index > 0 || digit < 8 else { return nil }
            value = value << 5 | UInt64(digit)
        }
        rawValue = Int64(value)
    }
}
