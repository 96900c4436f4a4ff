import PosternCore
import Testing

@Suite struct CircuitTests {
    private static let start = Timestamp(milliseconds: 1_000_000)
    private func at(_ seconds: Int) -> Timestamp { Self.start + .seconds(seconds) }

    /// A circuit that an outage has opened until second 10.
    private func opened() -> Circuit {
        var circuit = Circuit(most: 4)
        for _ in 1...5 { circuit.failed(retryAt: at(10)) }
        return circuit
    }

    /// A circuit whose probe is in flight.
    private func probing() -> Circuit {
        var circuit = opened()
        circuit.sent(now: at(10))
        return circuit
    }

    @Test func fifthFailureInARow_opens_andSaysSoOnce() {
        var circuit = Circuit(most: 4)
        let answers = (1...7).map { _ in circuit.failed(retryAt: at(1)) }
        #expect(answers == [false, false, false, false, true, false, false])
        #expect(circuit.state == .open(until: at(1)))
        #expect(circuit.failures == 7)
    }

    @Test func success_endsTheRow() {
        var circuit = Circuit(most: 4)
        for _ in 1...4 { circuit.failed(retryAt: at(1)) }
        let ended = circuit.succeeded()
        #expect(!ended)
        for _ in 1...4 { circuit.failed(retryAt: at(1)) }
        #expect(circuit.state == .closed)
        #expect(circuit.failures == 4)
    }

    @Test(arguments: [(0, true), (3, true), (4, false), (9, false)])
    func closed_permits_upToTheMost(inFlight: Int, isPermitted: Bool) {
        #expect(Circuit(most: 4).permits(inFlight: inFlight, now: at(0)) == isPermitted)
    }

    @Test(arguments: [(9, 0, false), (10, 0, true), (99, 0, true), (10, 1, false)])
    func open_permitsOneProbe_whenItsTimeHasCome_andNothingElseIsOut(second: Int, inFlight: Int, isPermitted: Bool) {
        #expect(opened().permits(inFlight: inFlight, now: at(second)) == isPermitted)
    }

    @Test func halfOpen_permitsNothingButTheProbe() {
        let circuit = probing()
        #expect(circuit.state == .halfOpen)
        #expect(!circuit.permits(inFlight: 0, now: at(99)))
        #expect(circuit.reopensAt == nil)
    }

    @Test func requestSentTooEarly_isNoProbe() {
        var circuit = opened()
        circuit.sent(now: at(9))
        #expect(circuit.state == .open(until: at(10)))
    }

    @Test func successfulProbe_closes_andTheFlowDoublesWithEachSuccess() {
        var circuit = probing()
        let first = circuit.succeeded()
        #expect(first)
        #expect(circuit.state == .closed)
        #expect(circuit.failures == 0)
        var allowances = [circuit.allowance]
        for _ in 1...3 {
            let second = circuit.succeeded()
            #expect(!second)
            allowances.append(circuit.allowance)
        }
        #expect(allowances == [1, 2, 4, 4])
    }

    @Test func failedProbe_opensAgain_asLongAsTheBackoffSays() {
        var circuit = probing()
        let began = circuit.failed(retryAt: at(30))
        #expect(!began)
        #expect(circuit.state == .open(until: at(30)))
        #expect(circuit.failures == 6)
    }

    @Test(arguments: [(5, 10), (10, 10), (40, 40)])
    func lateFailure_doesNotShortenTheOpening(retryAt: Int, until: Int) {
        var circuit = opened()
        circuit.failed(retryAt: at(retryAt))
        #expect(circuit.state == .open(until: at(until)))
    }

    @Test func lateSuccess_doesNotEndTheOpening() {
        var circuit = opened()
        let ended = circuit.succeeded()
        #expect(!ended)
        #expect(circuit.state == .open(until: at(10)))
        #expect(circuit.failures == 5)
    }

    @Test func hold_opensAtOnce_andSaysSoOnce() {
        var circuit = Circuit(most: 4)
        let first = circuit.hold(until: at(60))
        #expect(first)
        #expect(circuit.state == .open(until: at(60)))
        let second = circuit.hold(until: at(30))
        #expect(!second)
        #expect(circuit.state == .open(until: at(60)))
        let third = circuit.hold(until: at(90))
        #expect(!third)
        #expect(circuit.state == .open(until: at(90)))
    }

    @Test func hold_outlastsTheProbe() {
        var circuit = probing()
        let began = circuit.hold(until: at(60))
        #expect(!began)
        #expect(circuit.state == .open(until: at(60)))
    }

    @Test func abandonedProbe_mayBeRepeatedAtOnce() {
        var circuit = probing()
        circuit.abandoned(now: at(11))
        #expect(circuit.state == .open(until: at(11)))
        #expect(circuit.permits(inFlight: 0, now: at(11)))
    }

    @Test func abandonedRequest_changesNothing_whenItWasNoProbe() {
        var circuit = opened()
        circuit.abandoned(now: at(1))
        #expect(circuit == opened())
        var closed = Circuit(most: 4)
        closed.abandoned(now: at(1))
        #expect(closed.state == .closed)
    }

    @Test func probeNow_permitsAProbe_onlyIfTheCircuitIsOpen() {
        var circuit = opened()
        circuit.probeNow(now: at(2))
        #expect(circuit.permits(inFlight: 0, now: at(2)))
        var probing = probing()
        probing.probeNow(now: at(11))
        #expect(probing.state == .halfOpen)
        var closed = Circuit(most: 4)
        closed.probeNow(now: at(1))
        #expect(closed.state == .closed)
    }

    @Test func restart_findsItOpen_untilItsTime() {
        var circuit = Circuit(most: 4, failures: 7, reopensAt: at(20))
        #expect(!circuit.permits(inFlight: 0, now: at(19)))
        #expect(circuit.permits(inFlight: 0, now: at(20)))
        #expect(circuit.failures == 7)
        circuit.sent(now: at(20))
        let ended = circuit.succeeded()
        #expect(ended)
        #expect(circuit.allowance == 1)
    }

    @Test func restart_findsItClosed_withItsFailures() {
        var circuit = Circuit(most: 4, failures: 4)
        #expect(circuit.permits(inFlight: 3, now: at(0)))
        let began = circuit.failed(retryAt: at(5))
        #expect(began)
    }

    @Test func most_cutsTheAllowance_andGrowsWithSuccesses() {
        var circuit = Circuit(most: 4)
        circuit.most = 2
        #expect(circuit.allowance == 2)
        circuit.most = 8
        #expect(circuit.allowance == 2)
        circuit.succeeded()
        circuit.succeeded()
        circuit.succeeded()
        #expect(circuit.allowance == 8)
    }
}
