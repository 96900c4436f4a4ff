import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

/// Alerts, as the store keeps them. When they are due is tested with the API.
@Suite(.eachEngine) struct AlertTests {
    private struct Bench {
        let store: TestStore
        let hooks: UpstreamQueue
        let others: UpstreamQueue

        init(_ cap: QueueCap = QueueCap(), in upstreams: Set<UpstreamName>? = nil) throws {
            store = try TestStore()
            hooks = try store.register(PlainUpstream("hooks"), cap: cap)
            others = try store.register(PlainUpstream("others"))
            store.outbox.setCallbacks([
                Self.callback(to: hooks, of: [.upstreamDown, .diskFull], in: upstreams),
                Self.callback(to: others, of: [.diskFull], in: nil),
            ])
        }

        private static func callback(
            to queue: UpstreamQueue, of alerts: Set<AlertEvent>, in upstreams: Set<UpstreamName>?
        ) -> Callback {
            Callback(
                to: queue.target, as: "thing", of: [.delivered], in: upstreams, includesPayload: false, alerts: alerts,
                alertLane: { .digest(Int64($0.count)) }, events: { $0.map { _ in Callback.Event([], lane: .none) } })
        }

        func tell(_ keys: AlertKey..., after former: String? = nil, record: String) throws -> AlertOutcome {
            let alerts = keys.map { Alert($0, Array("\($0)".utf8)) }
            return try store.threads.result { done in
                store.outbox.tell(alerts, after: former.map { Array($0.utf8) }) { own in
                    Array((record + (own.isEmpty ? "" : " \(own.values.reduce(0, +))")).utf8)
                } completion: {
                    done($0)
                }
            }
        }

        func stored() throws -> String? { try store.outbox.alertRecord().map { String(decoding: $0, as: UTF8.self) } }

        func events(of queue: UpstreamQueue) throws -> [String] {
            try store.outbox.read { sql in
                try sql.all("SELECT payload FROM queue_# ORDER BY id", of: queue.number) { row in
                    String(decoding: row[0] as [UInt8], as: UTF8.self)
                }
            }
        }
    }

    private static let down = AlertKey(.upstreamDown, UpstreamName("work"))
    private static let full = AlertKey(.diskFull, nil)

    @Test func alert_isStoredWithItsRecord_orNeither() throws {
        let bench = try Bench()
        #expect(try bench.stored() == nil)
        guard case .told(let record, _) = try bench.tell(Self.down, Self.full, record: "a") else {
            Issue.record("nothing was stored")
            return
        }
        #expect(try record == Array("a 0".utf8) && bench.stored() == "a 0")
        #expect(try bench.events(of: bench.hooks) == ["upstream.down/work", "disk.full"])
        #expect(try bench.events(of: bench.others) == ["disk.full"])
        let claimed = try bench.store.claim(bench.hooks).messages
        #expect(claimed.map(\.key) == ["upstream.down/work", "disk.full"] && claimed.map(\.lane).first == .digest(18))
        // Another one was stored meanwhile.
        #expect(try bench.tell(Self.full, after: "z", record: "b") == .outdated(record: Array("a 0".utf8)))
        #expect(try bench.tell(Self.full, record: "b") == .outdated(record: Array("a 0".utf8)))
        #expect(try bench.stored() == "a 0" && bench.store.outbox.ledger(of: bench.others.number).accepted == 1)
        try bench.store.reopen()
        #expect(try bench.stored() == "a 0")
        #expect(try bench.store.isBalanced())
    }

    @Test func callback_isToldOfItsUpstreams_andOfTheGateway() throws {
        let bench = try Bench(in: [try #require(UpstreamName("work"))])
        let other = AlertKey(.upstreamDown, UpstreamName("other"))
        _ = try bench.tell(other, Self.full, record: "a")
        #expect(try bench.events(of: bench.hooks) == ["disk.full"])
        #expect(bench.store.outbox.tells(Self.down) && !bench.store.outbox.tells(other))
        #expect(bench.store.outbox.tells(Self.full) && !bench.store.outbox.tells(AlertKey(.queueOld, other.upstream)))
    }

    @Test func alert_isNotReportedByCallbacks() throws {
        let bench = try Bench()
        _ = try bench.tell(Self.down, record: "a")
        try bench.store.deliver(bench.store.claim(bench.hooks).messages, of: bench.hooks)
        #expect(bench.store.outbox.ledger(of: bench.hooks.number).accepted == 1)
    }

    @Test(arguments: [QueueCap.WhenFull.reject, .dropOldest])
    func alertWithoutRoom_isDropped_andDoesNotCountAsDroppedMessage(whenFull: QueueCap.WhenFull) throws {
        let bench = try Bench(QueueCap.with { ($0.maxMessages, $0.whenFull) = (1, whenFull) })
        let id = try bench.store.append("kept", to: bench.hooks)
        guard case .told(_, let own) = try bench.tell(Self.full, record: "a") else {
            Issue.record("nothing was stored")
            return
        }
        #expect(try own == [bench.hooks.target.name: 1, bench.others.target.name: 0] && bench.stored() == "a 1")
        #expect(try bench.events(of: bench.hooks) == ["kept"], "nothing is dropped for an alert")
        #expect(bench.store.outbox.ledger(of: bench.hooks.number).dropped == 1)
        #expect(try bench.events(of: bench.others) == ["disk.full"])
        #expect(try bench.store.record(id)?.state == .queued)
        #expect(try bench.store.isBalanced())
    }

    @Test func alertWithoutDisk_isNotTold() throws {
        let bench = try Bench()
        _ = bench.store.outbox.health.becomes(.full, because: .full(detail: "for the test"))
        #expect(try bench.tell(Self.full, record: "a") == .noRoom)
        #expect(try bench.stored() == nil && bench.events(of: bench.others) == [])
    }
}
