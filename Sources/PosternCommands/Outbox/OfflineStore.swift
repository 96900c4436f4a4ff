import Logging
import PosternAPI
import PosternCore
import PosternMetrics
import PosternStore
import PosternThreads

/// A store that no gateway is using, opened to change messages in it.
struct OfflineStore {
    private let outbox: Outbox
    private static let pageSize = 500

    /// Nil if another process is using it, or can: a store in PostgreSQL is changed through its gateway only. A store that
    /// does not exist is not created.
    init?(_ location: OutboxOptions) throws(CommandFailure) {
        guard location.kind == .sqlite else { return nil }
        let path = location.path
        try location.requireFile()
        // Only the gateway removes old messages, by its own settings.
        let forever = Duration.seconds(100 * 365 * 86_400)
        var options = OutboxOptions(path: path)
        (options.deliveredRetention, options.failedRetention) = (forever, forever)
        (options.deliveredPayloadRetention, options.idempotencyRetention) = (forever, forever)
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
        return try onStore { () throws(StoreError) in try result.get() }
    }

    // MARK: Erasing

    func erase(_ query: EraseQuery) async throws(CommandFailure) -> EraseCounts {
        // Nothing is being sent, so nothing is waited for.
        let executor = EraseExecutor(run: { $0() }, later: { $1() }, isStopping: { false })
        let result: Result<EraseCounts, EraseFailure> = await withCheckedContinuation { continuation in
            outbox.erase(query.request(), on: executor) { continuation.resume(returning: $0) }
        }
        return try result.mapError { CommandFailure(CommandFailure.no, $0.detail) }.get()
    }

    // MARK: Retrying, cancelling, and purging

    func edit(
        _ action: MessageAction, _ selection: OutboxEditor.Selection, isPreview: Bool
    ) async throws(CommandFailure) -> OutboxEditResult {
        var edit = OutboxEditResult(action, isPreview: isPreview)
        switch selection {
        case .ids(let ids):
            let done = Set(try await result { outbox.perform(action, on: ids, completion: $0) })
            edit.count = done.count
            for id in ids where !done.contains(id) { edit.refused.append(.init(id, try reason(id, action))) }
        case .all(let filter):
            try await forEachPage(of: filter) { (ids) async throws(CommandFailure) in
                edit.count +=
                    isPreview
                    ? ids.count
                    : try await result { outbox.perform(action, on: ids, in: filter.state, completion: $0) }.count
            }
        }
        return edit
    }

    /// Page by page, so that no transaction grows with the number of messages.
    private func forEachPage(
        of filter: MessageFilter, _ body: ([MessageID]) async throws(CommandFailure) -> Void
    ) async throws(CommandFailure) {
        var cursor: MessageID?
        repeat {
            let page = try onStore { () throws(StoreError) in
                try outbox.messages(filter, after: cursor, limit: Self.pageSize)
            }
            try await body(page.messages.map(\.id))
            cursor = page.next
        } while cursor != nil
    }

    private func reason(_ id: MessageID, _ action: MessageAction) throws(CommandFailure) -> String {
        action.refusal(of: try onStore { () throws(StoreError) in try outbox.message(id) })
    }
}
