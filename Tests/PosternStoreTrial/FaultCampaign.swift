import Foundation
import PosternCore
import PosternSimulatedDisk
import PosternTestKit
import PosternThreads
import Synchronization

/// What `make faults` runs: every fault at every place of many stories, or as many as there is time for.
package final class FaultCampaign: Sendable {
    /// A part of a story, or pairs of faults of one, that has been gone through: a line of the file of results.
    private struct Stage: Codable {
        let name: String
        let classes: [String: FaultTally]
        let breaches: [String]
    }

    private struct Totals {
        var next = 0
        var classes: [String: FaultTally] = [:]
        var breaches: [String] = []
        var done: Set<String> = []
    }

    private let stories: ClosedRange<UInt64>
    private let pairs: Int
    private let deadline: ContinuousClock.Instant?
    private let seed: UInt64
    private let results: URL?
    private let totals = Mutex(Totals())
    private static let partsOfStory = 16
    private static let pairsOfStage = 1000

    private init(_ stories: ClosedRange<UInt64>, pairs: Int, seconds: Int?, seed: UInt64, results: String?) throws {
        (self.stories, self.pairs, self.seed) = (stories, pairs, seed)
        deadline = seconds.map { .now + .seconds($0) }
        self.results = results.map { URL(fileURLWithPath: $0) }
        guard let file = self.results, let text = try? String(contentsOf: file, encoding: .utf8) else { return }
        for line in text.split(separator: "\n") {
            let stage = try JSONDecoder().decode(Stage.self, from: Data(line.utf8))
            totals.withLock { add(stage, to: &$0) }
        }
    }

    /// - `--stories N`: the first N stories, 1 if not said, with every fault at every place; `--pairs N`: so many drawn pairs of
    ///   faults; `--jobs N`: at a time.
    /// - `--seconds N`: faults drawn from all of them, for so long; `--seed N`: others.
    /// - `--results FILE`: where what was gone through is written, and not gone through again.
    /// - `--story N --faults A,B`: these faults of a story, by number, with what happened.
    package static func main(_ arguments: [String]) -> Never {
        var values: [String: String] = [:]
        var rest = arguments[...]
        let names = ["--stories", "--pairs", "--jobs", "--seconds", "--seed", "--results", "--story", "--faults"]
        while let name = rest.popFirst() {
            guard names.contains(name), let value = rest.popFirst() else {
                print("\(name) is none of \(names.joined(separator: ", ")), or has no value")
                exit(64)
            }
            values[name] = value
        }
        func number(_ name: String) -> Int? { values[name].flatMap { Int($0) } }
        do {
            if let story = number("--story") {
                let faults = (values["--faults"] ?? "").split(separator: ",").compactMap { Int($0) }
                exit(try one(UInt64(story), faults) ? 0 : 1)
            }
            let campaign = try FaultCampaign(
                1...UInt64(max(number("--stories") ?? 1, 1)), pairs: number("--pairs") ?? 0,
                seconds: number("--seconds"), seed: UInt64(max(number("--seed") ?? 0, 0)), results: values["--results"])
            let threads = try (0..<(number("--jobs") ?? 2)).map { number in
                try DedicatedThread(name: "faults-\(number)") { campaign.work(number) }
            }
            for thread in threads { thread.join() }
            exit(campaign.show() ? 0 : 1)
        } catch {
            print(error)
            exit(70)
        }
    }

    private static func one(_ story: UInt64, _ faults: [Int]) throws -> Bool {
        let sweep = try FaultSweep(story: story)
        print("\(sweep.count) faults of the disk, \(sweep.memoryCount) of memory")
        let faults = faults.map(sweep.fault)
        let outcome = sweep.outcome(of: faults)
        print("story \(story) with \(faults): \(outcome.breach ?? "kept its promises")")
        return outcome.breach == nil
    }

    // MARK: Work

    private func work(_ thread: Int) {
        do {
            if let deadline {
                var random = SplitMix64(state: seed &+ UInt64(thread))
                while ContinuousClock.now < deadline {
                    let sweep = try FaultSweep(story: UInt64.random(in: stories, using: &random))
                    // Of a story's faults, most are of memory; of those drawn, most are of the disk.
                    let singles = (0..<30).map { _ in [random.below(sweep.count)] }
                    let ofMemory = (0..<10).map { _ in [sweep.count + random.below(sweep.memoryCount)] }
                    let pairs = (0..<10).map { _ in [random.below(sweep.count), random.below(sweep.count)] }
                    try record(stage("", sweep, singles + ofMemory + pairs))
                }
                return
            }
            while let (name, number) = nextStage() {
                if number < storyStages {
                    let sweep = try FaultSweep(story: stories.lowerBound + UInt64(number / Self.partsOfStory))
                    let part = stride(from: number % Self.partsOfStory, to: sweep.count, by: Self.partsOfStory)
                    try record(stage(name, sweep, part.map { [$0] }))
                } else {
                    var random = SplitMix64(state: UInt64(number - storyStages))
                    let sweep = try FaultSweep(story: UInt64.random(in: stories, using: &random))
                    let pairs = (0..<Self.pairsOfStage).map { _ in
                        [random.below(sweep.count), random.below(sweep.count)]
                    }
                    try record(stage(name, sweep, pairs))
                }
            }
        } catch {
            totals.withLock { $0.breaches.append("\(error)") }
        }
    }

    private var storyStages: Int { stories.count * Self.partsOfStory }

    /// What has not been gone through.
    private func nextStage() -> (name: String, number: Int)? {
        totals.withLock { totals in
            while totals.next < storyStages + pairs / Self.pairsOfStage {
                let number = totals.next
                totals.next += 1
                let name =
                    number < storyStages
                    ? "story \(number / Self.partsOfStory + 1), part \(number % Self.partsOfStory + 1)"
                    : "pairs \(number - storyStages + 1)"
                if !totals.done.contains(name) { return (name, number) }
            }
            return nil
        }
    }

    private func stage(_ name: String, _ sweep: FaultSweep, _ cases: [[Int]]) -> Stage {
        var classes: [String: FaultTally] = [:]
        var breaches: [String] = []
        for numbers in cases {
            let faults = numbers.map(sweep.fault)
            let outcome = sweep.outcome(of: faults)
            let name = faults.count > 1 ? "two of them" : "\(faults[0].kind.rawValue): \(faults[0].call.rawValue)"
            classes[name, default: FaultTally()].add(outcome)
            guard let breach = outcome.breach else { continue }
            let place = numbers.map(String.init).joined(separator: ",")
            breaches.append("--story \(sweep.story) --faults \(place): \(faults): \(breach.prefix { $0 != "\n" })")
            print(breaches[breaches.count - 1])
            fflush(nil)
        }
        return Stage(name: name, classes: classes, breaches: breaches)
    }

    private func record(_ stage: Stage) throws {
        try totals.withLock { totals in
            add(stage, to: &totals)
            guard let results, !stage.name.isEmpty else { return }
            if !FileManager.default.fileExists(atPath: results.path) {
                try Data().write(to: results)
            }
            let file = try FileHandle(forWritingTo: results)
            try file.seekToEnd()
            try file.write(contentsOf: JSONEncoder().encode(stage) + Data("\n".utf8))
            try file.close()
        }
    }

    private func add(_ stage: Stage, to totals: inout Totals) {
        totals.done.insert(stage.name)
        totals.breaches += stage.breaches
        for (name, tally) in stage.classes { totals.classes[name, default: FaultTally()].add(tally) }
    }

    // MARK: The table

    /// Whether all promises were kept.
    private func show() -> Bool {
        totals.withLock { totals in
            print(
                "| fault | cases | acknowledged | lost | refused | handed out again | start, half (ms) | start, longest (ms) |"
            )
            print("|---|---|---|---|---|---|---|---|")
            var all = FaultTally()
            for (name, tally) in totals.classes.sorted(by: { $0.key < $1.key }) {
                print(Self.row(name, tally))
                all.add(tally)
            }
            print(Self.row("all", all))
            if !totals.breaches.isEmpty { print("\(totals.breaches.count) cases with a broken promise:") }
            for breach in totals.breaches.prefix(50) { print(breach) }
            return totals.breaches.isEmpty
        }
    }

    private static func row(_ name: String, _ tally: FaultTally) -> String {
        let (half, longest) = tally.recovery
        let numbers = [tally.cases, tally.acknowledged, tally.lost, tally.refused, tally.repeated].map(String.init)
        return "| " + ([name] + numbers + ["\(half)", "\(longest)"]).joined(separator: " | ") + " |"
    }
}
