import PosternCore
import PosternUpstream

/// Codes of sessions, screens, and events that the gateway generates.
///
/// They are derived from what they identify, so that a repeat quotes the same code, also in a later run.
enum Code {
    /// A version-1 UUID (RFC 9562, section 5.1).
    ///
    /// Worked value: 2015-01-22T10:00:00.000Z, clock sequence 0x0123, node 03ab5c7d9e1f is
    /// `6d551000-a21d-11e4-8123-03ab5c7d9e1f`. `ticks` are the 100 ns after the millisecond.
    static func session(at moment: Timestamp, ticks: UInt64 = 0, clockSequence: UInt64, node: UInt64) -> String {
        // From 1582-10-15 on.
        let count = UInt64(moment.milliseconds) &* 10000 &+ ticks &+ 122_192_928_000_000_000
        let high = count << 32 | count >> 16 & 0xFFFF_0000 | 0x1000 | count >> 48 & 0xFFF
        let low = 2 << 62 | (clockSequence & 0x3FFF) << 48 | node & 0xFFFF_FFFF_FFFF
        return text(high, low)
    }

    /// Replaces `refused`, a code of the caller's `session`, at the given time. Its node has the multicast bit, so it
    /// does not belong to a network card.
    static func session(
        insteadOf refused: String, of session: String, visitor: String, round: Int, at now: Timestamp
    ) -> String {
        let random = TextDigest.of(["session", visitor, session, refused, String(round)])
        return self.session(
            at: now, ticks: random.0 % 10000, clockSequence: random.0 >> 32, node: random.1 | 1 << 40)
    }

    /// The code of a start that is sent in a batch: a version-4 UUID.
    static func open(_ id: MessageID, session: String, visitor: String) -> String {
        String(decoding: UUIDText.version4(TextDigest.of(["open", visitor, session, "\(id)"])), as: UTF8.self)
    }

    /// Texts of any length for keys of the state: 32 hexadecimal digits.
    static func hash(_ texts: String...) -> String {
        let (high, low) = TextDigest.of(texts)
        return text(high, low).split(separator: "-").joined()
    }

    /// Whether the text is a version-1 UUID in lower case.
    static func isSession(_ text: some Collection<UInt8>) -> Bool {
        guard text.count == 36 else { return false }
        for (index, byte) in text.enumerated() {
            switch (index, byte) {
            case (8, UInt8(ascii: "-")), (13, UInt8(ascii: "-")), (18, UInt8(ascii: "-")), (23, UInt8(ascii: "-")):
                break
            case (8, _), (13, _), (18, _), (23, _): return false
            case (14, let version) where version != UInt8(ascii: "1"): return false
            case (19, let variant) where !"89ab".utf8.contains(variant): return false
            case (_, UInt8(ascii: "0")...UInt8(ascii: "9")), (_, UInt8(ascii: "a")...UInt8(ascii: "f")): break
            default: return false
            }
        }
        return true
    }

    private static func text(_ high: UInt64, _ low: UInt64) -> String {
        String(decoding: UUIDText.bytes(high, low), as: UTF8.self)
    }
}
