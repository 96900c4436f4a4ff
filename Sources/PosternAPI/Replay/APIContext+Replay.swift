import Logging
import PosternCore
import PosternDelivery
import PosternEvents
import PosternMetrics
import PosternStore
import PosternThreads
import PosternUpstream
import Synchronization

// Replays go on in steps, each a commit of its own. What one is about, and how far it is, is stored; in memory there is only
// that it goes on.
extension APIContext {
    /// The most messages of a replay that are queued, unless requests are large.
    private static let window = 100
    /// The most of one step, which is one commit: the messages, and their bytes unless it is one message. Few, so that a
    /// message of a caller that arrives meanwhile is committed as soon as without a replay.
    private static let step = (messages: 10, bytes: 1 << 18)
    /// The times between two steps, so that the writer and the upstream are there for others: if nothing else was accepted
    /// since the last one, if something was, and after there was no room, the upstream was down, or the store has failed.
    private static let pauses = (
        usual: Duration.milliseconds(10), besidesOthers: Duration.milliseconds(50), recovery: Duration.seconds(1)
    )

    /// Goes on with the replays that earlier runs have left. Call it once, when the workers have started.
    public func resumeReplays() {
        readers.run { [weak self] in
            guard let self else { return }
            do throws(StoreError) {
                for replay in try outbox.replays(atMost: ReplayHandler.maxRunning) where replay.isRunning {
                    goOn(replaying: replay.id)
                }
            } catch {
                timer.run(after: Self.pauses.recovery) { [weak self] in self?.resumeReplays() }
            }
        }
    }

    /// Carries out a stored replay, unless that is being done.
    func goOn(replaying id: String) {
        let isNew = replays.withLock { replays in
            defer { replays[id] = replays[id] ?? outbox.accepted }
            return replays[id] == nil
        }
        if isNew { nextStep(of: id) }
    }

    private func nextStep(of id: String, after pause: Duration = .zero) {
        timer.run(after: outbox.threads.idleTime(pause)) { [weak self] in
            self?.readers.run { [weak self] in self?.step(of: id) }
        }
    }

    /// On a thread that may read.
    private func step(of id: String) {
        guard !isDraining.load(ordering: .acquiring) else { return }
        do throws(StoreError) {
            guard let replay = try outbox.replay(id), replay.isRunning else { return end(id) }
            guard let target = upstream(named: replay.request.to), outbox.failure == nil,
                !target.snapshot(in: self).isPaused
            else { return nextStep(of: id, after: Self.pauses.recovery) }
            guard let step = try step(of: replay, to: target) else {
                return nextStep(of: id, after: pause(of: id, after: 0))
            }
            outbox.advance(id, step, into: target.queue) { [weak self] in self?.stepEnded(of: replay, $0) }
        } catch {
            nextStep(of: id, after: Self.pauses.recovery)
        }
    }

    private func end(_ id: String) { _ = replays.withLock { $0.removeValue(forKey: id) } }

    /// The time until the next step, after one that has queued this many messages.
    private func pause(of id: String, after queued: Int) -> Duration {
        let accepted = outbox.accepted
        let former = replays.withLock { $0.updateValue(accepted, forKey: id) } ?? accepted
        return accepted - former > queued ? Self.pauses.besidesOthers : Self.pauses.usual
    }

    /// On the writer's thread.
    private func stepEnded(of former: Replay, _ result: Result<Replay.Progress?, StoreError>) {
        guard case .success(let progress?) = result else {
            return nextStep(of: former.id, after: Self.pauses.recovery)
        }
        let replay = progress.replay
        count(progress, since: former)
        guard !replay.isRunning else {
            return nextStep(of: replay.id, after: pause(of: replay.id, after: replay.done - former.done))
        }
        end(replay.id)
        if !replay.isStopped { tell(finished: replay) }
    }

    /// Call it once for each replay.
    func tell(finished replay: Replay) {
        outbox.events.record(
            Event(
                .operationFinished, UpstreamName(stored: replay.request.upstream), count: replay.done, by: replay.by,
                operation: replay.id), isOrdered: true)
        logger.notice(
            "operation finished",
            metadata: [
                "operation": "\(replay.id)", "action": "replay", "done": .stringConvertible(replay.done),
                "skipped": .stringConvertible(replay.refused + replay.withoutPayload),
                "stopped": .stringConvertible(replay.isStopped), "error": "none",
            ])
    }

