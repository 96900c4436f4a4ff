import PosternCore
import PosternEvents
import PosternTestKit
import PosternUpstream
import Testing

/// The events that are collected for listeners, as values.
@Suite struct EventFeedTests {
    private let feed = EventFeed()
    private let arrivals = SharedValue(0)
    private let one = UpstreamName("one")!
    private let two = UpstreamName("two")!

    private func open() {
        feed.open { [arrivals] in arrivals.set(arrivals.value + 1) }
    }

    private func ids(_ numbers: ClosedRange<Int64>) -> [MessageID] { numbers.map(MessageID.init(rawValue:)) }

    @Test func nothing_isCollectedOrEvenMade_beforeItIsOpenAndAfterItsEnd() {
        let made = SharedValue(0)
        func event() -> Event {
            made.set(made.value + 1)
            return Event(.messageQueued, one, ids: ids(1...1))
        }
        feed.record(event())
        open()
        feed.record(event())
        feed.close()
        feed.record(event())
        #expect(made.value == 1 && feed.take().isEmpty)
    }

    @Test func events_areMerged_byTypeAndUpstream() {
        open()
        feed.record(Event(.messageQueued, one, ids: ids(1...2)))
        feed.record(Event(.messageQueued, two, ids: ids(3...3)))
        feed.record(Event(.messageQueued, one, ids: ids(4...4)))
        #expect(
            feed.take() == [
                Event(.messageQueued, one, ids: ids(1...2) + ids(4...4)), Event(.messageQueued, two, ids: ids(3...3)),
            ])
        #expect(feed.take().isEmpty)
    }

    /// An SDK's event is of one kind, as its request types are.
    @Test func eventsThatAnSDKNames_areMerged_byWhatItSaysOfThem() {
        func event(_ kind: Kind?, _ number: Int64) -> Event {
            let named = kind.map {
                NamedEvent(
                    names: ["Report"], requestType: "Report", kind: $0, isSuccess: true, isQueued: true, failure: nil)
            }
            return Event(.messageQueued, one, ids: ids(number...number), named: named)
        }
        open()
        for (number, kind) in (["a", "b", "a", nil, "b", nil] as [Kind?]).enumerated() {
            feed.record(event(kind, Int64(number)))
        }
        let taken = feed.take()
        #expect(taken.map(\.named?.kind) == ["a", "b", nil])
        #expect(taken.map { $0.ids.map(\.rawValue) } == [[0, 2], [1, 4], [3, 5]])
    }

    /// The second message is sent again after the first has been delivered, and merged events must not tell its end first.
    @Test func mergedEvents_keepTheOrderOfEachMessage() {
        open()
        feed.record(Event(.messageQueued, one, ids: ids(1...1)))
        feed.record(Event(.messageDelivered, one, ids: ids(1...1)))
        feed.record(Event(.messageQueued, one, ids: ids(2...2)))
        feed.record(Event(.batchSent, one, ids: ids(2...2)))
        feed.record(Event(.messageRetrying, one, ids: ids(2...2)))
        feed.record(Event(.messageDelivered, one, ids: ids(2...2)))
        #expect(feed.take().map(\.type) == [.messageQueued, .batchSent, .messageRetrying, .messageDelivered])
    }

    @Test func orderedEvents_areNotMerged_andNothingIsMergedAcrossThem() {
        open()
        feed.record(Event(.messageFailed, one, ids: ids(1...1)))
        feed.record(Event(.messageQueued, one, ids: ids(1...1)), isOrdered: true)
        feed.record(Event(.messageFailed, one, ids: ids(1...1)))
        feed.record(Event(.upstreamDown, one), isOrdered: true)
        feed.record(Event(.upstreamUp, one), isOrdered: true)
        feed.record(Event(.upstreamDown, one), isOrdered: true)
        #expect(
            feed.take().map(\.type) == [
                .messageFailed, .messageQueued, .messageFailed, .upstreamDown, .upstreamUp, .upstreamDown,
            ])
    }

    @Test func eventsAfterAnOrderedOne_areMergedWithEachOther_andWithNoneBeforeIt() {
        open()
        feed.record(Event(.messageFailed, one, ids: ids(1...1)))
        feed.record(Event(.messageFailed, two, ids: ids(2...2)))
        feed.record(Event(.messageQueued, one, ids: ids(1...1)), isOrdered: true)
        feed.record(Event(.messageFailed, two, ids: ids(3...3)))
        feed.record(Event(.messageFailed, one, ids: ids(1...1)))
        feed.record(Event(.messageFailed, two, ids: ids(4...4)))
        let taken = feed.take()
        #expect(taken.map(\.type) == [.messageFailed, .messageFailed, .messageQueued, .messageFailed, .messageFailed])
        #expect(taken.map { $0.ids.map(\.rawValue) } == [[1], [2], [1], [3, 4], [1]])
    }

    @Test func ids_areLimited_andTheCountIsNot() {
        var limits = EventFeed.Limits()
        (limits.idsPerEvent, limits.ids) = (3, 5)
        let feed = EventFeed(limits: limits)
        feed.open {}
        feed.record(Event(.messageQueued, one, ids: ids(1...2)))
        feed.record(Event(.messageQueued, one, ids: ids(3...9)))
        feed.record(Event(.messageQueued, two, ids: ids(10...14)))
        feed.record(Event(.batchSent, two, ids: ids(10...14)))
        let events = feed.take()
        #expect(events.map(\.ids) == [ids(1...3), ids(10...11), []])
        #expect(events.map(\.count) == [9, 5, 5])
        feed.record(Event(.messageQueued, one, ids: ids(1...2)))
        #expect(feed.take().map(\.ids.count) == [2], "the limit is for what was not taken")
    }

    @Test func requestsAtTheSameTime_areOneEvent_thatCountsThem() {
        feed.open {}
        for first in Int64(1)...3 { feed.record(Event(.batchSent, one, ids: ids(first...first + 1))) }
        let events = feed.take()
        #expect(events.map(\.count) == [6])
        #expect(events.map(\.requests) == [3])
    }

    @Test func orderedEvents_areMerged_whenThereAreTooMany() {
        var limits = EventFeed.Limits()
        limits.orderedEvents = 4
        let feed = EventFeed(limits: limits)
        feed.open {}
        for _ in 0..<100 {
            feed.record(Event(.upstreamDown, one, count: 1), isOrdered: true)
            feed.record(Event(.upstreamUp, one, count: 1), isOrdered: true)
        }
        let events = feed.take()
        #expect(events.count == 4 && events.reduce(0) { $0 + $1.count } == 200)
    }

    @Test func arrival_isReportedOnce_untilTheEventsAreTaken() {
        open()
        for _ in 0..<3 { feed.record(Event(.messageQueued, one, ids: ids(1...1))) }
        #expect(arrivals.value == 1)
        _ = feed.take()
        feed.record(Event(.messageQueued, one, ids: ids(1...1)))
        #expect(arrivals.value == 2)
    }
}
