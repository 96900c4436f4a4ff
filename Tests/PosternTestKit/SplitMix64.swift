/// The same numbers for the same seed, on every machine (https://prng.di.unimi.it/splitmix64.c).
public struct SplitMix64: RandomNumberGenerator, Sendable {
    private var state: UInt64

    /// Any seed is a good state. A multiple of the increment below is not: the numbers of one seed would be those of the
    /// seed before it, without the first.
    public init(state: UInt64) { self.state = state }

    public mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }

    /// From 0 to `limit` - 1.
    public mutating func below(_ limit: Int) -> Int { Int.random(in: 0..<limit, using: &self) }
}
