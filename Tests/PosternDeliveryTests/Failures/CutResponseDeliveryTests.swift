import Logging
import PosternCore
import PosternFaultServer
import PosternHTTP
import PosternMetrics
import PosternStore
import PosternTestKit
import PosternThreads
import PosternTransport
import PosternUpstream
import SamsaraAdapter
import Synchronization
import Testing
import WebhookAdapter

@testable import PosternDelivery

/// Delivery over a real socket to a receiver that sends the header of its response and cuts the body.
@Suite(.timeLimit(.minutes(10))) struct CutResponseDeliveryTests {
    private static let url = "http://127.0.0.1"

    @Test func success_isDeliveredOnce() throws {
        let bench = try Bench(.webhook, answering: "HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n{\"ok\":true}")
        let id = try bench.post("event", "{}")
        #expect(try eventually { try bench.state(id) == .delivered })
        #expect(bench.receiver.requests == 1)
        #expect(bench.ledger.ambiguousSends == 0)
    }

    @Test func refusal_failsTheMessage() throws {
        let bench = try Bench(.webhook, answering: "HTTP/1.1 400 No\r\nContent-Length: 40\r\n\r\nno such")
        let id = try bench.post("event", "{}")
        #expect(try eventually { try bench.state(id) == .failed })
        #expect(bench.receiver.requests == 1)
    }

    @Test func retryAfter_isObeyed() throws {
        let bench = try Bench(
            .webhook, answering: "HTTP/1.1 429 Slow\r\nRetry-After: 60\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nsl")
        _ = try bench.post("event", "{}")
        #expect(eventually { bench.reopensIn > .seconds(30) })
        #expect(bench.receiver.requests == 1)
    }

    /// Which events a 400 of Samsara means is in its body: the send is repeated, and counted each time.
    @Test func bodyThatMatters_isNotGuessed_andTheSendIsCounted() throws {
        let bench = try Bench(.samsara, answering: "HTTP/1.1 400 No\r\nContent-Length: 40\r\n\r\n[\"OK\"")
        let event = #"{"sourceId":"s","timestamp":1479988864057,"eventName":"e"}"#
        let id = try bench.post("event", event)
        #expect(eventually { bench.receiver.requests > 2 })
        #expect(bench.ledger.ambiguousSends >= 1)
        #expect(try bench.state(id) == .queued)
    }

    private final class Receiver: FaultHandler {
        private let text: String
        private let count = Atomic(0)
        init(_ text: String) { self.text = text }

        var requests: Int { count.load(ordering: .acquiring) }

        func answer(_ request: IncomingRequest, _ responder: FaultResponder) {
            count.add(1, ordering: .acquiringAndReleasing)
            responder.respondRaw(Array(text.utf8))
        }
    }

    /// A worker with the real transport, and a receiver.
    private final class Bench {
        let receiver: Receiver
        private let http: FaultServer
        private let folder = ScratchFolder()
        private let outbox: Outbox
        private let transport: CurlLoop
        private let group: WorkerGroup
        private var worker: UpstreamWorker { group.workers[0] }

        init(_ type: UpstreamType, answering text: String) throws {
            let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
            receiver = Receiver(text)
            http = try FaultServer(
                HTTPServerSettings { ($0.port, $0.workerThreads) = (0, 1) }, handler: receiver, logger: logger)
            let url = "http://127.0.0.1:\(try http.start())"
            let (time, metrics) = (SystemTime(), Metrics())
            outbox = try Outbox(
                OutboxOptions(path: folder.file("store.sqlite")), time: time, threads: DedicatedThreads(),
                metrics: metrics, logger: logger)
            transport = try CurlLoop(.init(version: "test"))
            let upstream = try type.make(#require(UpstreamName("hook")), ["url": .text(url)])
            var settings = DeliverySettings()
            settings.batchMaxWait = .zero
            settings.retry = RetryPolicy(base: .milliseconds(5), longest: .milliseconds(20))
            let queue = try outbox.adopt(outbox.register(upstream, type: type.name, cap: QueueCap()))
            let worker = try UpstreamWorker(
                queue: queue, settings: settings,
                dependencies: .init(outbox: outbox, transport: transport, time: time, metrics: metrics, logger: logger))
            group = WorkerGroup([worker], outbox: outbox, time: time)
            try group.start()
        }

        deinit {
            group.stop(deadline: SystemTime().instant) { transport.stop() }
            outbox.close()
            http.stop()
        }

        var ledger: Ledger { outbox.ledger(of: worker.queue.number) }
        /// How long the upstream's circuit stays open.
        var reopensIn: Duration {
            if case .open(let until) = worker.snapshot.circuit { until - SystemTime().now } else { .zero }
        }

        func state(_ id: MessageID) throws -> MessageState { try #require(try outbox.message(id)).state }

        func post(_ kind: Kind, _ payload: String) throws -> MessageID {
            let done = Inbox<[MessageID]>()
            let message = NewMessage(
                queue: worker.queue.target, kind: kind, lane: .none, acceptedAt: SystemTime().now,
                bytes: Array(payload.utf8))
            outbox.append([message]) { done.put((try? $0.get())?.ids ?? []) }
            let ids = done.takeAll(waitingUntil: SystemTime().instant + .seconds(20)).flatMap { $0 }
            return try #require(ids.first)
        }
    }
}
