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

    private let reading: Reading
    private let thread: any RunningLoop

    init(path: String, on threads: any Threads, logger: Logger) throws {
        reading = try Reading(path, logger)
        thread = threads.start(reading)
        let outcomes = threads.take(from: reading.outcome, until: threads.instant + Self.patience)
        if outcomes.contains(false), let damage {
            stop()
            throw StoreError.corrupt(path: path, detail: damage)
        }
    }

    /// The whole check is one turn.
    private final class Reading: Loop {
        let name = "postern-check"
        let queue: DatabaseQueue
        let damage = Mutex<String?>(nil)
        let isStopping = Atomic<Bool>(false)
        let outcome = Inbox<Bool>()
        private let path: String
        private let logger: Logger

        init(_ path: String, _ logger: Logger) throws {
            var configuration = Configuration()
            configuration.readonly = true
            queue = try DatabaseQueue(path: path, configuration: configuration)
            self.path = path
            self.logger = logger
        }

        func turn(at now: MonotonicInstant) -> MonotonicInstant? {
            let damage = check(queue)
            if let damage, !isStopping.load(ordering: .acquiring) {
                self.damage.withLock { $0 = damage }
                logger.error("the store is damaged", metadata: ["store.path": "\(path)", "detail": "\(damage)"])
            }
            outcome.put(damage == nil)
            return nil
        }

        func wait(until deadline: MonotonicInstant) -> Bool { false }
    }

    /// Reads the whole file through a connection of its own, whose cache is empty.
    static func isSound(_ path: String) throws -> Bool {
        var configuration = Configuration()
        configuration.readonly = true
        let queue = try DatabaseQueue(path: path, configuration: configuration)
        defer { try? queue.close() }
        return check(queue) == nil
    }

    var damage: String? { reading.damage.withLock { $0 } }

    func stop() {
        reading.isStopping.store(true, ordering: .releasing)
        reading.queue.interrupt()
        thread.join()
        try? reading.queue.close()
    }
}

/// What is wrong with the file; nil if nothing is, or if the check was interrupted.
private func check(_ queue: DatabaseQueue) -> String? {
    do {
        let lines = try queue.read { db in try SQL(db).all("PRAGMA quick_check(1)") { $0[0] as String } }
        return lines == ["ok"] ? nil : lines.joined(separator: "; ")
    } catch let error as DatabaseError where error.resultCode == .SQLITE_INTERRUPT {
        return nil
    } catch {
        return "\(error)"
    }
}
