import Foundation
import Logging
import PosternCore
import PosternEvents
import PosternMetrics
import PosternSimulatedDisk
import PosternTestKit
import Testing

@testable import PosternStore

/// The store on a disk that fails, seed by seed.
@Suite struct StoreOnDiskTests {
    /// Of `POSTERN_DISK_SEEDS`, such as 1...400.
    private static let seeds = {
        let ends = (ProcessInfo.processInfo.environment["POSTERN_DISK_SEEDS"] ?? "1...24").split(separator: ".")
        return Array(ends.compactMap { UInt64($0) }.min()!...ends.compactMap { UInt64($0) }.max()!)
    }()

    @Test(arguments: StoreTrial.Weather.allCases, seeds)
    func promises_areKept_whateverTheDiskDoes(weather: StoreTrial.Weather, seed: UInt64) throws {
        try StoreTrial(seed: seed, weather).run()
    }

    /// The trials can fail: without syncs they find a loss.
    @Test func missingSyncs_areFound() {
        let found = (1...20).filter { seed in
            let trial = StoreTrial(seed: UInt64(seed), .calm)
            trial.disk.faults.secretlyLyingSyncs = 1
            return (try? trial.run()) == nil
        }
        #expect(found.count >= 10)
    }

    @Test func sameSeed_givesTheSameTrial() throws {
        func digest(_ seed: UInt64) -> [UInt64] {
            let trial = StoreTrial(seed: seed, .errors)
            try? trial.run()
            return [trial.disk.digest, UInt64(trial.accepted), UInt64(trial.restarts)]
        }
        #expect(digest(7) == digest(7))
    }
}

/// A store on a disk that fails: random work, deaths at any moment, and after each restart a comparison with what was
/// promised.
final class StoreTrial: @unchecked Sendable {
    // @unchecked: one thread does everything.
    /// What the disk does to the store, apart from dying.
    enum Weather: String, CaseIterable {
        case calm, errors, failedSyncs, full, lies, damage
    }

    /// Something that must not be. Ends the trial.
    struct Breach: Error, CustomStringConvertible { let description: String }

    let disk: SimulatedDisk
    let weather: Weather
    let time = ManualTime()
    var threads: ManualThreads
    var outbox: Outbox?
    var queue: UpstreamQueue?
    /// Gets an event for each message that settles in one of these states.
    var listener: UpstreamQueue?
    static let reported: Set<MessageState> = [.delivered, .failed, .dropped]
    let book = StoreExpectations()
    var random: SplitMix64
    /// A read holds up checkpoints.
    var isReading = false
    var claims: [Claim] = []
    /// What happened, for the report of a failure.
    var trace: [String] = []
    var restarts = 0
    var accepted = 0
    var isDamageReported = false
    /// A bit of the log has flipped, and no start has read it.
    var isLogDamaged = false

    init(seed: UInt64, _ weather: Weather) {
        self.weather = weather
        random = SplitMix64(state: seed)
        disk = SimulatedDisk(seed: seed)
        threads = ManualThreads(time: time)
    }

    /// Errors are reported as one, with the seed's trace.
    func run() throws {
        defer { abandon() }
        do {
            try play()
        } catch {
            throw Breach(
                description: "\(disk.neutral("\(error)"))\n" + trace.suffix(40).joined(separator: "\n")
                    + "\nlast calls:\n" + disk.calls(last: 40).joined(separator: "\n"))
        }
    }

    func play() throws {
        try restart(after: "nothing")
        beginWeather()
        for _ in 0..<random.from(3...8) {
            for _ in 0..<random.from(1...40) where !disk.hasStopped { try step() }
            try die()
            if isOver { return }
        }
        try end()
    }

    /// After a marked loss nothing can be said, and after reported damage there is nothing more to see.
    var isOver: Bool { disk.isLossAllowed || isDamageReported }

    // MARK: Faults

    func beginWeather() {
        switch weather {
        case .calm: disk.faults.shortReads = 0.02
        case .errors:
            disk.faults.shortWrites = 0.02
            disk.faults.failedReads = 0.001
            disk.faults.failedWrites = 0.02
        case .failedSyncs: disk.faults.failedSyncs = 0.05
        case .full: disk.faults.noSpace = random.chance(30) ? 0.01 : 0
        case .lies: disk.faults.lyingSyncs = 0.1
        case .damage: break
        }
    }

