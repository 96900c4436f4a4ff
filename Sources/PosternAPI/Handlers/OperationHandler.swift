import Logging
import PosternCore
import PosternEvents
import PosternHTTP
import PosternStore
import PosternThreads
import Synchronization

/// The bulk requests that are carried out after their response: those that are running, and the last that have ended.
/// Kept in memory; an operation that a restart ends has done what it has done. Any thread.
final class Operations: Sendable {
    static let maxRunning = 8
    static let maxEnded = 40

    private struct State {
        /// Oldest first.
        var operations: [BulkOperation] = []
        var count = 0
        var isClosed = false
    }
    private let state = Mutex(State())
    /// Distinguishes the ids of this run of the gateway from those of earlier ones.
    private let run: String

    init(run: UInt64) { self.run = String(run, radix: 16) }

    /// Responds with 202, and carries it out.
    func begin(_ run: BulkRun, matched: Int, _ responder: MeteredResponder) {
        let context = responder.request.handler.context
        let operation: BulkOperation
        do throws(Problem) { operation = try add(run.request, matched: matched, responder.caller, context) } catch {
            return responder.send(error)
        }
        let id = operation.id ?? ""
        responder.send(
            .json(
                202,
                JSONWriter.object { json in
                    json.string("operation", id)
                    json.number("matched", matched)
                }, headers: [("Location", "/v1/operations/\(id)"), ("Preference-Applied", "respond-async")]))
        run.change(operation) { [self] error in
            operation.finish(at: context.time.now, error)
            forgetOldest()
            let progress = operation.progress
            context.outbox.events.record(
                Event(.operationFinished, operation.upstream, count: progress.done, by: operation.by, operation: id),
                isOrdered: true)
            context.logger.notice(
                "operation finished",
                metadata: [
                    "operation": "\(id)", "action": "\(operation.action.rawValue)",
                    "done": .stringConvertible(progress.done), "skipped": .stringConvertible(progress.skippedCount),
                    "stopped": .stringConvertible(progress.isStopped), "error": "\(progress.error ?? "none")",
                ])
        }
    }

    private func add(
        _ request: BulkRequest, matched: Int, _ caller: Caller?, _ context: APIContext
    ) throws(Problem) -> BulkOperation {
        let upstreams = request.upstreams(in: context.outbox)
        return try state.withLock { (state) throws(Problem) in
            guard !state.isClosed else { throw Self.stopping }
            guard state.operations.count(where: \.isRunning) < Self.maxRunning else { throw Self.tooMany }
            state.count += 1
            let operation = BulkOperation(
                request, id: "\(run)-\(state.count)", of: upstreams, matched: matched, by: caller?.key.name,
                at: context.time.now)
            state.operations.append(operation)
            return operation
        }
    }

    private func forgetOldest() {
        state.withLock { state in
            var surplus = state.operations.count { !$0.isRunning } - Self.maxEnded
            state.operations.removeAll { operation in
                guard surplus > 0, !operation.isRunning else { return false }
                surplus -= 1
                return true
            }
        }
    }

    /// Newest first.
    func visible(to caller: Caller?) -> [BulkOperation] {
        state.withLock { $0.operations }.filter { $0.isVisible(to: caller) }.reversed()
    }

    /// Stops all of them, and begins no more.
    func close() {
        let operations = state.withLock { state in
            state.isClosed = true
            return state.operations
        }
        operations.forEach { $0.stop() }
    }

    /// Whether none is running.
    var areIdle: Bool { state.withLock { !$0.operations.contains(where: \.isRunning) } }

    private static let stopping = Problem(
        slug: .shuttingDown, status: 503, detail: "The gateway is stopping; nothing was changed. Try again later.",
        headers: [("Retry-After", "5")])

    private static let tooMany = Problem(
        slug: .overloaded, status: 503,
        detail: "\(maxRunning) operations are running already; nothing was changed. Wait for one of them, or stop one.",
        headers: [("Retry-After", "5")])
}

/// Shows and stops operations, replays included.
struct OperationHandler: Sendable {
    let context: APIContext

    /// Newest first.
    func list(_ responder: MeteredResponder) {
        context.read(responder, isQuick: true) { [context] () throws(StoreError) in
            let operations = context.operations.visible(to: responder.caller)
            let replays = try context.outbox.replays(atMost: ReplayHandler.maxRunning + Operations.maxEnded)
                .filter { $0.isVisible(to: responder.caller) }
            let all =
                operations.map { (at: $0.startedAt, text: Self.describe($0)) }
                + replays.map { (at: $0.startedAt, text: $0.json) }
            let sorted = all.sorted { $0.at > $1.at }.map(\.text)
            return .json(200, JSONWriter.object { $0.raw("operations", JSONWriter.array(sorted)) })
        }
    }

    func show(_ id: String, _ responder: MeteredResponder) {
        answer(id, responder, { _ in }) { responder.send(.json(200, $0.json)) }
    }

    /// One that has ended stays as it is.
    func stop(_ id: String, _ responder: MeteredResponder) {
        answer(id, responder, { $0.stop() }) { [context] former in
            context.outbox.stopReplay(id) { result in
                switch result {
                case .success(let replay?):
                    if former.isRunning, replay.isStopped { context.tell(finished: replay) }
                    responder.send(.json(200, replay.json))
                case .success(nil): responder.send(Self.noSuchOperation)
                case .failure(let error): responder.send(Problem(error))
                }
            }
        }
    }

    private func answer(
        _ id: String, _ responder: MeteredResponder, _ action: (BulkOperation) -> Void,
        replay: @escaping @Sendable (Replay) -> Void
    ) {
        if let operation = context.operations.visible(to: responder.caller).first(where: { $0.id == id }) {
            action(operation)
            return responder.send(.json(200, Self.describe(operation)))
        }
        context.readers.run { [context] in
            do throws(StoreError) {
                guard let found = try context.outbox.replay(id), found.isVisible(to: responder.caller) else {
                    return responder.send(Self.noSuchOperation)
                }
                replay(found)
            } catch {
                responder.send(Problem(error))
            }
        }
    }

    private static let noSuchOperation = Problem(
        slug: .notFound, status: 404,
        detail: "There is no such operation: it is no longer kept, or the gateway was restarted, which ends it.")

    private static func describe(_ operation: BulkOperation) -> String {
        let progress = operation.progress
        return JSONWriter.object { json in
            json.string("id", operation.id)
            json.string("action", operation.action.rawValue)
            json.string("upstream", operation.upstream?.description)
            json.string("by", operation.by)
            json.time("startedAt", operation.startedAt)
            json.number("matched", operation.matched)
            json.number("done", progress.done)
            json.raw(
                "skipped",
                JSONWriter.array(
                    progress.skipped.map { id, detail in
                        JSONWriter.object { json in
                            json.string("id", id.description)
                            json.string("detail", detail)
                        }
                    }))
            json.number("skippedCount", progress.skippedCount)
            json.time("finishedAt", progress.finishedAt)
            json.flag("stopped", progress.isStopped)
            json.string("error", progress.error)
        }
    }
}
