import PosternCore
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternEvents

/// Rounds, heartbeats, lagging and returning listeners, in virtual time.
@Suite struct EventStreamTests {
    private final class Bench {
        let threads = ManualThreads()
        let feed = EventFeed()
        let stream: EventStream
        private let timer: TimerQueue
        private var number: Int64 = 0

        init(maxBytes: Int = EventRing.maxBytes, run: UInt64 = 10) {
            timer = try! TimerQueue(name: "timer", on: threads)
            stream = EventStream(feed, run: run, maxBytes: maxBytes, timer: timer, time: threads.time)
        }

        func record(_ type: EventType = .messageQueued, _ upstream: String = "one", count: Int = 1) {
            let ids = (0..<count).map { _ in
                number += 1
                return MessageID(rawValue: number)
            }
            feed.record(Event(type, UpstreamName(upstream)!, ids: ids))
        }

        /// Records an event and publishes it.
        func emit(_ type: EventType = .messageQueued, _ upstream: String = "one", count: Int = 1) {
            record(type, upstream, count: count)
            threads.advance(by: .seconds(1))
        }

        func listen(_ filter: StreamListener.Filter = .init(), bufferBytes: Int = 4096) -> ManualListener {
            let listener = ManualListener(stream, filter, bufferBytes: bufferBytes)
            _ = listener.read()
            return listener
        }

        deinit { timer.stop() }
    }

    @Test func event_isWrittenWithItsIDAndData() {
        let bench = Bench()
        let listener = bench.listen()
        bench.emit(.messageDelivered, count: 2)
        let event = listener.read().first
        #expect(event?.id == "a-2" && event?.type == "message.delivered")
        #expect(event?.data == #"{"upstream":"one","ids":["0000000000001","0000000000002"],"count":2}"#)
    }

    @Test func firstEvent_isReportedAtOnce_andFurtherOnesInRounds() {
        let bench = Bench()
        let listener = bench.listen()
        bench.record()
        bench.threads.turnAll()
        #expect(listener.wakes == 1 && listener.read().count == 1)
        for _ in 0..<10 {
            bench.record()
            bench.threads.advance(by: .milliseconds(9))
        }
        #expect(listener.wakes == 1 && listener.read().isEmpty)
        bench.threads.advance(by: .milliseconds(10))
        #expect(listener.wakes == 2)
        #expect(listener.read().map { $0.json["count"].int } == [10])
    }

