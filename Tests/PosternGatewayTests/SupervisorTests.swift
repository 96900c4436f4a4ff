import PosternCore
import PosternProcess
import PosternThreads
import Testing

@testable import PosternGateway

@Suite struct SupervisorTests {
    private let signals = try! Signals()
    private let calls = Inbox<String>()
    private let start = MonotonicInstant(nanoseconds: 5_000_000_000)

    private func supervisor(hasCertificate: Bool) -> Supervisor {
        Supervisor(
            signals, reload: { [calls] in calls.put("reload") },
            tasks: hasCertificate ? [.init(period: .seconds(10)) { [calls] in calls.put("look") }] : [])
    }

    @Test func signals_areObeyedInTheirOrder_untilTheOneToStop() {
        let supervisor = supervisor(hasCertificate: false)
        #expect(supervisor.turn(at: start) == .distantFuture)
        #expect(!supervisor.wait(until: .distantPast))
        signals.put(.reload)
        signals.put(.reload)
        #expect(supervisor.wait(until: .distantFuture))
        #expect(supervisor.turn(at: start) == .distantFuture)
        #expect(calls.takeAll() == ["reload", "reload"])
        signals.put(.stop)
        signals.put(.reload)
        #expect(supervisor.turn(at: start) == nil)
        #expect(calls.isEmpty)
        #expect(signals.take() == .reload)
        #expect(signals.take() == nil)
    }

    @Test func gateway_ends_withoutASignal_whenItIsOver() {
        let isOver = Inbox<Bool>()
        let supervisor = Supervisor(
            signals, reload: {}, tasks: [.init(period: .seconds(1)) {}], isOver: { !isOver.isEmpty })
        #expect(supervisor.turn(at: start) == start + .seconds(1))
        isOver.put(true)
        #expect(supervisor.turn(at: start + .seconds(1)) == nil)
    }

    @Test func tasks_haveEachTheirOwnPeriod() {
        let supervisor = Supervisor(
            signals, reload: {},
            tasks: [
                .init(period: .seconds(10)) { [calls] in calls.put("slow") },
                .init(period: .seconds(4)) { [calls] in calls.put("quick") },
            ])
        #expect(supervisor.turn(at: start) == start + .seconds(4))
        #expect(supervisor.turn(at: start + .seconds(4)) == start + .seconds(8))
        #expect(supervisor.turn(at: start + .seconds(8)) == start + .seconds(10))
        #expect(supervisor.turn(at: start + .seconds(10)) == start + .seconds(12))
        #expect(calls.takeAll() == ["slow", "quick", "quick", "quick", "slow"])
    }

    @Test func certificate_isExaminedEveryTenSeconds_andAfterAReload() {
        let supervisor = supervisor(hasCertificate: true)
        #expect(supervisor.turn(at: start) == start + .seconds(10))
        #expect(supervisor.turn(at: start + .seconds(9)) == start + .seconds(10))
        #expect(calls.takeAll() == ["look"])
        #expect(supervisor.turn(at: start + .seconds(10)) == start + .seconds(20))
        #expect(calls.takeAll() == ["look"])
        signals.put(.reload)
        #expect(supervisor.turn(at: start + .seconds(12)) == start + .seconds(22))
        #expect(calls.takeAll() == ["reload", "look"])
    }
}
