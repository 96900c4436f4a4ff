import PosternCore
import PosternUpstream
import Testing

@testable import PosternStore

/// How many messages of a kind wait in memory while its endpoint is down.
@Suite struct PostponedKindsTests {
    private var postponed = PostponedKinds()
    private let most = PostponedKinds.most(BatchLimits(maxMessages: 100, maxBytes: 1000))

    private func ids(_ range: Range<Int64>) -> [Lease] { range.map { Lease(id: MessageID(rawValue: $0), lane: 0) } }

    @Test mutating func kind_isFull_whenMoreAreNotNeeded() {
        postponed.add(ids(0..<1023), of: "dead", isApart: true)
        #expect(postponed.full(most).isEmpty)
        postponed.add(ids(1023..<1024), of: "dead", isApart: true)
        postponed.add(ids(2000..<2001), of: "alive", isApart: true)
        #expect(postponed.full(most) == ["dead"])
    }

    @Test func largeRequests_haveRoom_whileTheyAreInFlight() {
        #expect(PostponedKinds.most(BatchLimits(maxMessages: 2000, maxBytes: 1000)) == 8000)
    }

    @Test mutating func passedRows_areExaminedAgain_whenMostOfTheKindAreSent() {
        postponed.add(ids(0..<1024), of: "dead", isApart: true)
        for number in [5000, 4000, 6000] as [Int64] { postponed.pass(MessageID(rawValue: number), of: "dead") }
        #expect(postponed.hasPassed("dead"))
        // A probe makes no room.
        for lease in ids(0..<512) { postponed.remove(lease.id) }
        #expect(!postponed.mayRescanPassed)
        #expect(postponed.takePassed() == nil)
        postponed.remove(MessageID(rawValue: 512))
        #expect(postponed.mayRescanPassed)
        #expect(postponed.takePassed() == MessageID(rawValue: 4000))
        #expect(!postponed.mayRescanPassed, "they count as found")
    }

    @Test mutating func scheduledRows_areFoundAgain_beforeTheEarliestOfThem() {
        postponed.add(ids(0..<1), of: "dead", isApart: true)
        postponed.add(ids(1..<2), of: "ill", isApart: true)
        let first = ScheduledPosition(dueAtMs: 10, id: MessageID(rawValue: 7))
        postponed.pass(ScheduledPosition(dueAtMs: 20, id: MessageID(rawValue: 3)), of: "dead")
        postponed.pass(first, of: "ill")
        #expect(postponed.takePassed() == nil)
        #expect(postponed.takePassedScheduled() == first)
        #expect(postponed.takePassedScheduled() == nil)
    }

    @Test mutating func kinds_areNotPassed_ifTheyAreNotSentApart() {
        postponed.add(ids(0..<2000), of: "dead", isApart: false)
        #expect(postponed.full(most).isEmpty)
        #expect(postponed.contains(MessageID(rawValue: 1999)))
    }
}
