import PosternCore
import Synchronization

/// Ids for requests without their own.
enum RequestID {
    private static let seed = UInt64.random(in: .min ... .max)
    private static let drawn = Atomic<UInt64>(0)

    /// 13 characters of base 32: short enough for a `String` to store inline.
    ///
    /// A counter, mixed so that no two counts have one id: unique in this process, unlikely to equal one of another
    /// process, and without the system call that true randomness costs.
    static func fresh() -> String {
        let count = drawn.wrappingAdd(1, ordering: .relaxed).newValue
        var bits = SplitMix64.mixed(seed &+ count &* SplitMix64.increment)
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
