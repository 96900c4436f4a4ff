import PosternCore
import PosternTestKit
import Testing

@testable import PosternDelivery
@testable import PosternStore

/// What operators ask of the machine.
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
        guard case .savePause(true)? = model.machine.pause().first else { return #expect(Bool(false)) }
        #expect(!model.machine.isSending)
        #expect(model.machine.pause().isEmpty)
        let resumed = model.machine.resume(now: model.now)
        guard case .savePause(false)? = resumed.first, case .wakeHeldLanes? = resumed.last else {
            return #expect(Bool(false))
        }
        #expect(model.machine.isSending)
    }

    @Test func stop_isFinal() {
        var model = MachineModel()
        model.machine.stop()
        _ = model.machine.resume(now: model.now)
        #expect(!model.machine.isSending)
    }

    /// A request to send now ends each wait for a time: a circuit's as well as a token's.
    @Test func resume_probesAnOpenCircuit() {
        var model = MachineModel()
        model.accept(1, lane: 1)
        model.send()
        model.answer(.retry(after: .seconds(60)))
        #expect(!model.machine.maySend(now: model.now))
        _ = model.machine.resume(now: model.now)
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

    /// Other limits alone do not end a wait; other credentials do, and so does anything while credentials are refused.
    @Test(arguments: [(false, false, false), (true, false, true), (false, true, true)])
    func adoption_probes(isReplaced: Bool, isHeld: Bool, probes: Bool) {
        var model = MachineModel()
        model.accept(1, lane: 1)
        model.send()
        model.answer(isHeld ? .holdUpstream(.credentials, detail: "no") : .retry(after: .seconds(60)))
        _ = model.machine.adopted(.with { $0.maxInFlight = 7 }, isReplaced: isReplaced, now: model.now)
        #expect(model.machine.health.most == 7)
        #expect(model.machine.maySend(now: model.now) == probes)
    }
}
