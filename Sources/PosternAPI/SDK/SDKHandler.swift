import PosternCore
import PosternDelivery
import PosternHTTP
import PosternMetrics
import PosternStore
import PosternThreads
import PosternUpstream
import Synchronization

/// Answers the SDKs of the platforms (`SDKEndpoints`). Any thread.
final class SDKHandler: Sendable {
    let context: APIContext
    /// What each address may still send, by upstream.
    private let allowances = Mutex<[Sender: TokenBucket]>([:])
    /// The requests that wait for room.
    let held = Atomic<Int>(0)

    private struct Sender: Hashable {
        let upstream: UpstreamName
        let address: PeerAddress
    }

    /// Addresses that are remembered; one more clears all of them.
    private static let mostSenders = 10_000
    /// How often a request that is held is tried again.
    static let retryInterval = Duration.milliseconds(250)

    init(context: APIContext) { self.context = context }

    // MARK: Before the body

    /// Throws what can be refused before the body is read. A request that may be held is read first, since one that does not pass
    /// its checks is not.
    func checkReadiness(for call: SDKSite.Call, from address: PeerAddress) throws(Problem) {
        if call.storesMessages, call.site.endpoints.patience > .zero { return }
        try checkAllowance(of: call, address)
    }

    func checkAllowance(of call: SDKSite.Call, _ address: PeerAddress) throws(Problem) {
        guard isAllowed(call, address) else { throw Gatekeeper.rateLimited("requests", .seconds(1)) }
        guard case .store = call.sdk.response else { return }
        try IngestHandler(context: context).checkReadiness()
    }

    /// The answer to a caller that does not pass the check of the head.
    func refusal(of head: RequestHead, to call: SDKSite.Call) -> SDKAnswer? {
        guard case .head(let check) = call.sdk.access else { return nil }
        let passed = PassedCheck(head, call, at: context.time.instant)
        if passed.isAsBefore(on: head) { return nil }
        guard let answer = check(request(head)) else {
            if call.storesMessages { head.connectionMemory.value = passed }
            return nil
        }
        countRefusal(answer, call)
        call.count(answer)
        return answer
    }

    /// The latest check of a head that a connection has passed. An SDK presents one token with all of its requests.
    private final class PassedCheck: Sendable {
        private let call: SDKSite.Call
        private let authorization: String?
        private let query: String?
        private let at: MonotonicInstant
        /// A check counts for as long: after that, the token may have expired.
        private static let life = Duration.seconds(5)

        init(_ head: RequestHead, _ call: SDKSite.Call, at instant: MonotonicInstant) {
            self.call = call
            authorization = head.header("Authorization")
            query = head.query?.text
            at = instant
        }

        /// A reload makes other calls, so that a check is made again.
        func isAsBefore(on head: RequestHead) -> Bool {
            guard let former = head.connectionMemory.value as? PassedCheck else { return false }
            return former.call === call && at - former.at < Self.life && former.authorization == authorization
                && former.query == query
        }
    }

    private func isAllowed(_ call: SDKSite.Call, _ address: PeerAddress) -> Bool {
        let rate = call.site.endpoints.settings.requestsPerSecondPerAddress
        guard rate > 0 else { return true }
        let sender = Sender(upstream: call.site.upstream.name, address: address)
        let now = context.time.instant
        return allowances.withLock { allowances in
            if allowances.count >= Self.mostSenders, allowances[sender] == nil { allowances = [:] }
            var bucket = allowances[sender] ?? TokenBucket(rate: Double(rate), burst: 0, at: now)
            // After a reload with another rate.
            if bucket.rate != Double(rate) { bucket = TokenBucket(rate: Double(rate), burst: 0, at: now) }
            let isFree = bucket.take(1, at: now) == nil
            allowances[sender] = bucket
            return isFree
        }
    }

    // MARK: The answer

    func request(_ head: RequestHead, _ parameters: [String: String] = [:], body: [UInt8] = []) -> SDKRequest {
        SDKRequest(
            method: head.method, path: head.path, isEncrypted: context.certificateExpiry.withLock { $0 != nil },
            parameters: parameters, queryText: head.query?.text ?? "", headers: { head.header($0) }, body: body,
            receivedAt: context.time.now, random: context.random)
    }