    private func count(_ progress: Replay.Progress, since former: Replay) {
        let (replay, to) = (progress.replay, progress.replay.request.to)
        metrics.replayed(to, "replayed").add(replay.done - former.done)
        metrics.replayed(to, "refused").add(replay.refused - former.refused)
        metrics.replayed(to, "withoutPayload").add(replay.withoutPayload - former.withoutPayload)
        for kind in progress.kinds { metrics.accepted(to, "\(kind)").add() }
    }

    // MARK: One step

    /// The next messages; nil while as many of the replay are queued as may be. So a message of a caller waits for few others,
    /// and the rate of the upstream is that of the replay.
    private func step(of replay: Replay, to target: ConfiguredUpstream) throws(StoreError) -> Replay.Step? {
        let window = window(of: target)
        let queued = try outbox.queued(of: replay.id, to: target.queue.number, atMost: window)
        guard 2 * queued <= window else { return nil }
        let page = try outbox.page(
            of: replay, after: replay.cursor, limit: min(window - queued, Self.step.messages), maxBytes: Self.step.bytes
        )
        var step = Replay.Step(from: replay.cursor, next: page.next)
        for (record, payload) in page.messages {
            switch payload {
            case .missing: step.withoutPayload += 1
            case .damaged:
                step.refused.append(
                    .init(record.id, "the stored payload is not what was accepted: its checksum differs"))
            case .kept(let bytes):
                do throws(InvalidPayload) {
                    step.messages.append((record.id, try message(record, bytes, to: target)))
                } catch {
                    let words = error.faults.kept.prefix(1).flatMap { [$0.pointer, $0.detail] }
                    step.refused.append(.init(record.id, words.filter { !$0.isEmpty }.joined(separator: " ")))
                }
            }
        }
        return step
    }

    /// Two requests' worth, and not more than the upstream may get in a second. While it does not work, one message, so that
    /// there is something to find out with whether it does.
    private func window(of target: ConfiguredUpstream) -> Int {
        let (snapshot, perRequest) = (target.snapshot(in: self), target.queue.limits.maxMessages)
        guard [.up, .degraded].contains(snapshot.health) else { return 1 }
        let most = Double(max(Self.window, 2 * perRequest))
        let rates = [snapshot.messageLimit, snapshot.rateLimit.map { $0 * Double(perRequest) }].compactMap(\.self)
        return max(1, Int(min(most, rates.min() ?? most)))
    }

    /// Has the upstream validate a payload, as that of a caller.
    private func message(
        _ record: MessageRecord, _ payload: [UInt8], to target: ConfiguredUpstream
    ) throws(InvalidPayload) -> NewMessage {
        guard let kind = target.endpoint(record.kind.description) else {
            throw InvalidPayload([PayloadError("", "\(target.name) has no kind \(record.kind)")])
        }
        guard target.queue.hasRoomForReplay(of: 1, bytes: payload.count, besides: .empty) else {
            throw InvalidPayload([PayloadError("", "is larger than the queue of \(target.name) may be")])
        }
        let now = time.now
        let (valid, turn) = try JSONParser.ofThisThread.parse(payload) { (root) throws(InvalidPayload) in
            let valid = try target.adapter.validate(
                root, of: kind.kind, in: ValidationContext(acceptedAt: now, maxFaults: 1, random: random))
            return (valid, target.fairness?.turn(ofCaller: nil, key: record.key, payload: root) ?? 0)
        }.mapError { InvalidPayload([PayloadError("", $0.description(in: payload))]) }.get()
        return NewMessage(
            queue: target.queue, kind: kind.kind, lane: valid.lane, key: record.key, acceptedAt: now,
            expiresAt: valid.expiresAt, bytes: valid.rewritten ?? payload, waitsFor: valid.waitsFor,
            credential: valid.credential, turn: turn, isFromSDK: record.isFromSDK)
    }
}
