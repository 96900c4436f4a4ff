import PosternCore
import Testing

@testable import PosternDelivery

@Suite struct RejectionGuardTests {
    private static let limits = RejectionGuard.Limits(share: 0.5, window: 100)
    private static let now = Timestamp(milliseconds: 1_000_000)
    private var rejections = RejectionGuard()

    /// Returns whether the message fails.
    private mutating func reject(_ id: Int64, at endpoint: String = "a", latest: Int = 0) -> Bool {
        rejections.rejected(
            MessageID(rawValue: id), at: endpoint, Self.limits, latest: latest, now: Self.now)
    }

    private mutating func rejectUntilHeld() -> Int {
        var failed = 0
        for id in 1...200 where reject(Int64(id)) { failed += 1 }
        return failed
    }

    @Test mutating func endpoint_isHeld_onceMoreThanHalfOfTheWindowIsRejected() {
        for id in 1...50 {
            let fails = reject(Int64(id))
            #expect(fails)
        }
        #expect(!rejections.isHolding("a"))
        let fails = reject(51)
        #expect(fails, "the one that shows it")
        #expect(rejections.held == ["a": Self.now + .seconds(30)])
        let next = reject(52)
        #expect(!next)
        #expect(!rejections.isHolding("b"))
    }

    @Test mutating func rejections_areForgotten_whenTheWindowIsFullOfOthers() {
        for round in 0..<20 {
            for id in 1...40 {
                let fails = reject(Int64(round * 1000 + id))
                #expect(fails)
            }
            _ = rejections.accepted(61, by: 1, at: "a", Self.limits)
        }
        #expect(rejections.held.isEmpty)
    }

    @Test mutating func message_countsOnce_howeverOftenItIsRejected() {
        for _ in 1...500 { _ = reject(7) }
        #expect(rejections.held.isEmpty)
    }

    @Test mutating func hold_ends_whenARequestOfLaterIsAccepted() {
        for id in 1...51 { _ = reject(Int64(id), latest: 12) }
        let before = rejections.accepted(1, by: 12, at: "a", Self.limits)
        #expect(!before, "it was sent before the hold")
        #expect(rejections.isHolding("a"))
        let after = rejections.accepted(1, by: 13, at: "a", Self.limits)
        #expect(after)
        #expect(rejections.held.isEmpty)
        let failed = rejectUntilHeld()
        #expect(failed == 51, "nothing is left of the former window")
    }

    @Test mutating func probe_isSentEachHalfMinute() {
        _ = rejectUntilHeld()
        let first = Self.now + .seconds(30)
        #expect(rejections.wait(of: "a", now: Self.now) == first)
        #expect(rejections.wait(of: "a", now: first) == nil)
        rejections.sent(to: "a", now: first)
        #expect(rejections.wait(of: "a", now: first) == first + .seconds(30))
        rejections.probeNow(now: first)
        #expect(rejections.wait(of: "a", now: first) == nil)
    }

    @Test mutating func operator_allowsRejections_ofWhatIsQueued() {
        var released = rejections.release(through: MessageID(rawValue: 500))
        #expect(released.isEmpty)
        #expect(rejections.allowedThrough == nil, "nothing was held")
        _ = rejectUntilHeld()
        released = rejections.release(through: MessageID(rawValue: 500))
        #expect(released == ["a"])
        for id in 52...500 {
            let fails = reject(Int64(id))
            #expect(fails)
        }
        #expect(rejections.held.isEmpty)
        var failed = 0
        for id in 501...700 where reject(Int64(id)) { failed += 1 }
        #expect(failed == 51)
    }

    @Test mutating func guardThatIsOff_holdsNothing() {
        let off = RejectionGuard.Limits(share: 0, window: 100)
        _ = rejectUntilHeld()
        var released = rejections.apply(Self.limits)
        #expect(released.isEmpty)
        #expect(rejections.isHolding("a"))
        released = rejections.apply(off)
        #expect(released == ["a"])
        for id in 1...300 {
            let fails = rejections.rejected(
                MessageID(rawValue: Int64(id)), at: "a", off, latest: 0, now: Self.now)
            #expect(fails)
        }
        #expect(rejections.held.isEmpty)
    }

    @Test mutating func formerHold_goesOn() {
        rejections.restore(["a"], now: Self.now)
        #expect(rejections.wait(of: "a", now: Self.now) == Self.now + .seconds(30))
        let fails = reject(1)
        #expect(!fails)
        let ended = rejections.accepted(1, by: 1, at: "a", Self.limits)
        #expect(ended)
    }

    @Test func wholeWindow_isOneTooManyWithShareOne() {
        #expect(RejectionGuard.Limits(share: 1, window: 100).tooMany == 101, "only more than all would be too many")
        #expect(RejectionGuard.Limits(share: 0.5, window: 100).tooMany == 51)
        #expect(RejectionGuard.Limits(share: 0.01, window: 10).tooMany == 1)
    }
}
