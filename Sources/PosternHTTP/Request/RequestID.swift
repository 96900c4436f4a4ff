import Synchronization

/// Ids for requests without their own.
enum RequestID {
    private static let seed = UInt64.random(in: .min ... .max)
    private static let drawn = Atomic<UInt64>(0)

    /// 13 characters of base 32: short enough for a `String` to store inline.
    ///
    /// A counter through the finalizer of SplitMix64, which maps no two counts to one id: unique in this process,
    /// unlikely to equal one of another process, and without the system call that true randomness costs.
    static func fresh() -> String {
        var bits = seed &+ drawn.wrappingAdd(1, ordering: .relaxed).newValue &* 0x9E37_79B9_7F4A_7C15
        bits = (bits ^ (bits >> 30)) &* 0xBF58_476D_1CE4_E5B9
        bits = (bits ^ (bits >> 27)) &* 0x94D0_49BB_1331_11EB
        bits ^= bits >> 31
        return String(unsafeUninitializedCapacity: 13) { text in
            for index in 0..<13 {
                let digit = UInt8(truncatingIfNeeded: bits & 31)
                text[index] = digit < 10 ? digit + 48 : digit + 87
                bits >>= 5
            }
            return 13
        }
    }
}
