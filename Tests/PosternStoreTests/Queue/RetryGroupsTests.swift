import PosternCore
import PosternUpstream
import Testing

@testable import PosternStore

/// Which group is sent again next, and which of its messages.
@Suite struct RetryGroupsTests {
    private var groups = RetryGroups()
    private let now = Timestamp(milliseconds: 1000)

    private func id(_ number: Int64) -> MessageID { MessageID(rawValue: number) }

    private mutating func add(
        _ numbers: Int64..., lane: Int64 = 0, dueAt: Int64 = 0, history: BatchHistory = BatchHistory()
    ) {
        let rows = numbers.map { Lease(id: id($0), lane: lane) }
        groups.add(rows, dueAt: Timestamp(milliseconds: dueAt), history: history)
    }

    private func request(_ preference: ClaimPreference = .inTurn) -> ClaimRequest {
        var request = ClaimRequest(limits: BatchLimits(maxMessages: 10, maxBytes: 1000), now: now, oldest: nil)
        request.preference = preference
        return request
    }

    /// The messages of the group that is next, all of whose lanes are free.
    private func next(_ preference: ClaimPreference = .inTurn) -> [Int64]? {
        groups.next(for: request(preference)).map { index in
            groups.freeMembers(of: index, atMost: 10) { _, _, _ in true }.map(\.rawValue)
        }
    }

    @Test mutating func groupThatHasBeenDueLongest_isNext() {
        add(1, dueAt: 3)
        add(4, 5, dueAt: 2)
        add(2, dueAt: 2)
        add(3, dueAt: 1001)
        #expect(next() == [2])
        _ = groups.remove(id(2))
        #expect(groups.endClaim(of: 2, isSent: true, limitEnd: nil) == BatchHistory())
        #expect(next() == [4, 5])
    }

    @Test mutating func probe_takesAGroupUnderSuspicion_onlyIfThereIsNoOther() {
        add(1, dueAt: 1, history: BatchHistory(suspectedAfter: 7))
        #expect(next(.fresh) == [1])
        add(2, dueAt: 2)
        #expect(next(.fresh) == [2])
        #expect(next() == [1])
    }

    @Test mutating func messages_areSentWithEarlierOnesOfTheirLane_inOneRequest() {
        add(2, 4, 6, lane: 1)
        add(3, 5, lane: 2, dueAt: 1)
        // In lane 2, another message is before those.
        let inLane: [Int64: [Int64]] = [1: [2, 4, 6], 2: [1, 3, 5]]
        let free = [(0, 10), (0, 2), (1, 10)].map { index, most in
            groups.freeMembers(of: index, atMost: most) { inLane[$1]?[$2] == $0.rawValue }.map(\.rawValue)
        }
        #expect(free == [[2, 4, 6], [2, 4], []])
    }

    @Test mutating func groupWithoutAFreeLane_isPassed_untilALaneMoves() {
        add(1, lane: 1)
        add(2, lane: 2, dueAt: 5)
        let history = groups.endClaim(of: 0, isSent: false, limitEnd: nil)
        #expect(history == BatchHistory())
        #expect(next() == [2])
        #expect(groups.nextDue == Timestamp(milliseconds: 5))
        groups.laneMoved()
        #expect(groups.nextDue == Timestamp(milliseconds: 0))
        groups.unblockIfLaneMoved()
        #expect(next() == [1])
    }

    @Test mutating func groupOfALimitedKind_isDueWhenItsLimitEnds() {
        add(1)
        let end = Timestamp(milliseconds: 2000)
        _ = groups.endClaim(of: 0, isSent: false, limitEnd: end)
        #expect(next() == nil)
        #expect(groups.nextDue == end)
        groups.makeDue(at: now)
        #expect(next() == [1])
    }

    @Test mutating func wake_makesDueTheGroupsThatAreMeant() {
        add(1, 2, dueAt: 5000)
        add(3, dueAt: 4000)
        let second = id(2)
        groups.makeDue(at: now) { $0 == second }
        #expect(next() == [1, 2])
        #expect(groups.nextDue == now)
    }

    /// A message that left its group is not sent with it, and a group that all have left is gone.
    @Test mutating func messageThatLeft_isNotSentAgain() {
        add(1, 2, lane: 3, history: BatchHistory(failures: 2))
        #expect(groups.remove(id(1)) == 3)
        #expect(groups.remove(id(1)) == nil)
        #expect(next() == [2])
        #expect(groups.due(through: id(5), at: now) == [id(2)])
        _ = groups.remove(id(2))
        #expect(groups.endClaim(of: 0, isSent: true, limitEnd: nil).failures == 2)
        #expect(groups.count == 0)
        #expect(groups.nextDue == nil)
    }

    /// A flush does not wait for it.
    @Test mutating func loneMessageUnderSuspicion_doesNotCountAsDue() {
        var history = BatchHistory(suspectedAfter: 3)
        history.suspectTries = 1
        add(1, history: history)
        #expect(groups.due(through: id(9), at: now).isEmpty)
        add(2, 3, history: history)
        #expect(groups.due(through: id(2), at: now) == [id(2)])
    }
}