    func answer(
        _ call: SDKSite.Call, _ parameters: [String: String], _ body: [UInt8], _ responder: MeteredResponder
    ) {
        let request = request(responder.head, parameters, body: body)
        switch call.sdk.response {
        case .store(let read):
            do throws(SDKAnswer) {
                let submission = try read(request)
                responder.request.unprovenBody?.end()
                let messages = messages(of: submission, call.site, responder.request, at: request.receivedAt)
                let admission = admission(of: submission, to: call.site)
                if !responder.request.isRelayed, let queue = context.outbox.needsOwner(messages, after: admission) {
                    return responder.relay(body, to: queue)
                }
                let wait = Wait(until: context.time.instant + call.site.endpoints.patience)
                if call.site.endpoints.patience > .zero { responder.onHangUp { wait.end() } }
                store(messages, submission, call.site, responder.request, wait) { [self] answer, ids in
                    var responder = responder
                    responder.ids = ids
                    finish(answer, call, responder)
                }
            } catch {
                countRefusal(error, call)
                finish(error, call, responder)
            }
        case .answer(let respond):
            do throws(SDKAnswer) {
                finish(try respond(request), call, responder)
            } catch {
                finish(error, call, responder)
            }
        case .perform(let respond): perform(respond, request, call, responder)
        }
    }

    private func perform(
        _ respond: @escaping @Sendable (SDKRequest, any SDKContext) async throws(SDKAnswer) -> SDKAnswer,
        _ request: SDKRequest, _ call: SDKSite.Call, _ responder: MeteredResponder
    ) {
        let isUnproven = responder.request.match.route.checksItsCallers
        let bytes = request.body.count
        let memory = MemoryLease(isUnproven ? bytes : APIRequest.memoryToParse(bytes), of: context.memory)
        let services = RouteContext(
            upstream: call.site.upstream, context: context, traceParent: TraceParent(responder.head)?.text,
            request: responder.request, memory: memory)
        let task = Task.immediate(executorPreference: context.taskExecutor) { [self] in
            let answer: SDKAnswer
            do throws(SDKAnswer) { answer = try await respond(request, services) } catch {
                // What storing has refused is counted there, and is not thrown.
                countRefusal(error, call)
                answer = error
            }
            if Task.isCancelled { responder.abandon() } else { finish(answer, call, responder) }
        }
        responder.onHangUp { task.cancel() }
    }

    /// Sends the answer: later, if strangers have failed from that address before.
    private func finish(_ answer: SDKAnswer, _ call: SDKSite.Call, _ responder: MeteredResponder) {
        guard answer.isOfStranger else { return send(answer, call, responder) }
        let handler = responder.request.handler
        handler.whenFailed(from: responder.head.peer) { [self] in send(answer, call, responder) }
    }

    private func send(_ answer: SDKAnswer, _ call: SDKSite.Call, _ responder: MeteredResponder) {
        call.count(answer)
        responder.send(HTTPResponse(answer))
    }

    /// A request whose messages were not read counts as one message.
    func countRefusal(_ answer: SDKAnswer, _ call: SDKSite.Call) {
        guard call.bringsMessages else { return }
        let slug: ProblemSlug? =
            switch answer.outcome {
            case .accepted, .repeated, .proxied: nil
            case .refused: answer.status == 413 ? .payloadTooLarge : .invalidPayload
            case .unauthorized: .unauthorized
            case .noRoom: .overloaded
            }
        if let slug { context.metrics.refused("\(call.site.upstream.name)", slug.rawValue).add() }
    }
}

extension RouteContext: SDKContext {
    var sdk: (any SDKContext)? { upstream.adapter.sdk == nil ? nil : self }
    var isReady: Bool { context.reasonsNotReady.isEmpty }

    var isAway: Bool {
        guard let status = upstream.served.worker?.snapshot else { return false }
        return status.isPaused || status.circuit != .closed
    }

    func wait<T: Sendable>(seconds: Int, for start: (@escaping @Sendable (T) -> Void) -> Void) async -> T? {
        let held = HeldCall<T>()
        let replies = context.pendingReplies
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                held.continuation.withLock { $0 = continuation }
                replies.hold(held, seconds: seconds)
                start { found in
                    held.end(with: found)
                    replies.release(held)
                }
            }
        } onCancel: {
            replies.release(held)
        }
    }

    /// A call that waits for its platform.
    private final class HeldCall<T: Sendable>: PendingReply {
        let continuation = Mutex<CheckedContinuation<T?, Never>?>(nil)
        let ids: [MessageID] = []

        func end(with found: T?) { continuation.withLock { $0.take() }?.resume(returning: found) }
        func settled(_ notice: SettledNotice) -> Bool { false }
        func finishNow() { end(with: nil) }
        /// Its task is cancelled.
        func onHangUp(_ action: @escaping @Sendable () -> Void) {}
    }

    func store(_ submission: SDKSubmission) async -> SDKAnswer {
        guard let endpoints = upstream.adapter.sdk else {
            preconditionFailure("only an upstream that serves SDKs stores what they bring")
        }
        let site = request.match.call?.site ?? SDKSite.Form(upstream, endpoints)
        return await withCheckedContinuation { continuation in
            request.handler.handlers.sdk.store(submission, site, request) { continuation.resume(returning: $0) }
        }
    }
}
