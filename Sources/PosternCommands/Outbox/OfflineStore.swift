import Glibc
import Logging
import PosternCore
import PosternMetrics
import PosternStore

/// A store that no gateway is using, opened to change messages in it.
struct OfflineStore {
    private let outbox: Outbox
    private static let pageSize = 500

    /// Nil if another process is using it. A store that does not exist is not created.
    init?(_ path: String) throws(CommandFailure) {
        guard access(path, F_OK) == 0 else {
            throw CommandFailure(
                CommandFailure.noStore, "There is no store at \(path): \(String(cString: strerror(errno))).")
        }
        // Only the gateway removes old messages, by its own settings.
        let forever = Duration.seconds(100 * 365 * 86_400)
        var options = OutboxOptions(path: path)
        (options.deliveredRetention, options.failedRetention) = (forever, forever)
        options.idempotencyRetention = forever
        do throws(StoreError) {
            outbox = try Outbox(
                options, time: SystemTime(), threads: DedicatedThreads(), metrics: Metrics(),
                logger: Logger(label: "postern.outbox"))
        } catch .alreadyRunning {
            return nil
        } catch {
            throw CommandFailure(error)
        }
        do throws(StoreError) {
            try outbox.registerStored()
        } catch {
            outbox.close()
            throw CommandFailure(error)
        }
    }

    func close() { outbox.close() }

    /// Waits for the result from the writer's thread.
    private func result<Value: Sendable>(
        _ start: (@escaping @Sendable (Result<Value, StoreError>) -> Void) -> Void
    ) async throws(CommandFailure) -> Value {
        let result: Result<Value, StoreError> = await withCheckedContinuation { continuation in
            start { continuation.resume(returning: $0) }
        }
        do throws(StoreError) { return try result.get() } catch { throw CommandFailure(error) }
    }

    // MARK: Retrying

    func retry(_ ids: [MessageID]) async throws(CommandFailure) -> OutboxEditResult {
        let done = Set(try await result { outbox.requeue(ids, completion: $0) })
        var edit = OutboxEditResult(.retried, count: done.count)
        for id in ids where !done.contains(id) {
            edit.refused.append(.init(id, try reason(id, "only failed or dropped ones can be sent again")))
        }
        return edit
    }

    func retry(_ filter: MessageFilter) async throws(CommandFailure) -> OutboxEditResult {
        var edit = OutboxEditResult(.retried)
        try await forEachPage(of: filter) { (ids) async throws(CommandFailure) in
            edit.count += try await result { outbox.requeue(ids, completion: $0) }.count
        }
        return edit
    }

    /// Page by page, so that no transaction grows with the number of messages.
    private func forEachPage(
        of filter: MessageFilter, _ body: ([MessageID]) async throws(CommandFailure) -> Void
    ) async throws(CommandFailure) {
        var cursor: MessageID?
        repeat {
            let page: (messages: [MessageRecord], next: MessageID?)
            do throws(StoreError) {
                page = try outbox.messages(filter, after: cursor, limit: Self.pageSize)
            } catch {
                throw CommandFailure(error)
            }
            try await body(page.messages.map(\.id))
            cursor = page.next
        } while cursor != nil
    }

    // MARK: Cancelling

    func cancel(_ ids: [MessageID]) async throws(CommandFailure) -> OutboxEditResult {
        var edit = OutboxEditResult(.cancelled)
        for id in ids {
            if try await result({ outbox.cancel([id], completion: $0) }).isEmpty {
                edit.refused.append(.init(id, try reason(id, "only a queued one can be cancelled")))
            } else {
                edit.count += 1
            }
        }
        return edit
    }

    func cancel(_ filter: MessageFilter, isPreview: Bool) async throws(CommandFailure) -> OutboxEditResult {
        var edit = OutboxEditResult(.cancelled, isPreview: isPreview)
        try await forEachPage(of: filter) { (ids) async throws(CommandFailure) in
            edit.count +=
                isPreview ? ids.count : try await result { outbox.cancel(ids, completion: $0) }.count
        }
        return edit
    }

    private func reason(_ id: MessageID, _ rule: String) throws(CommandFailure) -> String {
        do throws(StoreError) {
            guard let record = try outbox.message(id) else { return "there is no such message in the store" }
            return "the message is \(record.state.name); \(rule)"
        } catch {
            throw CommandFailure(error)
        }
    }

    // MARK: Purging

    func purge(_ request: PurgeRequest) async throws(CommandFailure) -> Int {
        try await result { outbox.purge(request, completion: $0) }
    }
}
