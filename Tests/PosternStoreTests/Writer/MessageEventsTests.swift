import PosternCore
import PosternEvents
import Testing

@testable import PosternStore

@Suite(.eachEngine) struct MessageEventsTests {
    private func id(_ sequence: Int64, of upstream: UInt8 = 1) -> MessageID {
        MessageID(sequence: sequence, upstream: UpstreamNumber(rawValue: upstream))
    }

    private func shown(_ events: MessageEvents) -> [String] {
        events.runs.map { run in
            "\(run.type.rawValue) \(run.upstream.rawValue) \(run.kind)\(run.isAgain ? " again" : "") \(run.ids.count)"
        }
    }

    @Test func consecutiveMessages_areOneRun_ifAllElseIsEqual() {
        var events = MessageEvents()
        events.add(.messageQueued, of: id(1), "a", isAgain: false)
        events.add(.messageQueued, of: id(2), "a", isAgain: false)
        events.add(.messageQueued, of: id(3), "b", isAgain: false)
        events.add(.messageQueued, of: id(4), "b", isAgain: true)
        events.add(.messageFailed, of: id(5), "b", isAgain: true)
        events.add(.messageFailed, of: id(6, of: 2), "b", isAgain: true)
        events.add(.messageFailed, of: id(7, of: 2), "b", isAgain: true)
        events.add(.messageFailed, of: id(8, of: 2), "b", isAgain: true, by: "key")
        #expect(
            shown(events) == [
                "message.queued 1 a 2", "message.queued 1 b 1", "message.queued 1 b again 1",
                "message.failed 1 b again 1", "message.failed 2 b again 2", "message.failed 2 b again 1",
            ])
    }

    /// What a savepoint undoes is not told, neither runs of its own nor what it added to an earlier one.
    @Test func undoneMessages_areRemoved() {
        var events = MessageEvents()
        events.remove(from: events.end)
        #expect(events.runs.isEmpty)
        events.add(.messageQueued, of: id(1), "a", isAgain: false)
        let position = events.end
        events.add(.messageQueued, of: id(2), "a", isAgain: false)
        events.add(.messageDropped, of: id(3), "a", isAgain: false)
        events.remove(from: position)
        #expect(shown(events) == ["message.queued 1 a 1"])
        #expect(events.runs.first?.ids == [id(1)])
    }
}
