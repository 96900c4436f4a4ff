import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI

/// Whether the time that a wrong key takes says how much of it is right.
@Suite(.serialized, .enabled(if: Timing.isMeasured)) struct KeyTimingTests {
    private static let real = "postern_yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp13clcUh"
    private static let samples = 20_000

    /// How often a check of a key that begins like the real one takes longer than that of a key with nothing in common,
    /// over all pairs of samples: 0.5 if the time says nothing. Both kinds take turns, so that noise of the machine hits
    /// both, and only ranks count, so that outliers do not.
    private func lead(_ check: (String) -> Bool) -> Double {
        var random = SplitMix64(state: 7)
        func letters(_ count: Int) -> String {
            let alphabet = Array("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
            return String((0..<count).map { _ in alphabet[Int(random.next() % 62)] })
        }
        // All but the last characters are right, or none is.
        let near = (0..<500).map { _ in String(Self.real.dropLast(6)) + letters(6) }
        let far = (0..<500).map { _ in letters(Self.real.count) }
        let clock = ContinuousClock()
        var times: (near: [Duration], far: [Duration]) = ([], [])
        for index in 0..<(Self.samples + 2000) {
            for isNear in index.isMultiple(of: 2) ? [true, false] : [false, true] {
                let key = "Bearer " + (isNear ? near : far)[index % 500]
                let start = clock.now
                let isKnown = check(key)
                let time = clock.now - start
                precondition(!isKnown)
                // The first ones warm everything up.
                guard index >= 2000 else { continue }
                if isNear { times.near.append(time) } else { times.far.append(time) }
            }
        }
        return leadOfRanks(times.near, over: times.far)
    }

    /// Mann and Whitney's U, as a share of all pairs; a tie is half a lead.
    private func leadOfRanks(_ left: [Duration], over right: [Duration]) -> Double {
        let right = right.sorted()
        func count(before value: Duration, orEqual: Bool) -> Int {
            var (low, high) = (0, right.count)
            while low < high {
                let middle = (low + high) / 2
                if right[middle] < value || orEqual && right[middle] == value {
                    low = middle + 1
                } else {
                    high = middle
                }
            }
            return low
        }
        let sum = left.reduce(0.0) {
            $0 + Double(count(before: $1, orEqual: false) + count(before: $1, orEqual: true)) / 2
        }
        return sum / Double(left.count) / Double(right.count)
    }

    /// With 20 000 samples of each kind the standard error is 0.003.
    @Test func wrongKeys_takeTheSameTime_howeverMuchOfThemIsRight() {
        let ring = KeyRing()
        let key = APIKey(name: "a", sha256: KeyText.digest(of: Self.real), scopes: [.write])
        ring.replace(with: [key], at: MonotonicInstant(nanoseconds: 0))
        let now = Timestamp(milliseconds: 1)
        let found = lead { text in
            if case .unknown = ring.authenticate(text, now: now) { false } else { true }
        }
        #expect(abs(found - 0.5) < 0.03, "\(found)")
    }

    /// The same measurement finds a comparison that ends at the first difference.
    @Test func comparisonByCharacter_isFoundOut() {
        let real = Array("Bearer \(Self.real)".utf8)
        let found = lead { text in
            for (left, right) in zip(Array(text.utf8), real) where left != right { return false }
            return true
        }
        #expect(found > 0.7, "\(found)")
    }
}
