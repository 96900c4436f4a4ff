import GRDB
import Logging
import PosternCore
import Synchronization

/// Runs SQLite's `quick_check` when the store is opened.
///
/// A small store is checked before anything starts. One that takes longer than the patience of a start (reading five
/// million rows takes seconds) is checked on while the gateway works, on a read-only connection; damage found then
/// makes it unready.
final class IntegrityCheck: Sendable {
    static let patience = Duration.milliseconds(400)

    private let queue: DatabaseQueue
    private let thread: DedicatedThread
    private let found: Finding

    private final class Finding: Sendable {
        let damage = Mutex<String?>(nil)
        let isStopping = Atomic<Bool>(false)
        let outcome = Inbox<Bool>()
    }

    init(path: String, logger: Logger) throws {
        var configuration = Configuration()
        configuration.readonly = true
        let queue = try DatabaseQueue(path: path, configuration: configuration)
        let found = Finding()
        self.queue = queue
        self.found = found
        thread = DedicatedThread(name: "postern-check") {
            let damage = Self.check(queue)
            if let damage, !found.isStopping.load(ordering: .acquiring) {
                found.damage.withLock { $0 = damage }
                logger.error("the store is damaged", metadata: ["store.path": "\(path)", "detail": "\(damage)"])
            }
            found.outcome.put(damage == nil)
        }
        let deadline = SystemTime().instant + Self.patience
        if found.outcome.takeAll(waitingUntil: deadline).contains(false), let damage = self.damage {
            stop()
            throw StoreError.corrupt(path: path, detail: damage)
        }
    }

    /// Reads the whole file through a connection of its own, whose cache is empty.
    static func isSound(_ path: String) throws -> Bool {
        var configuration = Configuration()
        configuration.readonly = true
        let queue = try DatabaseQueue(path: path, configuration: configuration)
        defer { try? queue.close() }
        return check(queue) == nil
    }

    private static func check(_ queue: DatabaseQueue) -> String? {
        do {
            let lines = try queue.read { db in try SQL(db).all("PRAGMA quick_check(1)") { $0[0] as String } }
            return lines == ["ok"] ? nil : lines.joined(separator: "; ")
        } catch let error as DatabaseError where error.resultCode == .SQLITE_INTERRUPT {
            return nil
        } catch {
            return "\(error)"
        }
    }

    var damage: String? { found.damage.withLock { $0 } }

    func stop() {
        found.isStopping.store(true, ordering: .releasing)
        queue.interrupt()
        thread.join()
        try? queue.close()
    }
}
