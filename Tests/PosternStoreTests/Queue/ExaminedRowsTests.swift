import PosternCore
import PosternUpstream
import Testing

@testable import PosternStore

/// What rows of a mixed queue wait for, and what ends that.
@Suite struct ExaminedRowsTests {
    private var rows = ExaminedRows(sendsKindsApart: true)
    private let later = Timestamp(milliseconds: 5000)

    private func id(_ number: Int64) -> MessageID { MessageID(rawValue: number) }

    private func wait(
        of number: Int64, in lane: Int64 = 0, full: Set<Kind> = [], isLimited: Bool = false
    ) -> ExaminedRows.Wait? {
        ExaminedRows.wait(
            of: id(number), in: lane, "thing", behind: rows.skipped, full: full,
            waiting: isLimited ? ["thing": later] : [:])
    }

    private func isKnown(_ number: Int64, in lane: Int64 = 0, isInFlight: Bool = false) -> Bool {
        rows.contains(id(number), in: lane, "thing") { _ in isInFlight }
    }

    /// Returns whether there was room for it.
    @discardableResult private mutating func keep(
        _ number: Int64, in lane: Int64, for wait: ExaminedRows.Wait, atMost most: Int = 1
    ) -> Bool {
        rows.keep(id(number), in: lane, "thing", for: wait, atMost: most)
    }

    private mutating func group(_ number: Int64, in lane: Int64) {
        rows.group([Lease(id: id(number), lane: lane)], dueAt: later)
    }

    @Test mutating func newRow_waitsForItsKindAndItsLane() {
        #expect(wait(of: 9) == nil)
        #expect(wait(of: 9, isLimited: true) == .limit(until: later))
        #expect(wait(of: 9, full: ["thing"], isLimited: true) == .endpoint)
        #expect(wait(of: 9, in: 1, full: ["thing"]) == nil, "one with a lane is not passed, as it holds up later ones")
        rows.skipped.beginFlight(in: 1)
        group(4, in: 2)
        #expect(wait(of: 9, in: 1, isLimited: true) == .lane)
        #expect(wait(of: 9, in: 2, isLimited: true) == .lane)
        #expect(wait(of: 3, in: 2) == nil, "it is before the other one")
    }

    @Test mutating func row_isKnown_whateverItWaitsFor() {
        let kept = [
            keep(1, in: 0, for: .limit(until: later)), keep(2, in: 0, for: .limit(until: later)),
            keep(3, in: 7, for: .limit(until: later)), keep(4, in: 7, for: .lane),
        ]
        #expect(kept == [true, false, true, true])
        group(5, in: 0)
        rows.refuse(id(6), in: 0, isBeingRemoved: true)
        rows.extend(through: id(9))
        #expect([isKnown(1), isKnown(2), isKnown(5), isKnown(6)] == [true, false, true, true])
        #expect([isKnown(3, in: 7), isKnown(4, in: 7)] == [true, true])
        #expect([isKnown(8), isKnown(8, isInFlight: true)] == [false, true])
        #expect(rows.isHeldUp(id(4), in: 7))
    }

    @Test mutating func lane_isNotFree_whileAGroupIsNextInIt() {
        group(1, in: 7)
        rows.leave(id(2), in: 7)
        #expect(!rows.skipped.hasFree)
        #expect(rows.unsentRow(at: 0, of: 7) == nil)
        rows.leaveGroup(id(1), isGone: true)
        #expect(rows.skipped.hasFree)
        #expect(rows.unsentRow(at: 0, of: 7) == id(2))
    }

    @Test(arguments: [true, false]) mutating func rowBehindOneThatIsBeingRemoved_waitsForTheEndOfThat(isGone: Bool) {
        rows.refuse(id(1), in: 7, isBeingRemoved: true)
        rows.refuse(id(2), in: 7, isBeingRemoved: false)
        rows.becameFree(7)
        #expect(!rows.skipped.hasFree)
        #expect(!rows.maySend(through: id(9), now: later))
        rows.recordRemoval(of: id(1), isGone: isGone)
        #expect(rows.skipped.hasFree)
        #expect(rows.unsentRow(at: 0, of: 7) == id(isGone ? 2 : 1))
    }

    @Test mutating func unheardRemovals_freeTheLanesOfWhatIsGone() {
        group(1, in: 7)
        group(2, in: 8)
        rows.leave(id(3), in: 7)
        rows.leave(id(4), in: 8)
        let second = id(2)
        rows.findRemoved { $0 == second }
        #expect(rows.skipped.takeFree() == 7)
        #expect(rows.skipped.takeFree() == nil)
        #expect(rows.groups.ids == [id(2)])
    }

    @Test mutating func postponedRow_doesNotHoldUpThoseBehindIt() {
        group(1, in: 7)
        rows.leave(id(2), in: 7)
        #expect(rows.isHeldUp(id(2), in: 7))
        rows.postponed.add([Lease(id: id(1), lane: 7)], of: "thing", isApart: true)
        #expect(!rows.isHeldUp(id(2), in: 7))
        #expect(!rows.isHeldUp(id(2), in: 0))
    }

    @Test mutating func turnsAreCrowded_atHalfOfTheLimit() {
        for number in 1..<Int64(ExaminedRows.limit / 2) { keep(number, in: 7, for: .lane) }
        #expect(!rows.isCrowded)
        keep(Int64(ExaminedRows.limit), in: 7, for: .lane)
        #expect(rows.isCrowded)
        #expect(!rows.isAtLimit)
    }
}
