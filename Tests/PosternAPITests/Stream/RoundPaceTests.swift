import PosternCore
import Testing

@testable import PosternAPI

@Suite struct RoundPaceTests {
    private static func instant(_ microseconds: Int) -> MonotonicInstant {
        MonotonicInstant(nanoseconds: 1_000_000_000_000 + Int64(microseconds) * 1000)
    }

    /// The pause after a round that took `took` microseconds, on a machine of which the gateway uses the share `load`.
    private static func pause(after took: Int, serving listeners: Int, load: Double) -> Duration? {
        var pace = RoundPace()
        pace.begin(waking: 0, at: instant(-2_000_000), busySeconds: 7)
        pace.begin(waking: listeners, at: instant(0), busySeconds: 7 + 2 * load)
        for _ in 0..<listeners { pace.serveOne(of: pace.round, at: instant(took)) }
        let pause = pace.delay(at: instant(took))
        #expect(pace.next == pause.map { instant(took) + $0 })
        #expect(pause.map { pace.delay(at: instant(took) + $0) } == .some(nil), "then the next one may begin")
        return pause
    }

    @Test(
        arguments: [
            // A few listeners: always the shortest pause, also if the machine stops for a moment.
            (1, 100, 0, 50), (10, 300, 0, 50), (10, 300, 1, 50), (10, 400_000, 0.5, 50),
            (100, 300, 0, 50), (100, 2000, 0, 100), (100, 2000, 0.5, 500), (100, 400_000, 0, 500),
            (1000, 100, 0, 50), (1000, 10_000, 0, 500), (1000, 10_000, 0.05, 1000), (1000, 3000, 0.1, 2000),
            (1000, 400_000, 0, 5000), (10_000, 80_000, 0, 4000), (10_000, 80_000, 0.5, 10_000),
        ] as [(Int, Int, Double, Int)])
    func pause_dependsOnWhatTheRoundTook_andOnTheLoad(listeners: Int, took: Int, load: Double, milliseconds: Int) throws
    {
        let pause = try #require(Self.pause(after: took, serving: listeners, load: load))
        #expect(abs(pause.inMilliseconds - Double(milliseconds)) < 0.001)
    }

    @Test(arguments: [20, 100, 1000, 2000], [0.25, 0.6, 1])
    func busyGateway_servesAtMost200ListenersASecond_howeverQuicklyThatIsDone(listeners: Int, load: Double) throws {
        let pause = try #require(Self.pause(after: 10, serving: listeners, load: load))
        #expect(Double(listeners) / pause.inSeconds < 200.001)
    }

    /// 10 µs for each.
    @Test(arguments: [100, 500, 1000, 5000])
    func rounds_takeTwoPercentOfTheTime_howeverManyListen(listeners: Int) throws {
        let took = Duration.microseconds(10 * listeners)
        let pause = try #require(Self.pause(after: 10 * listeners, serving: listeners, load: 0))
        #expect(took / (took + pause) < 0.02)
    }

    @Test func firstRound_mayBeginAtOnce_andTheNextOneSoonAfterAnEmptyOne() {
        var pace = RoundPace()
        #expect(pace.delay(at: Self.instant(0)) == nil)
        pace.begin(waking: 0, at: Self.instant(0), busySeconds: 1)
        #expect(pace.delay(at: Self.instant(0)) == RoundPace.shortest)
    }

    /// Nothing waits for a client that does not read.
    @Test func round_isOver_whenNineTenthsHaveBeenServed() {
        var pace = RoundPace()
        pace.begin(waking: 1000, at: Self.instant(0), busySeconds: 0)
        for _ in 0..<899 { pace.serveOne(of: pace.round, at: Self.instant(10_000)) }
        #expect(pace.delay(at: Self.instant(10_000)) == RoundPace.shortest, "then it is asked again")
        pace.serveOne(of: pace.round, at: Self.instant(10_000))
        for _ in 0..<100 { pace.serveOne(of: pace.round, at: Self.instant(3_000_000)) }
        #expect(pace.next == Self.instant(510_000))
    }

    @Test func round_thatIsNotServed_endsAfterTheLongestPause() {
        var pace = RoundPace()
        pace.begin(waking: 1000, at: Self.instant(0), busySeconds: 0)
        #expect(pace.next == Self.instant(50_000), "the earliest possible time")
        #expect(pace.delay(at: Self.instant(4_990_000)) == .milliseconds(10))
        #expect(pace.delay(at: Self.instant(5_000_000)) == nil)
    }

    /// As if many had filters that rarely match.
    @Test(
        arguments: [
            (1000, 0, 100, 50), (1000, 0, 2000, 100), (1000, 1, 10_000, 500), (1000, 0, 400_000, 5000),
            (10, 0, 400_000, 50), (10_000, 10, 400_000, 10_000),
        ] as [(Int, Int, Int, Int)])
    func search_countsInThePause_howeverFewAreWoken(listeners: Int, woken: Int, took: Int, milliseconds: Int) {
        var pace = RoundPace()
        let now = Self.instant(took)
        pace.begin(waking: woken, of: listeners, foundIn: .microseconds(took), at: now, busySeconds: 0)
        #expect(pace.delay(at: now) == .milliseconds(milliseconds), "also while they do not read")
        for _ in 0..<woken { pace.serveOne(of: pace.round, at: now) }
        #expect(pace.delay(at: now) == .milliseconds(milliseconds))
    }

    @Test func searchAndServing_addUp() {
        var pace = RoundPace()
        pace.begin(waking: 1000, of: 1000, foundIn: .milliseconds(2), at: Self.instant(0), busySeconds: 0)
        for _ in 0..<1000 { pace.serveOne(of: pace.round, at: Self.instant(10_000)) }
        #expect(pace.next == Self.instant(610_000))
    }

    @Test func listenerOfAnEarlierRound_doesNotCount() {
        var pace = RoundPace()
        pace.begin(waking: 1, at: Self.instant(0), busySeconds: 0)
        pace.begin(waking: 1, at: Self.instant(60_000), busySeconds: 0)
        pace.serveOne(of: 1, at: Self.instant(70_000))
        #expect(pace.next == Self.instant(110_000))
        pace.serveOne(of: 2, at: Self.instant(70_000))
        #expect(pace.next == Self.instant(120_000))
    }
}
