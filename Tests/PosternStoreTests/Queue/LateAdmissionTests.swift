import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

/// The time between the commit of a message and the admission of its lane. Here the owner of a queue admits lanes when it
/// claims, and a test decides when that is.
@Suite struct LateAdmissionTests {
    private static let delay = Duration.seconds(10)
    private let store: TestStore
    private var queue: UpstreamQueue

    init() throws {
        store = try TestStore {
            $0.engine = .sqliteAdmittingLate(after: Self.delay)
            $0.encryptionKeys = EncryptionKeys(current: [UInt8](repeating: 7, count: 32))
        }
        queue = try store.register(PlainUpstream(laneRule: .perLane))
        // What there was at the beginning has been examined.
        _ = try store.claim(queue)
    }

    /// The owner admits what it has heard of.
    private func admit() throws {
        let claim = try store.claim(queue)
        #expect(claim.messages.isEmpty, "it is not admitted yet")
        queue.giveBack(claim, now: store.time.now)
        try store.settleDown()
    }

    @discardableResult private func post(_ lane: Lane, _ token: String? = nil) throws -> MessageID {
        let owner = lane.group ?? ""
        return try store.append([
            NewMessage(
                queue: queue.target, kind: "thing", lane: lane, acceptedAt: store.time.now, bytes: Array("{}".utf8),
                credential: token.map { Credential(owner: owner, value: Array($0.utf8)) })
        ]).ids[0]
    }

    private func hasCredential(of owner: String) throws -> Bool {
        try store.outbox.withState(of: queue.number) { $0.credential(of: owner) != nil }
    }

    private func park(_ lane: Lane) throws {
        let id = try post(lane)
        try admit()
        let claim = try store.claim(queue)
        #expect(claim.messages.map(\.id) == [id])
        queue.park(claim)
        try store.settleDown()
    }

    // MARK: Admitting

    @Test func append_writesNoLane_andTheOwnerOpensIt() throws {
        let ids = try store.append(3, to: queue, lane: .named("a", group: "g"))
        #expect(try store.count("lanes") == 0)
        #expect(store.readiness(queue) == .due(at: store.time.now + Self.delay))
        try admit()
        #expect(try store.count("lanes") == 1)
        let claim = try store.claim(queue)
        #expect(claim.messages.map(\.id) == ids)
        #expect(claim.messages.allSatisfy { $0.lane == .named("a", group: "g") })
        try store.deliver(claim.messages, of: queue)
        #expect(try store.count("lanes") == 0)
        #expect(try store.isBalanced())
    }

    @Test func lanes_areAdmittedAgain_ifTheCommitFails() throws {
        let id = try post(.named("a"))
        try store.execute("CREATE TRIGGER trouble BEFORE INSERT ON lanes BEGIN SELECT RAISE(ABORT, 'trouble'); END")
        try admit()
        #expect(store.readiness(queue) == .due(at: store.time.now + .seconds(1)))
        try store.execute("DROP TRIGGER trouble")
        try admit()
        #expect(try store.drain(queue) == [id])
    }

    /// What is scheduled or collects is not due before its time; what was accepted by a clock that was ahead is due now.
    @Test func admittedLane_isDue_whenItsSoonestMessageIs() throws {
        let soon = store.time.now + .seconds(30)
        let later = try store.append(to: queue, lane: .named("a"), notBefore: soon + .seconds(30))
        let sooner = try store.append(to: queue, lane: .named("a"), notBefore: soon)
        try admit()
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(store.readiness(queue) == .due(at: soon))
        let now = try post(.named("a"))
        try admit()
        #expect(try store.drain(queue) == [now])
        let ahead = try post(.named("b"))
        store.time.setWallClock(back: .seconds(3600))
        try admit()
        #expect(try store.drain(queue) == [ahead])
        #expect(later != sooner)
    }

    // MARK: Has the lane messages?

    @Test func lane_staysOpen_ifAMessageOfItWasStoredMeanwhile() throws {
        let first = try post(.named("a"))
        try admit()
        let claim = try store.claim(queue)
        #expect(claim.messages.map(\.id) == [first])
        let second = try post(.named("a"))
        try store.deliver(claim.messages, of: queue)
        #expect(try store.count("lanes") == 1)
        #expect(try store.drain(queue) == [second])
    }

