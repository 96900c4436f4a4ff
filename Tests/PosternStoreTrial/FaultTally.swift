/// What became of the cases of one class of faults.
struct FaultTally: Codable {
    var cases = 0, acknowledged = 0, lost = 0, refused = 0, repeated = 0
    /// How many starts took so many microseconds, by two digits.
    var recoveries: [Int: Int] = [:]

    mutating func add(_ outcome: FaultSweep.Outcome) {
        cases += 1
        acknowledged += outcome.acknowledged
        lost += outcome.lost
        refused += outcome.refused
        repeated += outcome.repeated
        for time in outcome.recoveries { recoveries[Self.rounded(time), default: 0] += 1 }
    }

    mutating func add(_ other: FaultTally) {
        cases += other.cases
        acknowledged += other.acknowledged
        lost += other.lost
        refused += other.refused
        repeated += other.repeated
        recoveries.merge(other.recoveries, uniquingKeysWith: +)
    }

    private static func rounded(_ time: Duration) -> Int {
        var (value, unit) = (Int(time / .microseconds(1)), 1)
        while value >= 100 { (value, unit) = (value / 10, unit * 10) }
        return value * unit
    }

    /// The time within which half of the starts were done, and the longest, in milliseconds.
    var recovery: (half: Double, longest: Double) {
        let total = recoveries.values.reduce(0, +)
        var seen = 0
        let half = recoveries.sorted { $0.key < $1.key }.first { _, count in
            seen += count
            return seen * 2 >= total
        }
        return (Double(half?.key ?? 0) / 1000, Double(recoveries.keys.max() ?? 0) / 1000)
    }
}
