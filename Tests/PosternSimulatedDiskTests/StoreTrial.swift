import Logging
import PosternCore
import PosternMetrics
import PosternSimulatedDisk
import PosternTestKit
import Testing

@testable import PosternStore

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
    private let weather: Weather
    private let time = ManualTime()
    private var threads: ManualThreads
    private var outbox: Outbox?
    private var queue: UpstreamQueue?
    private let book = StoreBook()
    private var dice: Dice
    private var claims: [Claim] = []
    /// What happened, for the report of a failure.
    private(set) var story: [String] = []
    private(set) var restarts = 0
    private(set) var accepted = 0
    private(set) var isDamageReported = false

    init(seed: UInt64, _ weather: Weather) {
        self.weather = weather
        dice = Dice(seed)
        disk = SimulatedDisk(seed: seed)
        threads = ManualThreads(time: time)
    }

    /// Errors are reported as one, with the seed's story.
    func run() throws {
        defer { abandon() }
        do {
            try play()
        } catch {
            throw Breach(
                description: "\(disk.neutral("\(error)"))\n" + story.suffix(40).joined(separator: "\n")
                    + "\nlast calls:\n" + disk.calls(last: 40).joined(separator: "\n"))
        }
    }

    private func play() throws {
        try restart(after: "nothing")
        beginWeather()
        for _ in 0..<dice.from(3...8) {
            for _ in 0..<dice.from(1...40) where !disk.hasStopped { try step() }
            try die()
            if isOver { return }
        }
        try end()
    }

    /// After a marked loss nothing can be said, and after reported damage there is nothing more to see.
    private var isOver: Bool { disk.isLossAllowed || isDamageReported }

    // MARK: Faults

    private func beginWeather() {
        switch weather {
        case .calm: disk.faults.shortReads = 0.02
        case .errors:
            disk.faults.shortWrites = 0.02
            disk.faults.failedReads = 0.001
            disk.faults.failedWrites = 0.02
        case .failedSyncs: disk.faults.failedSyncs = 0.05
        case .full: disk.faults.noSpace = dice.chance(30) ? 0.01 : 0
        case .lies: disk.faults.lyingSyncs = 0.1
        case .damage: break
        }
    }

    private func endWeather() {
        disk.faults = DiskFaults()
        disk.endStrikes()
        disk.capacityBytes = 256 << 20
    }

    // MARK: Lives

    private func die() throws {
        let isStopped = disk.hasStopped
        if weather == .damage, dice.chance(60) { return try damageAndDie() }
        switch dice.from(0...9) {
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
    /// before a kill only: then the index of the log, in shared memory, tells how long it was.
    private func damageAndDie() throws {
        let isInLog = dice.chance(50)
        abandon()
        if let place = disk.flipBit(in: isInLog ? "store.sqlite-wal" : "store.sqlite") {
            story.append("a bit flips: \(place)")
        }
        if isInLog || dice.chance(50) { disk.kill() } else { disk.powerCut() }
        try restart(after: "damage")
    }

    private func abandon() {
        threads.abandon()
        (outbox, queue, claims) = (nil, nil, [])
    }

    private func restart(after death: String, isDurable: Bool = false) throws {
        restarts += 1
        story.append("starts after \(death)")
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
                if disk.hasStopped, dice.chance(50) {
                    disk.kill()
                } else if disk.hasStopped || dice.chance(20) {
                    disk.powerCut()
                    isDurable = true
                } else {
                    disk.kill()
                }
                if attempt > 2 { endWeather() }
            }
        }
        try compare(isDurable: isDurable)
    }

    /// Whether the trial ends with this error of a start; throws if it must not be.
    private func isExplained(_ error: StoreError, attempt: Int) throws -> Bool {
        story.append("cannot start: \(disk.neutral("\(error)"))")
        if disk.hasStopped { return false }
        if disk.isLossAllowed { return true }
        switch error {
        // What cannot be read twice counts as damaged.
        case .corrupt where disk.calls(last: 256).contains { $0.hasPrefix("read") && $0.hasSuffix("EIO") }:
            return false
        case .corrupt, .logDamaged, .foreign, .newer:
            guard disk.isDamageMarked else { throw error }
            isDamageReported = true
            return true
        default:
            guard attempt < 5 else { throw error }
            return false
        }
    }

    private func open() throws {
        let options = OutboxOptions(path: disk.path("store.sqlite"))
        let outbox = try Outbox(
            options, time: time, threads: threads, metrics: Metrics(),
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        self.outbox = outbox
        queue = try outbox.register(PlainUpstream(), type: "plain", cap: QueueCap())
    }

    // MARK: Checks

    /// Compares what is stored with what was promised. Reads may fail as the disk does.
    private func compare(isDurable: Bool) throws {
        guard let outbox, let queue, !disk.isLossAllowed else { return }
        let faults = disk.faults
        disk.faults = DiskFaults()
        defer { disk.faults = faults }
        do {
            var findings = try book.findings(in: outbox, of: queue.number, isDurable: isDurable)
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
            story.append("damage is reported: \(disk.neutral("\(error)"))")
            isDamageReported = true
        }
    }

    private func hasDamagedPayload() throws -> Bool {
        guard let outbox, let queue else { return false }
        return try outbox.read { sql in
            try sql.all("SELECT checksum, payload FROM queue_#", of: queue.number) {
                $0.isWhole(payload: 1, checksum: 0)
            }.contains(false)
        }
    }

    // MARK: Work

    private func step() throws {
        if dice.chance(3) { disk.strike(.stop, on: nil, after: dice.below(60)) }
        if weather == .full, dice.chance(5) { changeRoom() }
        switch dice.below(100) {
        case 0..<40: append()
        case 40..<60: try take()
        case 60..<80: settle()
        case 80..<84: cancel()
        case 84..<86: purge()
        case 86..<92: time.advance(by: .milliseconds(dice.below(3000)))
        default: break
        }
        if dice.chance(70) { threads.turnAll() }
    }

    private func changeRoom() {
        disk.capacityBytes = dice.chance(50) ? 256 << 20 : disk.usedBytes + dice.below(3 << 20)
        story.append("\((disk.capacityBytes - disk.usedBytes) >> 10) KiB are free")
    }

    private func append() {
        guard let outbox, let queue else { return }
        let isLong = dice.chance(weather == .full ? 30 : 3)
        let new = (0..<dice.from(1...6)).map { _ in book.add(length: dice.below(isLong ? 60_000 : 1500)) }
        let messages = new.map {
            NewMessage(
                queue: queue, kind: "thing", lane: .digest(Int64(dice.below(5))), acceptedAt: time.now,
                bytes: Array($0.text.utf8))
        }
        outbox.append(messages) { [unowned self] result in
            guard !disk.hasStopped else { return }
            switch result {
            case .success(let receipt):
                accepted += receipt.ids.count
                for (new, id) in zip(new, receipt.ids) { book.accepted(new.number, as: id) }
            case .failure(.store(.unknown)): story.append("unknown: \(new.map(\.number))")
            case .failure(let refusal):
                story.append("refused: \(new.map(\.number)) \(disk.neutral("\(refusal)"))")
                new.forEach { book.refused($0.number) }
            }
        }
    }

    /// A read that fails is no reason why the next one should.
    private func claim(from queue: UpstreamQueue) throws -> Claim {
        let limits = BatchLimits(maxMessages: dice.from(1...20), maxBytes: 1 << 20)
        do {
            return try queue.claim(limits, now: time.now, oldest: nil, preferring: .inTurn)
        } catch {
            story.append("cannot claim: \(disk.neutral("\(error)"))")
            guard !disk.hasStopped else { throw StoreError.closed }
            let faults = disk.faults
            disk.faults = DiskFaults()
            defer { disk.faults = faults }
            do {
                return try queue.claim(limits, now: time.now, oldest: nil, preferring: .inTurn)
            } catch {
                guard disk.isDamageMarked || disk.isLossAllowed || disk.hasStopped else { throw error }
                throw StoreError(error, path: disk.path("store.sqlite"))
            }
        }
    }

    private func take() throws {
        guard let queue, let outbox else { return }
        do {
            let claim = try claim(from: queue)
            for message in claim.messages where !book.isExpected(message) && !disk.isLossAllowed {
                throw Breach(description: "claimed \(message.id), which was not accepted with this payload")
            }
            if !claim.expired.isEmpty {
                guard disk.isDamageMarked || disk.isLossAllowed else {
                    throw Breach(description: "claimed damaged messages")
                }
                isDamageReported = true
            }
            guard !claim.messages.isEmpty else { return }
            let batch = outbox.nextBatch()
            outbox.openAttempt(batch, carrying: claim.messages.map(\.id), at: time.now, of: queue) {
                [unowned self] result in
                if case .success = result { claims.append(claim) } else { queue.giveBack(claim, now: time.now) }
            }
        } catch is StoreError {}
    }

    private func settle() {
        guard let outbox, let queue, !claims.isEmpty else { return }
        let claim = claims.remove(at: dice.below(claims.count))
        let messages = claim.messages
        let ids = messages.map(\.id)
        var settlement = Settlement(batch: outbox.nextBatch(), outcome: .delivered, endedAt: time.now)
        let error = AttemptError(.failing, status: 500, detail: "as the test wants it", at: time.now)
        let retryAt = time.now + .milliseconds(dice.below(2000))
        let place: StoreBook.Place
        switch dice.below(4) {
        case 0:
            settlement.ended = messages.map { .init($0, as: .failed, error: error) }
            place = .stored(.failed)
        case 1:
            settlement.waiting = .init(messages, nextAttemptAt: retryAt, counts: true, error: error)
            place = .stored(.queued)
        default:
            settlement.delivered = messages
            place = .stored(.delivered)
        }
        book.mayBe(place, ids)
        outbox.settle(settlement, of: queue) { _ in
            []
        } completion: { [unowned self] result in
            guard !disk.hasStopped else { return }
            done(place, ids, result.map { _ in })
            switch (result, place) {
            case (.failure, _): queue.giveBack(claim, now: time.now)
            case (.success, .stored(.queued)): queue.sendAgain(messages, from: retryAt)
            case (.success, _): queue.release(messages)
            }
        }
    }

    private func done(_ place: StoreBook.Place, _ ids: [MessageID], _ result: Result<Void, StoreError>) {
        switch result {
        case .success: book.became(place, ids)
        case .failure(.unknown): story.append("unknown: \(place) \(ids)")
        case .failure(let error):
            story.append("not \(place): \(ids) \(disk.neutral("\(error)"))")
            if place != .stored(.queued) { book.isNot(place, ids) }
        }
    }

    private func cancel() {
        guard let outbox, let id = dice.pick(book.ids(in: .stored(.queued))) else { return }
        book.mayBe(.stored(.cancelled), [id])
        outbox.cancel([id]) { [unowned self] result in
            guard !disk.hasStopped else { return }
            switch result {
            case .success(let cancelled) where cancelled == [id]: book.became(.stored(.cancelled), [id])
            case .success: book.isNot(.stored(.cancelled), [id])
            case .failure(let error): done(.stored(.cancelled), [id], .failure(error))
            }
        }
    }

    private func purge() {
        guard let outbox, let queue else { return }
        threads.turnAll()
        guard !disk.hasStopped else { return }
        let ids = book.ids(in: .stored(.delivered))
        book.mayBe(.nowhere, ids)
        outbox.purge(.init(.delivered, of: queue.number)) { [unowned self] result in
            guard !disk.hasStopped else { return }
            done(.nowhere, ids, result.map { _ in })
        }
    }

    // MARK: The end

    /// The disk is sound again: the store has to recover by itself, deliver everything, and keep it.
    private func end() throws {
        if disk.hasStopped { try die() }
        endWeather()
        threads.advance(by: .seconds(10))
        if isOver { return }
        if let trouble = outbox?.trouble {
            guard disk.isDamageMarked else { throw trouble }
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

    private func drain() throws {
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

/// SplitMix64 (https://prng.di.unimi.it/splitmix64.c): the same numbers for the same seed.
struct Dice: RandomNumberGenerator {
    private var state: UInt64
    init(_ seed: UInt64) { state = seed &* 0x9E37_79B9_7F4A_7C15 }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }

    mutating func below(_ limit: Int) -> Int { Int.random(in: 0..<limit, using: &self) }
    mutating func from(_ range: ClosedRange<Int>) -> Int { Int.random(in: range, using: &self) }
    mutating func chance(_ percent: Int) -> Bool { below(100) < percent }
    mutating func pick<Element>(_ list: [Element]) -> Element? { list.isEmpty ? nil : list[below(list.count)] }
}
