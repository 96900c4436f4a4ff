/// The same random numbers for the same seed, on every machine (Steele, Lea and Flood, 2014;
/// https://prng.di.unimi.it/splitmix64.c). Not for secrets.
public struct SplitMix64: RandomNumberGenerator, Sendable {
    /// What is added to the state for each number.
    @inlinable public static var increment: UInt64 { 0x9E37_79B9_7F4A_7C15 }

    private var state: UInt64

    /// Any seed is a good state. A multiple of the increment is not: the numbers of one seed would be those of the seed
    /// before it, without the first.
    public init(state: UInt64) { self.state = state }

    public mutating func next() -> UInt64 {
        state &+= Self.increment
        return Self.mixed(state)
    }

    /// Scatters similar states; no two have the same result.
    @inlinable public static func mixed(_ state: UInt64) -> UInt64 {
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }

    /// At least 0, below 1.
    public mutating func fraction() -> Double { Double(next() >> 11) * 0x1p-53 }

    /// From 0 to `limit` - 1.
    public mutating func below(_ limit: Int) -> Int { Int.random(in: 0..<limit, using: &self) }
}