    func endWeather() {
        disk.faults = DiskFaults()
        disk.endStrikes()
        disk.capacityBytes = 256 << 20
    }

    // MARK: Lives

    func die() throws {
        let isStopped = disk.hasStopped
        if weather == .damage, random.chance(60) { return try damageAndDie() }
        switch random.from(0...9) {
        case 0 where !isStopped:
            outbox?.close()
            abandon()
            disk.kill()
            try restart(after: "a stop")
        case 0..<4:
            abandon()
            disk.kill()
            try restart(after: "a kill")
        default:
            abandon()
            disk.powerCut()
            try restart(after: "a power cut", isDurable: true)
        }
    }

    /// The last commit before a power cut, if damaged, looks like one that was not finished. So a bit of the log flips
    /// before a kill only: then the index of the log, in shared memory, tells how long it was. Not in the middle of a call,
    /// either: it may be the one with which the log begins again, and the index is of the new log then.
    func damageAndDie() throws {
        let isInLog = random.chance(50) && !disk.hasStopped
        abandon()
        if let place = disk.flipBit(in: isInLog ? "store.sqlite-wal" : "store.sqlite") {
            trace.append("a bit flips: \(place)")
            isLogDamaged = isInLog
        }
        if isInLog || random.chance(50) { disk.kill() } else { disk.powerCut() }
        try restart(after: "damage")
    }

    func abandon() {
        threads.abandon()
        (outbox, queue, listener, claims) = (nil, nil, nil, [])
    }

    func restart(after death: String, isDurable: Bool = false) throws {
        restarts += 1
        trace.append("starts after \(death)")
        var isDurable = isDurable
        for attempt in 1... {
            threads = ManualThreads(time: time)
            do {
                try open()
                if disk.hasStopped { throw StoreError.closed }
                break
            } catch let error as StoreError {
                if try isExplained(error, attempt: attempt) { return }
                abandon()
                // Dies once more, on the way.
                if isLogDamaged || (disk.hasStopped && random.chance(50)) {
                    disk.kill()
                } else if disk.hasStopped || random.chance(20) {
                    disk.powerCut()
                    isDurable = true
                } else {
                    disk.kill()
                }
                if attempt > 2 { endWeather() }
            }
        }
        isLogDamaged = false
        try compare(isDurable: isDurable)
    }

    func open() throws {
        let options = OutboxOptions(path: disk.path("store.sqlite"))
        let outbox = try Outbox(
            options, time: time, threads: threads, metrics: Metrics(),
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        self.outbox = outbox
        queue = try outbox.adopt(outbox.register(PlainUpstream(), type: "plain", cap: QueueCap()))
        let target = try outbox.register(PlainUpstream("listener"), type: "plain", cap: QueueCap())
        listener = try outbox.adopt(target)
        outbox.setCallbacks([
            Callback(to: target, as: "thing", of: Self.reported, in: nil, includesPayload: false) { messages in
                messages.map { Callback.Event(Array("{\"is\":\"\($0.state)\"}".utf8), lane: .none) }
            }
        ])
    }

    // MARK: The end

    /// The disk is sound again: the store has to recover by itself, deliver everything, and keep it.
    func end() throws {
        if disk.hasStopped { try die() }
        endWeather()
        threads.advance(by: .seconds(10))
        if isOver { return }
        if let failure = outbox?.failure {
            guard disk.isDamageMarked else { throw failure }
            isDamageReported = true
            return
        }
        let before = accepted
        append()
        threads.turnAll()
        guard accepted > before || disk.isDamageMarked else { throw Breach(description: "accepts nothing") }
        try drain()
        try compare(isDurable: false)
        abandon()
        disk.powerCut()
        if !isOver { try restart(after: "the end", isDurable: true) }
    }

    func drain() throws {
        guard let outbox, let queue else { return }
        while let claim = claims.popLast() { queue.giveBack(claim, now: time.now) }
        for _ in 0..<200 where outbox.ledger(of: queue.number).queued > 0 && !isDamageReported {
            time.advance(by: .seconds(2))
            try take()
            threads.turnAll()
            while !claims.isEmpty { settle() }
            threads.turnAll()
        }
        guard outbox.ledger(of: queue.number).queued == 0 || disk.isDamageMarked else {
            throw Breach(description: "\(outbox.ledger(of: queue.number).queued) messages stay behind")
        }
    }
}

/// What a trial compares after each start, and which errors of a start it expects.
extension StoreTrial {
    /// Whether the trial ends with this error of a start; throws if it must not be.
    func isExplained(_ error: StoreError, attempt: Int) throws -> Bool {
        trace.append("cannot start: \(disk.neutral("\(error)"))")
        if disk.hasStopped { return false }
        if disk.isLossAllowed { return true }
        switch error {
        case .corrupt, .logDamaged, .foreign, .newer:
            guard disk.isDamageMarked else { throw error }
            isDamageReported = true
            return true
        default:
            guard attempt < 5 else { throw error }
            return false
        }
    }

