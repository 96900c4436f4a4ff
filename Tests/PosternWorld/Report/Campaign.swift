import Glibc
import PosternCore
import PosternThreads
import PosternUpstream
import Synchronization

/// Many worlds, each on one thread: what `make simulate` runs.
public final class Campaign: Sendable {
    private struct Totals {
        var next: UInt64
        var worlds = 0
        var broken: [UInt64] = []
        var hours = 0.0
        var messages = 0
        var requests = 0
        var lives = 0
        var storeBytes = 0
        var coverage = Coverage()
    }
    private let end: UInt64
    private let leavesOutSyncs: Bool
    private let totals: Mutex<Totals>
    private let start = processorSeconds()

    private init(_ seeds: Range<UInt64>, leavesOutSyncs: Bool) {
        end = seeds.upperBound
        self.leavesOutSyncs = leavesOutSyncs
        totals = Mutex(Totals(next: seeds.lowerBound))
    }

    /// - `--seed N`: one world; what breaks in it is shown with the shortest history, `--watch` shows every step.
    /// - `--without-syncs`: the disk does none, so promises have to break.
    /// - `--seeds N`: as many worlds, 200 if not said; `--first N`: the first of them; `--jobs N`: at a time.
    public static func main(_ arguments: [String]) -> Never {
        var values: [String: UInt64] = [:]
        var rest = arguments[...]
        while let name = rest.popFirst() {
            if name == "--watch" || name == "--without-syncs" {
                values[name] = 1
            } else if let value = rest.popFirst().flatMap({ UInt64($0) }) {
                values[name] = value
            } else {
                print("\(name) needs a number")
                exit(64)
            }
        }
        if let seed = values["--seed"] { exit(one(seed, isWatched: values["--watch"] != nil) ? 0 : 1) }
        let first = values["--first"] ?? 1
        let campaign = Campaign(
            first..<first + (values["--seeds"] ?? 200), leavesOutSyncs: values["--without-syncs"] != nil)
        let threads = (0..<(values["--jobs"] ?? 2)).map { number in
            try! DedicatedThread(name: "world-\(number)") { campaign.work() }
        }
        for thread in threads { thread.join() }
        exit(campaign.sum() ? 0 : 1)
    }

    private static func one(_ seed: UInt64, isWatched: Bool) -> Bool {
        let world = World(Plan(seed: seed))
        if isWatched { world.watch { print($0) } }
        let report = world.simulate()
        print("seed \(seed): trace \(String(report.digest, radix: 16)), \(report.steps) steps")
        if report.broken != nil { print(report.shrunk.explanation) }
        return report.broken == nil
    }

    private func work() {
        while let seed = totals.withLock({ totals -> UInt64? in
            guard totals.next < end else { return nil }
            defer { totals.next += 1 }
            return totals.next
        }) {
            let plan = leavesOutSyncs ? Plan(seed: seed).withoutSyncs() : Plan(seed: seed)
            let report = World(plan).simulate()
            totals.withLock { record(report, in: &$0) }
        }
    }

    private func record(_ report: Report, in totals: inout Totals) {
        totals.worlds += 1
        totals.hours += report.hours
        totals.messages += report.messages
        totals.requests += report.requests
        totals.lives += report.runs
        totals.storeBytes = max(totals.storeBytes, report.storeBytes)
        totals.coverage.add(report.coverage)
        if let broken = report.broken {
            totals.broken.append(report.plan.seed)
            print("seed \(report.plan.seed): \(broken)")
        }
        if totals.worlds.isMultiple(of: 100) {
            let rate = Double(totals.worlds) / (Self.processorSeconds() - start) * 60
            print("\(totals.worlds) worlds, \(totals.broken.count) broken, \(Int(rate)) a minute of processor time")
        }
        fflush(nil)
    }

    private func sum() -> Bool {
        totals.withLock { totals in
            let seconds = Self.processorSeconds() - start
            print(
                """
                \(totals.worlds) worlds, \(totals.broken.count) with a broken promise \(totals.broken.sorted())
                \(Int(totals.hours)) hours, \(totals.messages) messages, \(totals.requests) upstream requests, \
                \(totals.lives) lives of the gateway; the largest store had \(totals.storeBytes >> 10) KiB, this process \
                \(Self.peakMegabytes) MiB
                \(Int(seconds)) s of processor time: \(Int(totals.hours / seconds * 60)) hours a minute
                \(Coverage.all.count - totals.coverage.missing.count) of \(Coverage.all.count) states and transitions visited; not: \
                \(totals.coverage.missing.joined(separator: ", "))
                """)
            return totals.broken.isEmpty
        }
    }

    private static var peakMegabytes: Int {
        var usage = rusage()
        getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
        return usage.ru_maxrss >> 10
    }

    private static func processorSeconds() -> Double {
        var time = timespec()
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }
}