    @Test func lane_isReadFromItsFirstMessage_alsoIfALaterOneWasDelivered() throws {
        let first = try post(.named("a"))
        try admit()
        try store.fail(store.claim(queue).messages, of: queue)
        let second = try post(.named("a"))
        try admit()
        #expect(try store.drain(queue) == [second])
        #expect(try store.requeue([first]) == [first])
        #expect(try store.count("lanes") == 0)
        try admit()
        #expect(try store.drain(queue) == [first])
    }

    @Test func state_countsWhatIsNotAdmitted_andIsKeptForIt() throws {
        let id = try post(.named("a"))
        let counts = try store.outbox.withState(of: queue.number) { state in
            ["a", "b"].map { state.queued(inLane: $0, atMost: 9) }
        }
        #expect(counts == [1, 0])
        let expiry = StateChange.Expiry(at: store.time.now + .seconds(10), lane: "a")
        try store.change([.set(key: "s", value: [1], expiry: expiry)], of: queue)
        store.time.advance(by: .seconds(11))
        try store.runMaintenance()
        #expect(try store.count("state") == 1)
        #expect(try store.cancel(id))
        store.time.advance(by: .seconds(61))
        try store.runMaintenance()
        #expect(try store.count("state") == 0)
    }

    @Test func credential_isKept_forWhatIsNotAdmitted_andGoesWithTheLastOfIt() throws {
        let first = try post(.named("a", group: "g"), "T1")
        let second = try post(.named("b", group: "g"))
        #expect(try hasCredential(of: "g"))
        #expect(try store.cancel(first))
        #expect(try hasCredential(of: "g"))
        #expect(try store.cancel(second))
        #expect(try !hasCredential(of: "g"))
        // Nothing is left to be admitted.
        try admit()
        #expect(try store.count("lanes") == 0)
    }

    @Test func message_showsItsLane_beforeThatIsAdmitted() throws {
        let id = try post(.named("a", group: "g"))
        #expect(try store.record(id)?.laneName == "a")
        var filter = MessageFilter()
        filter.lane = "a"
        #expect(try store.outbox.messages(filter, after: nil, limit: 9).messages.map(\.id) == [id])
        #expect(try store.cancel(id))
        #expect(try store.record(id)?.laneName == "a")
    }

    // MARK: Parked groups

    @Test func lane_ofAParkedGroup_isParkedAsItIsAdmitted() throws {
        try park(.named("a", group: "g"))
        let late = try post(.named("b", group: "g"))
        try admit()
        #expect(try store.record(late)?.facts.isParked == true)
        try store.change([.release(group: "g")], of: queue)
        #expect(try store.drain(queue).count == 2)
    }

    @Test func lane_isNotParked_ifItsGroupWasReleasedBeforeItIsAdmitted() throws {
        try park(.named("a", group: "g"))
        try post(.named("b", group: "g"))
        try store.change([.release(group: "g")], of: queue)
        _ = try store.drain(queue)
        try store.settleDown()
        _ = try store.drain(queue)
        #expect(store.outbox.ledger(of: queue.number).queued == 0)
    }

    // MARK: The next owner

    @Test func lanes_areCountedAgain_byTheNextOwner() throws {
        let tomorrow = store.time.now + .seconds(86_400)
        let scheduled = try store.append(to: queue, lane: .named("a"), notBefore: tomorrow)
        try admit()
        let unheard = try post(.named("a"))
        store.outbox.drop(queue)
        let meanwhile = try post(.named("b"))
        #expect(try store.count("lanes") == 1)
        let next = try store.outbox.adopt(queue.target)
        #expect(try store.drain(next) == [unheard, meanwhile])
        #expect(try store.state(scheduled) == .queued)
    }

    @Test func lanes_areCountedAgain_afterARestart() throws {
        let id = try post(.named("a"))
        try store.reopen()
        let next = try store.register(PlainUpstream(laneRule: .perLane))
        #expect(try store.drain(next) == [id])
    }

    @Test func openLane_isDue_forTheNextOwner_whenTheClockWasSetBack() throws {
        let ahead = try post(.named("a"))
        try admit()
        store.time.setWallClock(back: .seconds(3600))
        store.outbox.drop(queue)
        let next = try store.outbox.adopt(queue.target)
        #expect(try store.drain(next) == [ahead])
    }
}
