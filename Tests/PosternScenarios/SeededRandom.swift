import PosternCore

/// All chance of one part of a world. Parts have generators of their own, forked from the world's, so that leaving one
/// part out changes nothing for the others.
package final class SeededRandom {
    private var numbers: SplitMix64
    /// What it was forked from.
    package let seed: UInt64

    package init(seed: UInt64, for part: String) {
        self.seed = seed
        numbers = SplitMix64(
            state: part.utf8.reduce(seed &+ 0x5851_F42D_4C95_7F2D) { ($0 ^ UInt64($1)) &* 0x0000_0100_0000_01B3 })
    }

    package func next() -> UInt64 { numbers.next() }

    /// 0 to 1, without 1.
    package func fraction() -> Double { Double(next() >> 11) * 0x1p-53 }
    package func below(_ limit: Int) -> Int { Int(next() % UInt64(limit)) }
    package func from(_ range: ClosedRange<Int>) -> Int { range.lowerBound + below(range.count) }
    package func chance(_ probability: Double) -> Bool { fraction() < probability }
    package func pick<Element>(_ elements: [Element]) -> Element { elements[below(elements.count)] }

    /// Between these numbers of seconds; short spans are as likely as long ones.
    package func span(_ seconds: ClosedRange<Double>) -> Duration {
        let (low, high) = (max(seconds.lowerBound, 0.001), seconds.upperBound)
        return .nanoseconds(Int64(low * power(high / low, fraction()) * 1e9))
    }
}

/// `base` to the power of `exponent` between 0 and 1, by halving: the same on every machine.
private func power(_ base: Double, _ exponent: Double) -> Double {
    var (result, root, rest) = (1.0, base, exponent)
    for _ in 0..<24 {
        root = root.squareRoot()
        rest *= 2
        if rest >= 1 {
            result *= root
            rest -= 1
        }
    }
    return result
}
