import Logging
import PosternCore
import PosternDelivery
import PosternHTTP
import PosternStore
import PosternThreads
import PosternUpstream
import Synchronization

/// The services that an asynchronous route may use.
struct RouteContext: UpstreamRouteContext {
    let upstream: ConfiguredUpstream
    let context: APIContext
    /// The trace of the request. Requests to the upstream on its behalf belong to it, too. No upstream signs headers.
    var traceParent: String?
    let request: APIRequest
    /// The memory that the request has reserved, until it ends.
    let memory: MemoryLease
    var time: any TimeSource { context.time }
    func compute(_ work: @escaping @Sendable () -> Void) { context.computations.run(work) }
    var waitingComputations: Int { context.computations.waiting }

    func check<T: Sendable>(
        _ bytes: Int, _ work: @escaping @Sendable (_ isCancelled: () -> Bool) -> T
    ) async throws(OverloadError) -> T {
        guard bytes > UnprovenWork.smallBytes else { return work { Task.isCancelled } }
        let (unproven, result) = (context.unproven, PendingResult<T>())
        let job = UnprovenWork.Job(bytes, for: request.origin) { job in result.set(work { job.isCancelled }) }
        let done: T? = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                result.continuation.withLock { $0 = continuation }
                if !unproven.start(job) { result.set(nil) }
            }
        } onCancel: {
            unproven.cancel(job)
        }
        guard let done else { throw OverloadError() }
        return done
    }

    /// The result of a job, which is made before the task waits for it.
    private final class PendingResult<T: Sendable>: Sendable {
        let continuation = Mutex<CheckedContinuation<T?, Never>?>(nil)
        func set(_ value: T?) { continuation.withLock { $0.take() }?.resume(returning: value) }
    }

    func delayRefusal() async {
        await withCheckedContinuation { continuation in
            request.handler.whenFailed(from: request.head.peer) { continuation.resume() }
        }
    }

    func reserveToParse(_ bytes: Int) throws(OverloadError) {
        guard memory.grow(by: APIRequest.memoryToParse(bytes) - bytes) else { throw OverloadError() }
        request.unprovenBody?.end()
    }

    func send(_ request: UpstreamRequest, timeout: Duration, isAbortable: Bool) async -> TransferResult {
        var request = request
        request.add(traceParent: traceParent)
        let result = await upstream.client.send(request, timeout: timeout, isAbortable: isAbortable)
        if case .failure(let failure) = result, failure.reason != .cancelled {
            context.logger.info(
                "request of a caller failed",
                metadata: [
                    "upstream": "\(upstream.name)", "request.id": "\(self.request.head.requestID)",
                    "error": "\(upstream.adapter.mask.excerpt(failure.detail))",
                ])
        }
        return result
    }

    func read<T: Sendable>(
        _ body: @escaping @Sendable (any UpstreamState) -> T
    ) async throws(StateError) -> T {
        let result: Result<T, StateError> = await withCheckedContinuation { continuation in
            context.readers.run { [self] in
                do {
                    let found = try context.outbox.withState(of: upstream.queue.number, body)
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
            context.outbox.change(of: upstream.queue) { _ in
                (changes, ())
            } completion: { result in
                continuation.resume(returning: result.mapError { _ in .unwritable })
            }
        }
        try result.get()
    }

    func enqueue(_ changes: [StateChange]) {
        context.outbox.change(of: upstream.queue) { _ in
            (changes, ())
        } completion: { _ in
        }
    }

    func report(_ notice: UpstreamNotice) { upstream.served.worker?.report(notice.masked(by: upstream.adapter.mask)) }
}
