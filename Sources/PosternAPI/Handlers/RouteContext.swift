import Logging
import PosternCore
import PosternDelivery
import PosternStore

/// Lends a request what it needs to wait for other systems.
struct RouteContext: UpstreamRouteContext {
    let target: ConfiguredUpstream
    let context: APIContext
    /// The trace that the request belongs to. What is sent for it belongs to that, too: no upstream signs its headers.
    var traceParent: String?
    var time: any TimeSource { context.time }
    var computations: BlockingExecutor { context.computations }

    func send(_ request: UpstreamRequest, timeout: Duration, isAbortable: Bool) async -> TransferResult {
        var request = request
        request.add(traceParent: traceParent)
        return await target.worker.send(request, timeout: timeout, isAbortable: isAbortable)
    }

    func read<T: Sendable>(
        _ body: @escaping @Sendable (any UpstreamState) throws -> T
    ) async throws(StateError) -> T {
        let result: Result<T, StateError> = await withCheckedContinuation { continuation in
            context.readers.run { [self] in
                do {
                    let found = try context.outbox.withState(of: target.queue.number, body)
                    continuation.resume(returning: .success(found))
                } catch {
                    context.logger.error("cannot read the store", metadata: ["error": "\(error)"])
                    continuation.resume(returning: .failure(.unreadable))
                }
            }
        }
        return try result.get()
    }

    func change(_ changes: [StateChange]) async throws(StateError) {
        let result: Result<Void, StateError> = await withCheckedContinuation { continuation in
            context.outbox.change(of: target.queue) { _ in
                (changes, ())
            } completion: { result in
                continuation.resume(returning: result.mapError { _ in .unwritable })
            }
        }
        try result.get()
    }

    func enqueue(_ changes: [StateChange]) {
        context.outbox.change(of: target.queue) { _ in
            (changes, ())
        } completion: { _ in
        }
    }

    func report(_ notice: String) { target.worker.report(target.upstream.mask.excerpt(notice)) }
}
