import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternDelivery
@testable import PosternStore

/// Operators' requests to the machine.
@Suite struct MachineSteeringTests {
    private func settlement(delivered: [Int], failed: [Int] = []) -> Settlement {
        var model = MachineModel()
        for number in delivered + failed { model.accept(number, lane: Int64(number)) }
        let messages = model.queue.map(\.message)
        var settlement = Settlement(batch: BatchID(rawValue: 1), outcome: .sorted, endedAt: model.now)
        settlement.delivered = Array(messages.prefix(delivered.count))
        settlement.ended = messages.dropFirst(delivered.count).map { .init($0, as: .failed, error: nil) }
        return settlement
    }

    private func reports(_ actions: [DeliveryMachine.Action]) -> [FlushReport] {
        actions.compactMap { if case .finishFlush(let report) = $0 { report } else { nil } }
    }

    @Test func pause_stopsSending_andIsSavedOnce() {
        var model = MachineModel()
        model.accept(1, lane: 1)
        guard case .savePause(true)? = model.machine.pause(Pause()).first else { return #expect(Bool(false)) }
        #expect(!model.machine.isSending)
        #expect(model.machine.pause(Pause()).isEmpty)
        let resumed = model.machine.resume(through: MessageID(rawValue: 0), now: model.now)
        guard case .savePause(false)? = resumed.first, case .wakeHeld? = resumed.last else {
            return #expect(Bool(false))
        }
        #expect(model.machine.isSending)
    }

    @Test func stop_isFinal() {
        var model = MachineModel()
        model.machine.stop()
        _ = model.machine.resume(through: MessageID(rawValue: 0), now: model.now)
        #expect(!model.machine.isSending)
    }

    /// A request to send now ends each wait for a time: a circuit's as well as a token's.
    @Test func resume_probesAnOpenCircuit() {
        var model = MachineModel()
        model.accept(1, lane: 1)
        model.send()
        model.answer(.retry(after: .seconds(60)))
        #expect(!model.machine.maySend(now: model.now))
        _ = model.machine.resume(through: MessageID(rawValue: 0), now: model.now)
        #expect(model.machine.maySend(now: model.now))
    }

    @Test func flush_countsWhatItCovers_andIsOverOnceAtRest() {
        var model = MachineModel()
        let actions = model.machine.flush(through: MachineModel.id(2), now: model.now)
        guard case .saveFlush(let saved) = actions[0], case .makeDue(isFlush: true) = actions[1] else {
            return #expect(Bool(false))
        }
        #expect(saved == MachineModel.id(2))
        _ = model.machine.flush(through: MachineModel.id(4), now: model.now)
        #expect(reports(model.machine.becameIdle()).isEmpty, "none has begun")
        model.machine.flushBegan()
        model.machine.count(settlement(delivered: [1, 3], failed: [2, 4, 5]))
        var over = reports(model.machine.becameIdle())
        #expect(over.map(\.through) == [MachineModel.id(2)])
        #expect(over.map(\.delivered) == [1] && over.map(\.failed) == [1])
        model.machine.flushBegan()
        model.machine.beganUnsent()
        #expect(reports(model.machine.becameIdle()).isEmpty, "a result is not on disk yet")
        model.machine.ended()
        over = reports(model.machine.becameIdle())
        #expect(over.map(\.delivered) == [2] && over.map(\.failed) == [2])
        #expect(reports(model.machine.becameIdle()).isEmpty)
    }

    /// The reason is that of the oldest message that is still queued.
    @Test func flush_endsWithTheErrorOfWhatCouldNotBeSent() {
        var model = MachineModel()
        let errors = [401, 503].map { (status: Int) in
            AttemptError(.failing, status: status, detail: "", at: model.now)
        }
        func messages(_ numbers: [Int]) -> [Message] {
            numbers.map {
                Message(id: MachineModel.id($0), kind: "thing", lane: .none, acceptedAt: model.now, payload: [])
            }
        }
        for through in [2, 4, 4, 4] { _ = model.machine.flush(through: MachineModel.id(through), now: model.now) }
        func end(settling settled: Settlement? = nil) -> FlushReport? {
            model.machine.flushBegan()
            if let settled { model.machine.count(settled) }
            return reports(model.machine.becameIdle(token: .ok)).first
        }
        model.machine.recordForFlushes(errors[0], of: messages([3, 5]))
        #expect(end()?.error == nil, "the first flush covers none of them")
        model.machine.recordForFlushes(errors[1], of: messages([2, 3]))
        #expect(end()?.error?.status == 503)
        #expect(end(settling: settlement(delivered: [1, 2]))?.error?.status == 401)
        let last = end(settling: settlement(delivered: [1, 2], failed: [3]))
        #expect(last?.error == nil && last?.token == .ok)
    }

    /// A token is fetched without need to verify credentials, and for a flush.
    @Test func token_isChecked_untilOneWasFetched_andByAFlushWithoutOne() {
        var model = MachineModel()
        let token = Token(value: "a", renewAt: model.now + .seconds(50), expiresAt: model.now + .seconds(60))
        func checks(_ verifiesAtStart: Bool) -> Bool {
            model.machine.checksToken(verifiesAtStart: verifiesAtStart, now: model.now)
        }
        #expect(checks(true) && !checks(false))
        _ = model.machine.flush(through: MachineModel.id(1), now: model.now)
        #expect(checks(false))
        _ = model.machine.tokenFetched(token, now: model.now)
        #expect(!checks(true) && !checks(false))
        let error = AttemptError(.failing, detail: "", at: model.now)
        _ = model.machine.tokenFailed(error, credentialsRefused: false, retryAfter: nil, random: 1)
        #expect(checks(true) && !checks(false), "a renewal failed")
        _ = model.machine.tokenFetched(token, now: model.now)
        model.now = model.now + .seconds(60)
        #expect(checks(false), "expired: the flush asks for another")
        _ = model.machine.apply(DeliverySettings(), isReplaced: true, now: model.now)
        #expect(checks(true))
    }

    /// A verification does not wait for the circuit, but for its own backoff.
    @Test func verification_hasABackoffOfItsOwn() {
        var model = MachineModel()
        model.accept(1, lane: 1)
        model.send()
        model.answer(.retry(after: .seconds(600)))
        func fetch(isCheck: Bool, after seconds: Int64) -> Int? {
            model.machine.fetchToken(isCheck: isCheck, now: model.now + .seconds(seconds))
        }
        let (ordinary, check) = (fetch(isCheck: false, after: 0), fetch(isCheck: true, after: 0))
        #expect(ordinary == nil && check == 1)
        let hasEnded = model.machine.tokens.fetchEnded(1)
        #expect(hasEnded)
        let error = AttemptError(.failing, detail: "", at: model.now)
        _ = model.machine.tokenFailed(
            error, credentialsRefused: true, retryAfter: nil, holdsMessages: false, random: 0)
        let (early, due) = (fetch(isCheck: true, after: 149), fetch(isCheck: true, after: 150))
        #expect(early == nil && due == 2)
    }

    /// For the log: the first failure, the first of a class, and the first that holds messages.
    @Test func tokenFailure_isNew_whenItsClassChanges_orMessagesWait() {
        var model = MachineModel()
        func isNew(refused: Bool, holds: Bool) -> Bool? {
            let error = AttemptError(.failing, detail: "", at: model.now)
            let actions = model.machine.tokenFailed(
                error, credentialsRefused: refused, retryAfter: nil, holdsMessages: holds, random: 1)
            guard case .notify(.tokenFailed(let failure))? = actions.first else { return nil }
            return failure.isNew
        }
        let failures = [(true, false), (true, false), (true, true), (true, true), (false, true), (false, false)]
        let areNew = failures.map { isNew(refused: $0.0, holds: $0.1) }
        #expect(areNew == [true, false, true, false, true, false])
    }

    @Test func flushMark_neverGoesBack() {
        var model = MachineModel()
        _ = model.machine.flush(through: MachineModel.id(9), now: model.now)
        _ = model.machine.flush(through: MachineModel.id(3), now: model.now)
        #expect(model.machine.flushedThrough == MachineModel.id(9))
    }

    @Test func clockSetBack_endsEveryWait() {
        var model = MachineModel()
        guard case .makeDue(isFlush: false)? = model.machine.clockSetBack(now: model.now).first else {
            return #expect(Bool(false))
        }
    }

    /// Evidence that an upstream works lasts 30 s. After the clock was set back by an hour, it would last that long.
    @Test(arguments: [(0, true), (30, true), (31, false), (-1, true), (-3600, false)])
    func failureOfOneEndpoint_concernsItAlone_whileAnotherHasJustSucceeded(seconds: Int64, isAlone: Bool) {
        var health = UpstreamHealth(upstream: Circuit(most: 2))
        let success = Timestamp(milliseconds: 10_000_000)
        _ = health.succeeded(at: "a", now: success)
        let now = success + .seconds(seconds)
        health.sent(to: "b", now: now)
        let scope = health.failed(
            at: "b", by: MachineModel.id(1), retryAt: now + .seconds(5), atOnce: true, now: now)
        #expect(scope == (isAlone ? .endpoint : .upstream))
    }

    /// Other limits alone do not end a wait; other credentials do, and so does anything while credentials are refused.
    @Test(arguments: [(false, false, false), (true, false, true), (false, true, true)])
    func newSettings_probe_ifTheyReplaceCredentials(isReplaced: Bool, isHeld: Bool, probes: Bool) {
        var model = MachineModel()
        model.accept(1, lane: 1)
        model.send()
        model.answer(isHeld ? .holdUpstream(.credentials, detail: "no") : .retry(after: .seconds(60)))
        _ = model.machine.apply(.with { $0.maxInFlight = 7 }, isReplaced: isReplaced, now: model.now)
        #expect(model.machine.health.most == 7)
        #expect(model.machine.maySend(now: model.now) == probes)
    }
}
