import PosternCore
import PosternStore
import PosternThreads
import Synchronization

/// What became of a bulk request so far. Any thread.
final class BulkOperation: Sendable {
    struct Progress: Sendable {
        var done = 0
        /// The first messages that were not changed, and why.
        var skipped: [(id: MessageID, detail: String)] = []
        var skippedCount = 0
        /// Nil while it is running.
        var finishedAt: Timestamp?
        /// Whether it was stopped before its end.
        var isStopped = false
        /// Why it has ended early; nil unless the store failed.
        var error: String?
    }

    static let maxSkipped = 100

    /// Nil for one whose caller waits for its end. It is not listed.
    let id: String?
    let action: MessageAction
    /// Those of its messages. Only who may use all of them sees the operation, and its caller.
    let upstreams: Set<UpstreamName>
    /// The name of the caller's key; nil without one.
    let by: String?
    let startedAt: Timestamp
    /// How many messages matched when it began.
    let matched: Int
    private let state = Mutex(Progress())

    init(
        _ request: BulkRequest, id: String? = nil, of upstreams: Set<UpstreamName> = [], matched: Int = 0, by: String?,
        at startedAt: Timestamp
    ) {
        self.id = id
        action = request.action
        self.upstreams = upstreams
        self.matched = matched
        self.by = by
        self.startedAt = startedAt
    }

    var progress: Progress { state.withLock { $0 } }
    var isRunning: Bool { progress.finishedAt == nil }
    /// The upstream of all its messages; nil if there are several.
    var upstream: UpstreamName? { upstreams.count == 1 ? upstreams.first : nil }

    /// One whose messages are of no known upstream is its caller's, and for those who may use all upstreams.
    func isVisible(to caller: Caller?) -> Bool {
        guard let key = caller?.key, let own = key.upstreams else { return true }
        return key.name == by || !upstreams.isEmpty && upstreams.isSubset(of: own)
    }

    /// Ends it after the current step.
    func stop() {
        state.withLock { state in if state.finishedAt == nil { state.isStopped = true } }
    }

    fileprivate func add(done: Int, skipped: [(id: MessageID, detail: String)], of count: Int) {
        state.withLock { state in
            state.done += done
            state.skipped += skipped
            state.skippedCount += count
        }
    }

    /// `error`: see `Progress`. What matched at the beginning and did not any more was skipped, too.
    func finish(at moment: Timestamp, _ error: StoreError?) {
        state.withLock { state in
            if error == nil, !state.isStopped { state.skippedCount = max(state.skippedCount, matched - state.done) }
            state.finishedAt = moment
            state.error = error.map { "\($0)" }
        }
    }
}

/// Carries out a bulk request in steps of `BulkRequest.messagesPerStep`, each a commit of its own: the writer is free
/// between them, and no transaction grows with the number of messages.
struct BulkRun: Sendable {
    let request: BulkRequest
    private let context: APIContext

    init(_ request: BulkRequest, _ context: APIContext) {
        self.request = request
        self.context = context
    }

    /// How many messages match. Changes none.
    func count(_ completion: @escaping @Sendable (Result<Int, StoreError>) -> Void) {
        if let count = request.countInLedger(of: context.outbox) { return completion(.success(count)) }
        count(after: nil, 0, completion)
    }

    private func count(
        after cursor: MessageID?, _ count: Int, _ completion: @escaping @Sendable (Result<Int, StoreError>) -> Void
    ) {
        context.readers.run {
            do throws(StoreError) {
                let page = try request.page(of: context.outbox, after: cursor)
                guard let next = page.next else { return completion(.success(count + page.ids.count)) }
                self.count(after: next, count + page.ids.count, completion)
            } catch {
                completion(.failure(error))
            }
        }
    }

    /// Changes the messages that match, until the end, a failure, which `completion` gets, or `BulkOperation.stop`.
    func change(_ operation: BulkOperation, _ completion: @escaping @Sendable (StoreError?) -> Void) {
        context.readers.run { step(operation, after: nil, completion) }
    }

    /// On a thread that may read.
    private func step(
        _ operation: BulkOperation, after cursor: MessageID?, _ completion: @escaping @Sendable (StoreError?) -> Void
    ) {
        guard !operation.progress.isStopped else { return completion(nil) }
        let page: BulkRequest.Page
        do throws(StoreError) { page = try request.page(of: context.outbox, after: cursor) } catch {
            return completion(error)
        }
        let goOn: @Sendable (Set<MessageID>) -> Void = { done in
            do throws(StoreError) {
                let left = page.ids.filter { !done.contains($0) } + page.others
                operation.add(done: done.count, skipped: try reasons(of: left, operation), of: left.count)
            } catch {
                return completion(error)
            }
            guard let next = page.next else { return completion(nil) }
            context.readers.run { step(operation, after: next, completion) }
        }
        guard !page.ids.isEmpty else { return goOn([]) }
        context.outbox.perform(request.action, on: page.ids, in: request.filter.state, by: operation.by) { result in
            switch result {
            case .success(let done): context.readers.run { goOn(Set(done)) }
            case .failure(let error): completion(error)
            }
        }
    }

    /// Why the first of `ids` were not changed, as many as are shown.
    private func reasons(
        of ids: [MessageID], _ operation: BulkOperation
    ) throws(StoreError) -> [(id: MessageID, detail: String)] {
        guard operation.id != nil, !ids.isEmpty else { return [] }
        var reasons: [(id: MessageID, detail: String)] = []
        for id in ids.prefix(BulkOperation.maxSkipped - operation.progress.skipped.count) {
            reasons.append((id, request.refusal(of: try context.outbox.message(id))))
        }
        return reasons
    }
}
