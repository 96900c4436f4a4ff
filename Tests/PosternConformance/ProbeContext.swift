import PosternCore
import PosternTestKit
import PosternUpstream
import Synchronization

/// The context of a probe in which every request has the same result.
final class ProbeContext: UpstreamRouteContext {
    private let result: TransferResult
    private let requests = Mutex<[UpstreamRequest]>([])
    private let written = Mutex(0)

    init(_ result: TransferResult) { self.result = result }

    var sent: [UpstreamRequest] { requests.withLock { $0 } }
    /// How many state changes were requested.
    var changes: Int { written.withLock { $0 } }

    let time: any TimeSource = ManualTime(now: UpstreamFixture.now)
    func compute(_ work: @escaping @Sendable () -> Void) {
        preconditionFailure("a probe computes nothing that takes long")
    }
    var waitingComputations: Int { 0 }

    func check<T: Sendable>(
        _ bytes: Int, _ work: @escaping @Sendable (_ isCancelled: () -> Bool) -> T
    ) async throws(OverloadError) -> T { work { false } }
    func delayRefusal() async {}
    func reserveToParse(_ bytes: Int) {}

    func send(_ request: UpstreamRequest, timeout: Duration, isAbortable: Bool) async -> TransferResult {
        requests.withLock { $0.append(request) }
        return result
    }

    func read<T: Sendable>(
        _ body: @escaping @Sendable (any UpstreamState) -> T
    ) async throws(StateError) -> T { body(DictionaryState()) }

    func change(_ changes: [StateChange]) async throws(StateError) { enqueue(changes) }
    func enqueue(_ changes: [StateChange]) { written.withLock { $0 += 1 } }
    func report(_ notice: UpstreamNotice) {}
}
