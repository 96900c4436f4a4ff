import Logging
import PosternCore
import PosternMetrics
import PosternSimulatedDisk
import PosternTestKit
import Testing

@testable import PosternStore

/// A store on a simulated disk, and the processes that run on it one after the other.
struct DiskStore {
    let disk: SimulatedDisk
    let time = ManualTime()

    init(seed: Int) { disk = SimulatedDisk(seed: UInt64(seed)) }

    struct Process {
        let outbox: Outbox
        let queue: UpstreamQueue
        let threads: ManualThreads

        func message(length: Int = 100) -> NewMessage {
            let text = "{\"text\":\"\(String(repeating: "x", count: length))\"}"
            return NewMessage(queue: queue.target, kind: "thing", acceptedAt: outbox.time.now, bytes: Array(text.utf8))
        }

        /// Stores messages, and throws unless that is answered as done. Returns the id of the first.
        @discardableResult func append(_ count: Int = 1, length: Int = 100) throws -> MessageID {
            let messages = Array(repeating: message(length: length), count: count)
            return try threads.result { outbox.append(messages, completion: $0) }.ids[0]
        }

        func ids() throws -> Set<MessageID> {
            try outbox.read { sql in
                Set(try sql.all("SELECT id FROM queued_#", of: queue.number) { $0[0] as MessageID })
            }
        }

        /// What the audit and SQLite find wrong.
        func findings() throws -> [String] {
            let integrity = try outbox.read { try $0.value("PRAGMA integrity_check(1)", as: String.self) } ?? "no check"
            return try outbox.audit().accounts.flatMap(\.findings) + (integrity == "ok" ? [] : [integrity])
        }
    }

    /// What a process finds in the store, and the errors among it.
    struct Contents: Equatable {
        let ids: Set<MessageID>
        let findings: [String]
    }

    func contents(recover: Bool = false) throws -> Contents {
        try run(recover: recover) { Contents(ids: try $0.ids(), findings: try $0.findings()) }
    }

    /// Runs `body` in a process that ends with it, without closing the store unless that is asked for. `kill()` or
    /// `powerCut()` of the disk follows.
    @discardableResult func run<T>(
        startFresh: Bool = false, recover: Bool = false, closing: Bool = false, _ body: (Process) throws -> T
    ) throws -> T {
        let threads = ManualThreads(time: time)
        defer { threads.abandon() }
        let outbox = try Outbox(
            OutboxOptions(path: disk.path("store.sqlite")), startFresh: startFresh, recover: recover, time: time,
            threads: threads, metrics: Metrics(), logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        let queue = try outbox.adopt(outbox.register(PlainUpstream(), type: "plain", cap: QueueCap()))
        let result = try body(Process(outbox: outbox, queue: queue, threads: threads))
        if closing { outbox.close() }
        return result
    }
}
