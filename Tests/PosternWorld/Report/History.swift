import PosternCore

/// What happened in a world, in words. A digest of all of it tells whether two runs were the same; the latest steps are
/// kept for people.
final class History {
    private(set) var digest: UInt64 = 0xcbf2_9ce4_8422_2325
    private(set) var steps = 0
    private var latest: [String] = []
    private var next = 0
    private let start: MonotonicInstant
    private let time: any TimeSource
    /// Called with each step; for a person who watches.
    var watch: ((String) -> Void)?

    static let kept = 100

    init(_ time: any TimeSource) {
        self.time = time
        start = time.instant
    }

    func record(_ text: String) {
        steps += 1
        let elapsed = time.instant - start
        for byte in text.utf8 { mix(byte) }
        withUnsafeBytes(of: elapsed.components) { for byte in $0 { mix(byte) } }
        let line = "\(shown(elapsed)) \(text)"
        watch?(line)
        if latest.count < Self.kept { latest.append(line) } else { latest[next] = line }
        next = (next + 1) % Self.kept
    }

    /// A choice that is not worth a step.
    func mix(_ choice: Int) { mix(UInt8(truncatingIfNeeded: choice)) }

    /// The latest steps, oldest first.
    var lastSteps: [String] { latest.count < Self.kept ? latest : Array(latest[next...] + latest[..<next]) }

    private func mix(_ byte: UInt8) { digest = (digest ^ UInt64(byte)) &* 0x0000_0100_0000_01B3 }
}

/// `26:03:07.250`: hours, minutes and seconds.
func shown(_ span: Duration) -> String {
    let milliseconds = Int(span.components.seconds) * 1000 + Int(span.components.attoseconds / 1_000_000_000_000_000)
    func digits(_ number: Int, _ count: Int) -> String {
        let text = String(number)
        return String(repeating: "0", count: max(0, count - text.count)) + text
    }
    let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000)
    return "\(digits(seconds / 3600, 2)):\(digits(seconds / 60 % 60, 2)):\(digits(seconds % 60, 2)).\(digits(rest, 3))"
}
