import PosternCore
import PosternSimulatedDisk
import PosternTestKit
import PosternUpstream

@testable import PosternStore

/// The operations of a trial.
extension StoreTrial {
    func step() throws {
        if random.chance(3), plan == nil { disk.strike(.stop, on: nil, after: random.below(60)) }
        if weather == .full, random.chance(5) { changeRoom() }
        switch random.below(100) {
        case 0..<40: append()
        case 40..<60: try take()
        case 60..<80: settle()
        case 80..<84: cancel()
        case 84..<86: purge()
        case 86..<92: time.advance(by: .milliseconds(random.below(3000)))
        case 92..<95: try workDuringARead()
        case 95: try backUp()
        case 96: retry()
        case 97 where plan != nil: try reload()
        case 98... where plan != nil: try backUp()
        default: break
        }
        if random.chance(70) { threads.turnAll() }
    }

    /// What a checkpoint moves meanwhile is not all of the log.
    func workDuringARead() throws {
        guard !isReading else { return }
        isReading = true
        defer { isReading = false }
        var breach: (any Error)?
        do {
            try StoreView(path: disk.path("store.sqlite")).read { _ in
                do {
                    for _ in 0..<random.from(1...40) where !disk.hasStopped { try step() }
                } catch {
                    breach = error
                }
            }
        } catch {
            trace.append("cannot read: \(disk.neutral("\(error)"))")
        }
        if let breach { throw breach }
    }

    /// A backup that says it is complete has everything that was queued.
    func backUp() throws {
        threads.turnAll()
        guard !disk.hasStopped, !isReading else { return }
        let queued = book.ids(in: .stored(.queued)).count
        backups += 1
        let name = "backup-\(backups).sqlite"
        let path = disk.path(name)
        do {
            _ = try StoreBackup(bytesPerSecond: 0).run(of: disk.path("store.sqlite"), to: path)
            let found = try StoreVerification.run(path)
            guard !disk.isDamageMarked, !disk.isLossAllowed, !disk.hasStopped else { return }
            guard found.isSound, found.payloads >= queued else {
                throw Breach(description: "a backup has \(found.payloads) payloads of \(queued): \(found.findings)")
            }
            if plan != nil { backup = (name, book) }
        } catch let error as StoreError {
            trace.append("no backup: \(disk.neutral("\(error)"))")
        }
    }

    func changeRoom() {
        disk.capacityBytes = random.chance(50) ? 256 << 20 : disk.usedBytes + random.below(3 << 20)
        trace.append("\((disk.capacityBytes - disk.usedBytes) >> 10) KiB are free")
    }

    func append() {
        guard let outbox, let queue else { return }
        let isLong = random.chance(weather == .full ? 30 : 3)
        let new = (0..<random.from(1...6)).map { _ in book.add(length: random.below(isLong ? 60_000 : 1500)) }
        let messages = new.map {
            NewMessage(
                queue: queue.target, kind: "thing", lane: .digest(Int64(random.below(5))), acceptedAt: time.now,
                bytes: Array($0.text.utf8))
        }
        outbox.append(messages) { [unowned self] result in
            guard !disk.hasStopped else { return }
            switch result {
            case .success(let receipt):
                accepted += receipt.ids.count
                for (new, id) in zip(new, receipt.ids) {
                    book.accepted(new.number, as: id)
                    if !assigned.insert(id).inserted { assignedTwice.append(id) }
                }
            case .failure(.store(.unknown)): trace.append("unknown: \(new.map(\.number))")
            case .failure(let refusal):
                trace.append("refused: \(new.map(\.number)) \(disk.neutral("\(refusal)"))")
                new.forEach { book.refused($0.number) }
                refused += new.count
            }
        }
    }

