import PosternCore
import PosternTestKit
import PosternThreads
import Testing

/// Everything waits with a deadline, so that a wake-up that gets lost fails the test.
@Suite(.timeLimit(.minutes(10))) struct InboxTests {
    private let inbox = Inbox<Int>()
    private let time = SystemTime()
    private var soon: MonotonicInstant { time.instant + longestWait }

    @Test func elements_comeInTheirOrder_andOnce() {
        (1...5).forEach(inbox.put)
        #expect(inbox.takeAll() == [1, 2, 3, 4, 5])
        #expect(inbox.takeAll() == [])
    }

    @Test func wait_endsAtOnce_whenSomethingIsThere() {
        inbox.put(1)
        #expect(inbox.takeAll(waitingUntil: nil) == [1])
    }

    @Test func wait_endsAtTheDeadline_withNothing() {
        let deadline = time.instant + .milliseconds(20)
        #expect(inbox.takeAll(waitingUntil: deadline) == [])
        #expect(time.instant >= deadline)
    }

    @Test(arguments: [Int64.min, -1, 0, 1]) func wait_endsAtOnce_whenTheDeadlineHasLongPassed(nanoseconds: Int64) {
        #expect(inbox.takeAll(waitingUntil: MonotonicInstant(nanoseconds: nanoseconds)) == [])
    }

    @Test func element_endsTheWait_ofAnotherThread() throws {
        let producer = try DedicatedThread(name: "producer") { [inbox] in inbox.put(7) }
        #expect(inbox.takeAll(waitingUntil: soon) == [7])
        producer.join()
    }

    @Test func nudge_endsTheWait_withNothing() throws {
        let deadline = soon
        let producer = try DedicatedThread(name: "nudger") { [inbox] in inbox.nudge() }
        #expect(inbox.takeAll(waitingUntil: deadline) == [])
        #expect(time.instant < deadline)
        producer.join()
    }

    @Test func nudge_isRemembered_untilTheNextTake() {
        inbox.nudge()
        #expect(inbox.takeAll(waitingUntil: nil) == [])
        let deadline = time.instant + .milliseconds(5)
        #expect(inbox.takeAll(waitingUntil: deadline) == [])
        #expect(time.instant >= deadline)
    }

    @Test func takeAll_clearsANudge() {
        inbox.nudge()
        _ = inbox.takeAll()
        let deadline = time.instant + .milliseconds(5)
        _ = inbox.takeAll(waitingUntil: deadline)
        #expect(time.instant >= deadline)
    }

    @Test func manyProducers_loseNothing_andKeepTheirOrder() throws {
        let producers = 8
        let each = 5000
        let threads = try (0..<producers).map { number in
            try DedicatedThread(name: "producer") { [inbox] in
                for count in 0..<each { inbox.put(number * each + count) }
            }
        }
        var taken: [Int] = []
        let deadline = soon
        while taken.count < producers * each, time.instant < deadline {
            taken += inbox.takeAll(waitingUntil: deadline)
        }
        for thread in threads { thread.join() }
        #expect(taken.count == producers * each)
        for number in 0..<producers {
            let own = taken.filter { $0 / each == number }
            #expect(own == Array(number * each..<(number + 1) * each))
        }
    }
}

@Suite struct DedicatedThreadTests {
    @Test func join_returns_afterTheBody() throws {
        let result = Inbox<Int>()
        try DedicatedThread(name: "a name longer than fifteen bytes") { result.put(1) }.join()
        #expect(result.takeAll() == [1])
    }
}
