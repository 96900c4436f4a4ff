import PosternCore
import PosternStore
import PosternTestKit
import Testing

@testable import PosternAPI

/// Which alerts are due, as a value: the test says what is seen, and what time it is.
@Suite struct AlertWatchTests {
    private static let name = UpstreamName("work")!

    /// A watch whose alerts are always stored.
    private struct Bench {
        let time = ManualTime()
        var watch: AlertWatch
        var sight = AlertWatch.Sight(name: AlertWatchTests.name)
        var isDiskFull = false
        var wants = Set(AlertEvent.allCases)

        init(_ record: AlertWatch.Record? = nil) {
            watch = AlertWatch(record, now: time.now, instant: time.instant)
        }

        /// What is told after `seconds`, as texts.
        mutating func look(after seconds: Int = 1, own: [UpstreamName: Int] = [:]) -> [String] {
            time.advance(by: .seconds(seconds))
            let due = watch.look(
                at: [sight], isDiskFull: isDiskFull, now: time.now, instant: time.instant,
                wants: { [wants] in wants.contains($0.event) })
            let record = watch.record(telling: due, own: own, now: time.now)
            watch.told(due, own: own, record, instant: time.instant)
            let now = time.now
            return due.map { due in
                let count = due.dropped.map { " \($0)" } ?? ""
                return "\(due.key) \(due.status) for \(Int((now - due.since).inSeconds))\(count)"
            }
        }

        /// A restart: only what is stored is left.
        mutating func restart() throws {
            let stored = try #require(AlertWatch.Record(watch.record.bytes))
            #expect(stored == watch.record)
            watch = AlertWatch(stored, now: time.now, instant: time.instant)
        }
    }

    @Test func condition_isToldOnce_andItsEnd() {
        var bench = Bench()
        #expect(bench.look() == [])
        (bench.sight.isDown, bench.sight.isGuarded, bench.isDiskFull) = (true, true, true)
        bench.sight.oldSince = bench.time.now - .seconds(99)
        #expect(
            bench.look() == [
                "disk.full firing for 0", "upstream.down/work firing for 0", "guard.held/work firing for 0",
                "queue.old/work firing for 100",
            ])
        #expect(bench.look() == [] && bench.look(after: 600) == [])
        (bench.sight.isDown, bench.sight.isGuarded, bench.isDiskFull) = (false, false, false)
        (bench.sight.oldSince, bench.sight.isUnauthorized) = (nil, true)
        #expect(
            bench.look() == [
                "disk.full resolved for 602", "upstream.up/work resolved for 602",
                "upstream.unauthorized/work firing for 0", "guard.held/work resolved for 602",
                "queue.old/work resolved for 702",
            ])
        #expect(bench.look(after: 600) == [])
    }

    @Test func whatChangesOften_isToldOnceAMinute_asItIsThen() {
        var bench = Bench()
        var told: [String] = []
        func step(_ isDown: Bool, after seconds: Int) {
            bench.sight.isDown = isDown
            told += bench.look(after: seconds)
        }
        step(true, after: 0)
        step(false, after: 10)
        // Down for the second time, but the minute is not over when that ends.
        step(true, after: 10)
        step(false, after: 10)
        #expect(told == ["upstream.down/work firing for 0", "upstream.up/work resolved for 10"])
        // And for the third time when it is.
        told = []
        step(true, after: 20)
        step(true, after: 9)
        #expect(told == [])
        step(true, after: 1)
        #expect(told == ["upstream.down/work firing for 10"])
        // Its end is told a minute after the former one, though it was never down for as long as a look.
        told = []
        step(false, after: 9)
        step(false, after: 1)
        #expect(told == ["upstream.up/work resolved for 20"])
        #expect(bench.look(after: 600) == [])
    }

    @Test func upstreamThatIsStopped_isNeitherUpNorDown() {
        var bench = Bench()
        bench.sight.isDown = true
        #expect(bench.look() == ["upstream.down/work firing for 0"])
        bench.sight.isDown = nil
        #expect(bench.look(after: 600) == [])
        bench.sight.isDown = true
        #expect(bench.look(after: 600) == [])
        bench.sight.isDown = false
        #expect(bench.look() == ["upstream.up/work resolved for 1201"])
    }

    @Test func restart_neitherRepeatsAnAlert_norForgetsIt() throws {
        var bench = Bench()
        (bench.sight.isDown, bench.isDiskFull) = (true, true)
        #expect(bench.look() == ["disk.full firing for 0", "upstream.down/work firing for 0"])
        try bench.restart()
        bench.isDiskFull = false
        #expect(bench.look(after: 20) == [])
        bench.sight.isDown = false
        #expect(bench.look(after: 20) == ["upstream.up/work resolved for 40"])
        bench.sight.isDown = true
        try bench.restart()
        // The minute since the first alert ends, not one since the restart.
        #expect(bench.look(after: 20) == ["disk.full resolved for 60", "upstream.down/work firing for 0"])
        try bench.restart()
        bench.time.setWallClock(back: .seconds(7200))
        try bench.restart()
        bench.isDiskFull = true
        #expect(bench.look(after: 59) == [])
        #expect(bench.look(after: 1) == ["disk.full firing for 1"])
    }

    @Test func droppedMessages_areCountedSinceTheyWereToldLast() throws {
        var bench = Bench()
        bench.sight.dropped = 7
        #expect(bench.look() == [], "those before the first look are not told")
        bench.sight.dropped = 9
        #expect(bench.look() == ["messages.dropped/work firing for 0 2"])
        bench.sight.dropped = 10
        #expect(bench.look(after: 20) == [])
        // They are queued again, and others are dropped.
        bench.sight.dropped = 0
        #expect(bench.look(after: 20) == [])
        bench.sight.dropped = 4
        #expect(bench.look(after: 20) == ["messages.dropped/work firing for 40 5"])
        bench.sight.dropped = 6
        try bench.restart()
        #expect(bench.look(after: 60) == ["messages.dropped/work firing for 0 2"])
        #expect(bench.look(after: 600) == [])
    }

    /// The alert about a full queue finds it full.
    @Test func alertThatIsDroppedItself_causesNoOther() {
        var bench = Bench()
        _ = bench.look()
        bench.sight.dropped = 3
        #expect(bench.look(own: [Self.name: 1]) == ["messages.dropped/work firing for 0 3"])
        bench.sight.dropped = 4
        #expect(bench.look(after: 600) == [])
    }

    @Test func onlyWhatIsAskedFor_isTold_alsoIfItBeganBefore() {
        var bench = Bench()
        (bench.sight.isDown, bench.isDiskFull, bench.wants) = (true, true, [.upstreamUp])
        #expect(bench.look() == ["upstream.down/work firing for 0"], "it is not stored, but its end will be")
        bench.wants = [.diskFull]
        #expect(bench.look() == ["disk.full firing for 0"])
    }

    @Test func reasonOfAWait_mayBeAnAlert() {
        #expect(AlertEvent(waitingFor: "guard") == .guardHeld)
        #expect(
            WaitReason.allCases.filter { $0.rawValue != "guard" }.allSatisfy {
                AlertEvent(waitingFor: $0.rawValue) == nil
            })
    }

    @Test func recordThatCannotBeRead_isNone() {
        #expect(AlertWatch.Record(Array("{".utf8)) == nil)
        #expect(AlertWatch.Record(Array(#"{"conditions":{},"dropped":{"work":1}}"#.utf8))?.dropped == ["work": 1])
    }
}
