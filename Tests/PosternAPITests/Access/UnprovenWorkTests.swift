import PosternCore
import PosternHTTP
import PosternTestKit
import Testing

@testable import PosternAPI

/// Work for callers who have not proven who they are.
@Suite struct UnprovenWorkTests {
    private let threads = ManualThreads()
    private let done = SharedValue<[String]>([])

    /// Bodies of 64 KiB at most: two for an address, and eight for a route.
    private func work() -> UnprovenWork {
        try! UnprovenWork(.init(maxBodyBytes: 64 << 10, memory: 4 << 20), on: threads)
    }

    private func job(
        _ name: String, of address: String, route: String = "/a", bytes: Int = 10 << 10
    ) -> UnprovenWork.Job {
        UnprovenWork.Job(bytes, for: .init(route: route, address: PeerAddress(text: address))) { [done] job in
            done.set(done.value + [job.isCancelled ? "\(name) cancelled" : name])
        }
    }

    private func takeDone() -> [String] {
        defer { done.set([]) }
        return done.value
    }

    @Test func addresses_takeTurns() {
        let work = work()
        for number in 1...4 { #expect(work.start(job("a\(number)", of: "192.0.2.1"))) }
        #expect(work.start(job("b1", of: "192.0.2.2")))
        #expect(work.start(job("c1", of: "192.0.2.3")))
        #expect(work.start(job("b2", of: "192.0.2.2")))
        threads.turnAll()
        #expect(takeDone() == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"])
        work.stop()
    }

    /// One job a turn, on a thread that does nothing else.
    @Test func oneJob_isDoneAtATime() {
        let work = work()
        for number in 1...3 { #expect(work.start(job("\(number)", of: "192.0.2.1"))) }
        #expect(takeDone().isEmpty)
        threads.turn("postern-proofs")
        #expect(takeDone() == ["1"])
        #expect(work.waiting == 2)
        work.stop()
        #expect(takeDone() == ["2", "3"])
    }

    /// A route can have larger bodies than others, one at a time.
    @Test func jobBeyondTheLimits_isTaken_onItsOwn() {
        let work = work()
        #expect(work.start(job("large", of: "192.0.2.1", bytes: 9 << 20)))
        #expect(!work.start(job("small", of: "192.0.2.1", bytes: 1)))
        #expect(!work.start(job("other", of: "192.0.2.2", bytes: 1)))
        threads.turnAll()
        #expect(takeDone() == ["large"])
        #expect(work.start(job("small", of: "192.0.2.1", bytes: 1)))
        #expect(!work.start(job("large", of: "192.0.2.1", bytes: 9 << 20)))
        work.stop()
    }

    @Test func work_isBounded_forEachAddressAndEachRoute() {
        let work = work()
        let size = 64 << 10
        #expect(work.start(job("1", of: "192.0.2.1", bytes: size)))
        #expect(work.start(job("2", of: "192.0.2.1", bytes: size)))
        #expect(!work.start(job("3", of: "192.0.2.1", bytes: 1)), "nor on another route:")
        #expect(!work.start(job("4", of: "192.0.2.1", route: "/b", bytes: 1)))
        for number in 2...4 {
            for _ in 1...2 { #expect(work.start(job("\(number)", of: "192.0.2.\(number)", bytes: size))) }
        }
        #expect(!work.start(job("5", of: "192.0.2.5", bytes: 1)))
        #expect(work.start(job("6", of: "192.0.2.5", route: "/b", bytes: size)))
        threads.turn("postern-proofs")
        #expect(work.start(job("7", of: "192.0.2.1", bytes: size)), "one has ended")
        threads.turnAll()
        #expect(takeDone().count == 10)
        #expect(work.start(job("8", of: "192.0.2.9", bytes: size)))
        work.stop()
    }

    @Test func cancelledJob_endsAtOnce_andMakesRoom() {
        let work = work()
        let jobs = (1...2).map { job("\($0)", of: "192.0.2.1", bytes: 64 << 10) }
        for job in jobs { #expect(work.start(job)) }
        work.cancel(jobs[0])
        #expect(takeDone() == ["1 cancelled"])
        #expect(work.start(job("3", of: "192.0.2.1", bytes: 64 << 10)))
        threads.turnAll()
        #expect(takeDone() == ["2", "3"])
        work.cancel(jobs[1])
        #expect(takeDone().isEmpty, "it has ended")
        let late = job("4", of: "192.0.2.1")
        work.cancel(late)
        #expect(work.start(late))
        threads.turnAll()
        #expect(takeDone() == ["4 cancelled"])
        work.stop()
    }
}
