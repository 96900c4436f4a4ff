import GRDB
import Logging
import PosternCore
import Synchronization

/// Runs SQLite's `quick_check` when the store is opened.
///
/// A small store is checked before anything starts. The check of a larger one (reading five million rows takes seconds)
/// continues while the gateway runs, on a read-only connection; damage that is found then makes the gateway unready.
final class IntegrityCheck: Loop {
    static let patience = Duration.milliseconds(400)

    let name = "postern-check"
    private let path: String
    private let logger: Logger
    private let queue: DatabaseQueue
    private let found = Mutex<String?>(nil)
    private let isStopping = Atomic<Bool>(false)
    private let outcome = Inbox<Bool>()
    private let running = Mutex<(any RunningLoop)?>(nil)

    init(path: String, on threads: any Threads, logger: Logger) throws {
        self.path = path
        self.logger = logger
        queue = try StoreFile.openForReading(path)
        running.withLock { $0 = threads.start(self) }
        let outcomes = threads.take(from: outcome, until: threads.instant + Self.patience)
        if outcomes.contains(false), let damage {
            stop()
            throw StoreError.corrupt(path: path, detail: damage)
        }
    }

    /// The whole check is one turn.
    func turn(at now: MonotonicInstant) -> MonotonicInstant? {
        let damage = check(queue)
        if let damage, !isStopping.load(ordering: .acquiring) {
            found.withLock { $0 = damage }
            logger.error("the store is damaged", metadata: ["store.path": "\(path)", "detail": "\(damage)"])
        }
        outcome.put(damage == nil)
        return nil
    }

    func wait(until deadline: MonotonicInstant) -> Bool { false }

    /// Reads the whole file on a separate connection, whose cache is empty.
    static func isSound(_ path: String) throws -> Bool {
        let queue = try StoreFile.openForReading(path)
        defer { try? queue.close() }
        return check(queue) == nil
    }

    /// The findings of `quick_check`; nil if there are none. It reports a failed read as damage, so a finding is
    /// checked a second time: what the disk reads the second time is not damaged.
    static func damage(in queue: DatabaseQueue) throws -> String? {
        do {
            if try find(in: queue) == nil { return nil }
        } catch let error as DatabaseError where error.resultCode != .SQLITE_INTERRUPT {
        }
        return try find(in: queue)
    }

    private static func find(in queue: DatabaseQueue) throws -> String? {
        let lines = try queue.read { db in try SQL(db).all("PRAGMA quick_check(1)") { $0[0] as String } }
        return lines == ["ok"] ? nil : lines.joined(separator: "; ")
    }

    var damage: String? { found.withLock { $0 } }

    func stop() {
        isStopping.store(true, ordering: .releasing)
        queue.interrupt()
        running.withLock { $0.take() }?.join()
        try? queue.close()
    }
}

/// The damage of the file; nil if there is none, or if the check was interrupted.
private func check(_ queue: DatabaseQueue) -> String? {
    do {
        return try IntegrityCheck.damage(in: queue)
    } catch let error as DatabaseError where error.resultCode == .SQLITE_INTERRUPT {
        return nil
    } catch {
        return "\(error)"
    }
}
