import PosternCore
import Testing

@testable import PosternStore

@Suite struct LeaseClockTests {
    private static let lease = Duration.seconds(10)

    private static func at(_ seconds: Double) -> MonotonicInstant {
        MonotonicInstant(nanoseconds: 1) + .seconds(seconds)
    }

    /// A node that waits, and what it makes of the beats of another one.
    private final class Observer {
        private(set) var observed = ObservedNode(lease: LeaseClockTests.lease)

        func sees(_ beat: Int64, at second: Double, for duration: Double = 0) -> Bool {
            observed.see(beat, from: LeaseClockTests.at(second), to: LeaseClockTests.at(second + duration))
        }
    }

    @Test func lease_ends_fourFifthsAfterTheBeatWasSent() {
        var clock = LeaseClock(lease: Self.lease)
        #expect(!clock.isValid(at: Self.at(0)))
        clock.renew(since: Self.at(1))
        #expect(clock.isValid(at: Self.at(8.99)))
        #expect(!clock.isValid(at: Self.at(9)))
        // An answer that came late says nothing about the time since.
        clock.renew(since: Self.at(0.5))
        #expect(clock.end == Self.at(9))
    }

    @Test func silentNode_isReplaced_afterAWholeLease_sinceItWasFirstSeen() {
        let observer = Observer()
        for second in 0..<10 { #expect(!observer.sees(7, at: Double(second), for: 0.5), "after \(second) s") }
        // It was first seen after half a second.
        #expect(!observer.sees(7, at: 10.4))
        #expect(observer.sees(7, at: 10.5))
        #expect(!observer.observed.isAlive)
    }

    @Test func beat_beginsTheObservationAgain() {
        let observer = Observer()
        for second in 0..<9 { #expect(!observer.sees(7, at: Double(second))) }
        #expect(!observer.sees(8, at: 9))
        #expect(observer.observed.isAlive)
        for second in 10..<19 { #expect(!observer.sees(8, at: Double(second))) }
        #expect(observer.sees(8, at: 19))
    }

    /// The database may have been away for the other node, too.
    @Test func observation_beginsAgain_afterTheObserverCouldNotLook() {
        let observer = Observer()
        for second in 0..<9 { #expect(!observer.sees(7, at: Double(second))) }
        #expect(!observer.sees(7, at: 30))
        for second in 31..<40 { #expect(!observer.sees(7, at: Double(second))) }
        #expect(observer.sees(7, at: 40))
    }
}