    /// A read that fails is no reason why the next one should.
    func claim(from queue: UpstreamQueue) throws -> Claim {
        let limits = BatchLimits(maxMessages: random.from(1...20), maxBytes: 1 << 20)
        do {
            return try queue.claim(limits, now: time.now, oldest: nil, preferring: .inTurn)
        } catch {
            trace.append("cannot claim: \(disk.neutral("\(error)"))")
            guard !disk.hasStopped else { throw StoreError.closed }
            do {
                return try disk.withoutFaults {
                    try queue.claim(limits, now: time.now, oldest: nil, preferring: .inTurn)
                }
            } catch {
                guard disk.isDamageMarked || disk.isLossAllowed || disk.hasStopped else { throw error }
                throw StoreError(error, path: disk.path("store.sqlite"))
            }
        }
    }

    func take() throws {
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
            repeated += claim.messages.count { !taken.insert($0.id).inserted }
            let batch = outbox.nextBatch()
            outbox.openAttempt(batch, carrying: claim.messages.map(\.id), at: time.now, of: queue) {
                [unowned self] result in
                if case .success = result { claims.append(claim) } else { queue.giveBack(claim, now: time.now) }
            }
        } catch is StoreError {}
    }

    func settle() {
        guard let outbox, let queue, !claims.isEmpty else { return }
        let claim = claims.remove(at: random.below(claims.count))
        let messages = claim.messages
        let ids = messages.map(\.id)
        var settlement = Settlement(batch: outbox.nextBatch(), outcome: .delivered, endedAt: time.now)
        let error = AttemptError(.failing, status: 500, detail: "as the test wants it", at: time.now)
        let retryAt = time.now + .milliseconds(random.below(2000))
        let place: StoreExpectations.Place
        switch random.below(4) {
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
            case (.success, .stored(.queued)):
                taken.subtract(ids)
                queue.sendAgain(messages, from: retryAt)
            case (.success, _): queue.release(messages)
            }
        }
    }

    func done(_ place: StoreExpectations.Place, _ ids: [MessageID], _ result: Result<Void, StoreError>) {
        switch result {
        case .success: book.became(place, ids)
        case .failure(.unknown): trace.append("unknown: \(place) \(ids)")
        case .failure(let error):
            trace.append("not \(place): \(ids) \(disk.neutral("\(error)"))")
            if place != .stored(.queued) { book.isNot(place, ids) }
        }
    }

    func cancel() {
        guard let outbox, let id = random.pick(book.ids(in: .stored(.queued))) else { return }
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

    func retry() {
        guard let outbox, let id = random.pick(book.ids(in: .stored(.failed))) else { return }
        retries[id, default: 0] += 1
        book.mayBe(.stored(.queued), [id])
        outbox.perform(.retry, on: [id]) { [unowned self] result in
            guard !disk.hasStopped else { return }
            switch result {
            case .success(let retried) where retried == [id]: book.became(.stored(.queued), [id])
            case .success: book.isNot(.stored(.queued), [id])
            case .failure(.unknown): trace.append("unknown: retry of \(id)")
            case .failure: book.isNot(.stored(.queued), [id])
            }
        }
    }

    /// Drops the queue and adopts it again, as a reload of the configuration does; later, if the store is not available.
    func reload() throws {
        guard let outbox, let former = queue else { return }
        threads.turnAll()
        guard !disk.hasStopped, !isReading else { return }
        while let claim = claims.popLast() { former.giveBack(claim, now: time.now) }
        outbox.drop(former)
        for attempt in 1... {
            do {
                queue = try outbox.adopt(former.target)
                return
            } catch {
                trace.append("cannot adopt: \(disk.neutral("\(error)"))")
                if disk.hasStopped { return }
                guard attempt < 5 else { throw error }
                if attempt > 2 { endWeather() }
                threads.advance(by: .seconds(10))
            }
        }
    }

    func purge() {
        guard let outbox else { return }
        threads.turnAll()
        guard !disk.hasStopped else { return }
        let ids = book.ids(thatMayBeIn: .stored(.delivered))
        book.mayBe(.nowhere, ids)
        outbox.perform(.purge, on: ids, in: .delivered) { [unowned self] result in
            guard !disk.hasStopped else { return }
            switch result {
            case .success: book.isNot(.stored(.delivered), ids)
            case .failure(let error): done(.nowhere, ids, .failure(error))
            }
        }
    }
}