    /// Compares what is stored with what was promised. Reads may fail as the disk does.
    func compare(isDurable: Bool) throws {
        guard let outbox, let queue, !disk.isLossAllowed else { return }
        let faults = disk.faults
        disk.faults = DiskFaults()
        defer { disk.faults = faults }
        do {
            var findings = try book.findings(in: outbox, of: queue.number, isDurable: isDurable)
            findings += try callbackFindings(in: outbox, of: queue.number)
            findings += try outbox.audit().accounts.flatMap(\.findings)
            let integrity = try outbox.read { try $0.value("PRAGMA integrity_check(1)", as: String.self) }
            if integrity != "ok" { findings.append(integrity ?? "no integrity_check") }
            guard !findings.isEmpty else { return }
            // The audit, `integrity_check` and the checksum that a claim compares report the damage, too.
            if disk.isDamageMarked, try integrity != "ok" || !outbox.audit().isBalanced || hasDamagedPayload() {
                isDamageReported = true
                return
            }
            throw Breach(description: findings.joined(separator: "\n"))
        } catch let error as StoreError where disk.isDamageMarked {
            trace.append("damage is reported: \(disk.neutral("\(error)"))")
            isDamageReported = true
        }
    }

    /// Each settled message has exactly one event, and no other message has any.
    private func callbackFindings(in outbox: Outbox, of number: UpstreamNumber) throws -> [String] {
        guard let listener else { return [] }
        return try outbox.read { sql in
            var events: [String: Int] = [:]
            let keys: [String] =
                try sql.all("SELECT key FROM queued_#", of: listener.number) { $0[0] }
                + sql.all("SELECT key FROM ended_#", of: listener.number) { $0[0] }
            for key in keys { events[key, default: 0] += 1 }
            var states: [MessageID: MessageState] = [:]
            try sql.each("SELECT id FROM queued_#", of: number) { states[$0[0]] = .queued }
            try sql.each("SELECT id FROM received_#", of: number) { states[$0[0]] = .delivered }
            try sql.each("SELECT id, state FROM ended_#", of: number) { states[$0[0]] = $0[1] as MessageState }
            return states.sorted { $0.key < $1.key }.compactMap { id, state in
                let count = events[id.description, default: 0]
                let isRight = count == (Self.reported.contains(state) ? 1 : 0)
                return isRight ? nil : "\(id) is \(state), and has \(count) events"
            }
        }
    }

    func hasDamagedPayload() throws -> Bool {
        guard let outbox, let queue else { return false }
        return try outbox.read { sql in
            try sql.all("SELECT checksum, payload FROM queued_#", of: queue.number) {
                $0.isWhole(payload: 1, checksum: 0)
            }.contains(false)
        }
    }
}

extension SplitMix64 {
    mutating func from(_ range: ClosedRange<Int>) -> Int { Int.random(in: range, using: &self) }
    mutating func chance(_ percent: Int) -> Bool { below(100) < percent }
    mutating func pick<Element>(_ list: [Element]) -> Element? { list.isEmpty ? nil : list[below(list.count)] }
}
