import Logging
import PosternCore
import PosternEvents
import PosternMetrics
package import PosternSimulatedDisk
import PosternTestKit

@testable import PosternStore

/// A store on a disk that fails: random work, deaths at any moment, and after each restart a comparison with what was
/// promised.
package final class StoreTrial: @unchecked Sendable {
    // @unchecked: one thread does everything.
    /// What the disk does to the store, apart from dying.
    package enum Weather: String, CaseIterable {
        case calm, errors, failedSyncs, full, lies, damage
    }

    /// Something that must not be. Ends the trial.
    package struct Breach: Error, CustomStringConvertible { package let description: String }

    package let disk: SimulatedDisk
    let weather: Weather
    /// What strikes. Nil if that is left to chance, as is when the process dies.
    let plan: [PlannedFault]?
    let time = ManualTime()
    var threads: ManualThreads
    var outbox: Outbox?
    var queue: UpstreamQueue?
    /// Gets an event for each message that settles in one of these states.
    var listener: UpstreamQueue?
    static let reported: Set<MessageState> = [.delivered, .failed, .dropped]
    var book = StoreExpectations()
    /// The last complete backup, and what was promised when it was made.
    var backup: (name: String, book: StoreExpectations)?
    var backups = 0
    /// How often each message was to be retried by an operator. Each time it may settle once more.
    var retries: [MessageID: Int] = [:]
    /// All ids that the store has assigned, also those of messages that a restored backup does not have.
    var assigned: Set<MessageID> = []
    var assignedTwice: [MessageID] = []
    /// Whether the store has the format of a release without blocks until it stops for the first time.
    private var isFormer = false
    var random: SplitMix64
    /// A read holds up checkpoints.
    var isReading = false
    var claims: [Claim] = []
    /// What happened, for the report of a failure.
    var trace: [String] = []
    package private(set) var restarts = 0
    package var accepted = 0
    var refused = 0
    /// Messages that were taken again, though what they were taken for may have been done.
    var repeated = 0
    var taken: Set<MessageID> = []
    /// How long the starts after deaths took.
    private(set) var recoveries: [Duration] = []
    var isDamageReported = false
    /// A bit of the log has flipped, and no start has read it.
    var isLogDamaged = false

    package init(seed: UInt64, _ weather: Weather) {
        (self.weather, plan) = (weather, nil)
        random = SplitMix64(state: seed)
        disk = SimulatedDisk(seed: seed)
        threads = ManualThreads(time: time)
    }

    /// The story of the seed, in which nothing happens by chance but what is planned.
    init(story seed: UInt64, _ plan: [PlannedFault]) {
        (weather, self.plan) = (.calm, plan)
        random = SplitMix64(state: seed)
        disk = SimulatedDisk(seed: seed)
        threads = ManualThreads(time: time)
        isFormer = random.chance(25)
        for fault in plan { fault.strike(disk) }
    }

    /// Errors are reported as one, with the seed's trace.
    package func run() throws {
        if plan != nil, SimulatedDisk.seesMemory { disk.watchMemory(true) }
        defer {
            abandon()
            disk.watchMemory(false)
        }
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
        let (lives, steps) = plan == nil ? (3...8, 40) : (2...3, 12)
        for _ in 0..<random.from(lives) {
            for _ in 0..<random.from(1...steps) where !disk.hasStopped { try step() }
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
        case .calm: disk.faults.shortReads = plan == nil ? 0.02 : 0
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
        if isStopped, plan != nil { return try restart(after: "the planned death", isDurable: dieAsPlanned()) }
        if isFormer { return try upgrade() }
        if let backup, random.chance(50) { return try restore(backup.name, backup.book) }
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

    /// Ends the process inside a call. Returns whether the power went, too.
    func dieAsPlanned() -> Bool {
        let losesPower = plan?.contains { $0.kind == .powerCut } ?? false
        abandon()
        if losesPower { disk.powerCut() } else { disk.kill() }
        return losesPower
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
            let start = ContinuousClock.now
            do {
                try open()
                if disk.hasStopped { throw StoreError.closed }
                if restarts > 1 { recoveries.append(ContinuousClock.now - start) }
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
        var options = OutboxOptions(path: disk.path("store.sqlite"))
        options.storesBlocks = !isFormer
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

    // MARK: Former stores and backups

    /// Stops, and starts with the present release, which adds what the format of an earlier one does not have.
    private func upgrade() throws {
        outbox?.close()
        abandon()
        isFormer = false
        disk.kill()
        try disk.withoutFaults {
            let sql = SQL(try SQLiteConnection(disk.path("store.sqlite")))
            for number in try sql.all("SELECT number FROM upstreams", read: { $0[0] as UpstreamNumber }) {
                try sql.script(
                    """
                    DROP VIEW queued_#; DROP VIEW received_#; DROP TABLE blocks_#; DROP TABLE receipts_#;
                    ALTER TABLE queue_# DROP COLUMN turn; ALTER TABLE delivered_# DROP COLUMN tried;
                    """, of: number)
            }
            try sql.script(
                """
                ALTER TABLE lanes DROP COLUMN turn;
                DELETE FROM grdb_migrations WHERE identifier IN ('7 blocks', '8 turns', '12 SDKs')
                """)
            try sql.close()
        }
        try restart(after: "an upgrade")
    }

    /// Stops, and puts the backup in the place of the store; again if that fails. Whenever it is interrupted, a start finds the
    /// store as it was or as it was saved, or says that the restore is to be repeated.
    private func restore(_ name: String, _ saved: StoreExpectations) throws {
        outbox?.close()
        abandon()
        if disk.hasStopped { _ = dieAsPlanned() } else { disk.kill() }
        for attempt in 1... {
            time.advance(by: .seconds(1))
            do {
                _ = try StoreRestore.run(disk.path(name), to: disk.path("store.sqlite"), at: time.now)
                if !disk.hasStopped { break }
            } catch {
                trace.append("not restored: \(disk.neutral("\(error)"))")
                guard attempt < 5 else { throw error }
            }
            if disk.hasStopped { _ = dieAsPlanned() }
            if attempt > 2 { endWeather() }
            try disk.withoutFaults { try checkInterruptedRestore(saved) }
            disk.kill()
        }
        book = saved
        disk.kill()
        try restart(after: "a restore", isDurable: true)
    }

    private func checkInterruptedRestore(_ saved: StoreExpectations) throws {
        threads = ManualThreads(time: time)
        defer { abandon() }
        do {
            try open()
        } catch StoreError.corrupt(_, "a restore was interrupted") {
            return
        }
        guard let outbox, let queue else { return }
        let findings = try [book, saved].map { book in
            var book = book
            return try book.findings(in: outbox, of: queue.number, isDurable: false)
        }
        if findings.allSatisfy({ !$0.isEmpty }) {
            throw Breach(description: "neither the former store nor the backup: \(findings)")
        }
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

    /// Compares what is stored with what was promised.
    func compare(isDurable: Bool) throws {
        guard let outbox, let queue, !disk.isLossAllowed else { return }
        do {
            try disk.withoutFaults { try compare(outbox, queue, isDurable: isDurable) }
        } catch let error as StoreError where disk.isDamageMarked {
            trace.append("damage is reported: \(disk.neutral("\(error)"))")
            isDamageReported = true
        }
    }

    private func compare(_ outbox: Outbox, _ queue: UpstreamQueue, isDurable: Bool) throws {
        var findings = try book.findings(in: outbox, of: queue.number, isDurable: isDurable)
        findings += assignedTwice.map { "\($0) was assigned to two messages" }
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
    }

    /// Each settled message has exactly one event, and no other message has any. One that was retried may have one more for
    /// each time.
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
                let expected = Self.reported.contains(state) ? 1 : 0
                let isRight = (expected...expected + retries[id, default: 0]).contains(count)
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