    @Test func rounds_areATenthOfASecondApart_whileListenersReadOrLeave() {
        let bench = Bench()
        let listeners = (0..<EventStream.maxListeners).map { _ in bench.listen() }
        bench.record()
        bench.threads.turnAll()
        #expect(listeners.allSatisfy { $0.wakes == 1 })
        bench.record(count: 1000)
        let (reading, others) = (listeners[..<20], listeners[20...])
        for listener in reading { #expect(listener.read().map(\.ids.count) == [1]) }
        others.prefix(10).forEach { $0.leave() }
        bench.threads.advance(by: EventStream.roundTime - .milliseconds(1))
        #expect(reading.allSatisfy { $0.wakes == 1 })
        bench.threads.advance(by: .milliseconds(1))
        #expect(reading.allSatisfy { $0.wakes == 2 })
        for listener in reading { #expect(listener.read().map(\.ids.count) == [1000]) }
    }

    @Test func place_isFreeAgain_whenItsListenerHasLeft() {
        let bench = Bench()
        let listeners = (0..<EventStream.maxListeners).map { _ in bench.listen() }
        #expect(StreamPlace.take(in: bench.stream, for: nil) == nil)
        listeners[0].leave()
        let place = StreamPlace.take(in: bench.stream, for: "key")
        #expect(place != nil && StreamPlace.take(in: bench.stream, for: nil) == nil)
    }

    @Test func places_areLeftForOtherKeys() {
        let stream = Bench().stream
        func take(_ key: String?, _ count: Int) -> [StreamPlace] {
            (0..<count).compactMap { _ in StreamPlace.take(in: stream, for: key) }
        }
        var first = take("first", 33)
        #expect(first.count == EventStream.maxListenersOfKey)
        let others = [take("second", 31), take(nil, 1)]
        #expect(others.map(\.count) == [31, 1] && take("third", 1).isEmpty)
        first.removeLast()
        #expect(take("third", 1).count == 1)
    }

    @Test func filters_selectByTypeAndUpstream_andDoNotWakeForOthers() throws {
        let bench = Bench()
        let (one, two) = (try #require(UpstreamName("one")), try #require(UpstreamName("two")))
        let byType = bench.listen(.init(types: [.messageFailed, .messageExpired]))
        let byUpstream = bench.listen(.init(upstream: two))
        let byKey = bench.listen(.init(visible: [two]))
        let none = bench.listen(.init(upstream: one, visible: [two]))
        bench.emit(.messageQueued, "one")
        #expect(byType.wakes + byUpstream.wakes + byKey.wakes == 0)
        bench.emit(.messageFailed, "one")
        bench.emit(.messageFailed, "two")
        #expect(byType.read().map(\.type) == ["message.failed", "message.failed"])
        #expect(byUpstream.read().map { $0.json["upstream"].string } == ["two"])
        #expect(byKey.read().map { $0.json["upstream"].string } == ["two"])
        #expect(none.read().isEmpty && none.wakes == 0)
    }

    @Test func listenersWithTheSameFilter_areAllWoken_ifTheyWait() {
        let bench = Bench()
        let listeners = (0..<9).map { index in
            bench.listen(.init(types: [index % 3 == 0 ? .messageFailed : .messageExpired]))
        }
        bench.emit(.messageFailed)
        #expect(listeners.map(\.wakes) == [1, 0, 0, 1, 0, 0, 1, 0, 0])
        bench.emit(.messageFailed)
        #expect(listeners[0].wakes == 1, "it has not read yet")
        bench.emit(.messageExpired)
        #expect(listeners.map(\.wakes) == [1, 1, 1, 1, 1, 1, 1, 1, 1])
        #expect(listeners.map { $0.read().count } == [2, 1, 1, 2, 1, 1, 2, 1, 1])
    }

    @Test func heartbeat_isACommentEvery15Seconds() {
        let bench = Bench()
        let listener = bench.listen()
        #expect(listener.parser.comments == 1, "the first says that the stream has begun")
        bench.threads.advance(by: .milliseconds(14_900))
        #expect(listener.wakes == 0)
        for count in 2...10 {
            bench.threads.advance(by: .seconds(15))
            #expect(listener.wakes == count - 1)
            #expect(listener.read().isEmpty && listener.parser.comments == count)
        }
        #expect(listener.parser.text == String(repeating: ":\n", count: 10))
    }

    // MARK: Coming back

    @Test func returningListener_getsWhatItMissed() throws {
        let bench = Bench()
        let listener = bench.listen()
        for _ in 0..<3 { bench.emit() }
        let events = listener.read()
        listener.leave()
        bench.emit(.messageFailed)
        for (index, event) in events.enumerated() {
            let back = ManualListener(bench.stream, lastID: event.id)
            #expect(back.read().map(\.id) == events.dropFirst(index + 1).map(\.id) + ["a-5"])
            back.leave()
        }
        let filtered = ManualListener(bench.stream, .init(types: [.messageFailed]), lastID: events[0].id)
        #expect(filtered.read().map(\.type) == ["message.failed"])
    }

    @Test(arguments: ["a-0", "a-99", "b-2", "a", "a-", "-2", "a-x", "a-2-2", "", "a--2", "a-9223372036854775807"])
    func unknownID_getsAGapFirst(id: String) {
        let bench = Bench()
        let listener = bench.listen()
        bench.emit()
        #expect(listener.read().map(\.id) == ["a-2"])
        let back = ManualListener(bench.stream, .init(types: [.messageFailed]), lastID: id)
        let first = back.read()
        #expect(first.map(\.type) == ["gap"], "\(first)")
        #expect(first.first?.id == "a-2", "what follows can be resumed")
        bench.emit(.messageFailed)
        #expect(back.read().map(\.type) == ["message.failed"])
    }

    @Test func idOfAnEventThatTheRingHasLost_getsAGap() {
        let bench = Bench(maxBytes: 1000)
        let listener = bench.listen()
        var ids: [String] = []
        for _ in 0..<50 {
            bench.emit()
            ids += listener.read().map(\.id)
        }
        #expect(ids.count == 50)
        #expect(ManualListener(bench.stream, lastID: ids[0]).read().map(\.type) == ["gap"])
        #expect(ManualListener(bench.stream, lastID: ids[46]).read().map(\.id) == Array(ids[47...]))
    }

    @Test func collecting_goesOnForAMinute_afterTheLastListenerHasLeft() {
        let bench = Bench()
        let listener = bench.listen()
        bench.emit()
        let id = listener.read().last?.id ?? ""
        listener.leave()
        bench.threads.advance(by: .seconds(58))
        bench.emit()
        #expect(bench.feed.isCollecting)
        let back = ManualListener(bench.stream, lastID: id)
        #expect(back.read().map(\.type) == ["message.queued"])
        back.leave()
        bench.threads.advance(by: .seconds(80))
        #expect(!bench.feed.isCollecting)
        bench.emit()
        let late = ManualListener(bench.stream, lastID: id)
        #expect(late.read().map(\.type) == ["gap"])
        #expect(bench.feed.isCollecting)
        bench.emit()
        #expect(late.read().map(\.type) == ["message.queued"])
        bench.threads.advance(by: .seconds(300))
        #expect(
            late.read().isEmpty && late.parser.comments == 2, "one heartbeat is owed, however long it does not read")
    }

    // MARK: Polls

    @Test func poll_getsWhatHasHappened_pageByPage_andMissesNothing() {
        let bench = Bench()
        func poll(
            _ id: String?, _ filter: StreamListener.Filter = .init(), limit: Int = 3, maxBytes: Int = 1 << 20
        ) -> String {
            let found = bench.stream.poll(after: id, filter, limit: limit, maxBytes: maxBytes)
            let ids = found.events.map { JSON(Array($0.utf8))["id"].string ?? "" }
            return "\(ids.joined(separator: ",")) \(found.last)\(found.hasGap ? " gap" : "")"
        }
        #expect(poll(nil) == " a-1")
        for _ in 0..<5 { bench.emit() }
        #expect(poll("a-1") == "a-2,a-3,a-4 a-4")
        #expect(poll("a-4") == "a-5,a-6 a-6")
        #expect(poll("a-6") == " a-6")
        #expect(poll(nil) == "a-4,a-5,a-6 a-6", "the latest")
        #expect(poll("a-1", maxBytes: 1) == "a-2 a-2")
        #expect(poll("a-1", .init(types: [.messageFailed])) == " a-6")
        #expect(poll("b-1") == "a-2,a-3,a-4 a-4 gap")
    }

    @Test func event_isTheSameAsJSON() {
        let bench = Bench()
        let listener = bench.listen()
        bench.emit(.messageDelivered, count: 2)
        let told = listener.read()[0]
        let polled = bench.stream.poll(after: nil, .init(), limit: 1, maxBytes: 1).events
        #expect(polled.count == 1)
        let event = JSON(Array((polled.first ?? "").utf8))
        #expect(event.keys == ["id", "type", "at", "data"])
        #expect(event["id"].string == told.id && event["type"].string == told.type)
        #expect(polled.first?.hasSuffix(#","data":\#(told.data)}"#) == true)
        let moment = event["at"].string.flatMap { Timestamp(rfc3339: $0) }
        #expect(moment == bench.threads.time.now - .seconds(1))
    }

    @Test func polls_keepTheRingAlive_asListenersDo() {
        let bench = Bench()
        func poll(_ id: String?) -> (events: [String], last: String, hasGap: Bool) {
            bench.stream.poll(after: id, .init(), limit: 10, maxBytes: 1 << 20)
        }
        var last = poll(nil).last
        for _ in 0..<5 {
            bench.threads.advance(by: .seconds(58))
            bench.emit()
            let found = poll(last)
            #expect(found.events.count == 1 && !found.hasGap)
            last = found.last
        }
        bench.threads.advance(by: .seconds(80))
        #expect(!bench.feed.isCollecting)
        #expect(poll(last).hasGap && bench.feed.isCollecting)
    }

    /// A key of some upstreams learns nothing about others.
    @Test func eventThatConcernsNoSingleUpstream_isForThoseWhoMaySeeAll() {
        let bench = Bench()
        let (all, some) = (bench.listen(), bench.listen(.init(visible: [UpstreamName("one")!])))
        bench.feed.record(Event(.operationFinished, nil, count: 3, by: "a\"b", operation: "x-1"))
        bench.threads.advance(by: .seconds(1))
        #expect(
            all.read().map(\.data) == [#"{"upstream":null,"ids":[],"count":3,"operation":"x-1","by":"a\"b"}"#])
        #expect(some.read().isEmpty)
    }

    // MARK: Slow readers

    @Test func slowReader_isDropped_whenTheRingOvertakesIt_andHoldsUpNoOther() {
        let bench = Bench(maxBytes: 10_000)
        let (quick, slow) = (bench.listen(), bench.listen(bufferBytes: 50))
        let unconcerned = bench.listen(.init(types: [.flushFinished]))
        for _ in 0..<500 {
            bench.emit(count: 10)
            slow.readPart()
            #expect(quick.read().count == 1 && unconcerned.read().isEmpty)
        }
        #expect(slow.isCut && !quick.isCut && !unconcerned.isCut)
        while slow.readPart() {}
        #expect(slow.hasEnded, "nothing more is read for it")
        bench.emit(.flushFinished)
        #expect(unconcerned.read().count == 1)
    }

    /// The members of the SDK's response objects, after those that every event has.
    @Test func eventThatAnSDKNames_hasItsWords() {
        let ids = [MessageID(rawValue: 257), MessageID(rawValue: 513)]
        func data(_ named: NamedEvent?) -> String {
            var ring = EventRing(run: 1)
            let event = Event(.messageFailed, UpstreamName("seer")!, ids: ids, count: 3, named: named)
            ring.append(PublishedEvent(event), at: .never)
            let text = String(decoding: ring[1].text, as: UTF8.self)
            return text.split(separator: "\n").first { $0.hasPrefix("data: ") }.map { String($0.dropFirst(6)) } ?? ""
        }
        let list = "[\"\(ids[0])\",\"\(ids[1])\"]"
        let plain = "{\"upstream\":\"seer\",\"ids\":\(list),\"count\":3"
        #expect(data(nil) == plain + "}")
        let failed = NamedEvent(
            names: ["B", "R"], requestType: "R", kind: "activity", isSuccess: false, isQueued: false,
            failure: .init(code: 7, name: "E"))
        #expect(
            data(failed) == plain
                + #","sdk":{"events":["B","R"],"requestType":"R","kind":"activity","requestIds":"# + list
                + #","success":false,"queued":false,"error":{"code":7,"name":"E"}}}"#)
        let flushed = NamedEvent(names: ["Q"], requestType: "Q")
        #expect(data(flushed) == plain + #","sdk":{"events":["Q"],"requestType":"Q"}}"#)
        let fetched = NamedEvent(names: ["T"], requestType: nil, isSuccess: true)
        #expect(data(fetched) == plain + #","sdk":{"events":["T"],"requestType":null,"success":true,"error":null}}"#)
    }

    /// A listener that has stopped reading keeps only the ring in memory.
    @Test func ring_isBounded_whateverHappens() {
        var ring = EventRing(run: 1, maxBytes: 10_000)
        for number in 0..<10_000 {
            let event = Event(.messageQueued, UpstreamName("one")!, ids: [MessageID(rawValue: Int64(number))])
            ring.append(PublishedEvent(event), at: .never)
            _ = ring.trim()
            #expect(ring.entries.reduce(0) { $0 + $1.text.count } <= 10_000)
        }
        #expect(ring.next == 10_001)
    }

    // MARK: Ending

    @Test func close_tellsTheRest_endsStreams_andCutsThoseThatDoNotRead() {
        let bench = Bench()
        let (listener, deaf) = (bench.listen(), bench.listen(bufferBytes: 10))
        bench.emit()
        #expect(listener.read().count == 1)
        deaf.readPart()
        bench.record(.messageFailed)
        bench.stream.close()
        #expect(listener.read().map(\.type) == ["message.failed"] && listener.hasEnded)
        listener.leave()
        #expect(!deaf.isCut)
        bench.threads.advance(by: EventStream.endingTime)
        #expect(deaf.isCut && !listener.isCut)
        let late = ManualListener(bench.stream)
        #expect(late.read().isEmpty && late.hasEnded)
        #expect(!bench.feed.isCollecting)
    }
}
