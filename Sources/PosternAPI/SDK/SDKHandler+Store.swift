import PosternCore
import PosternHTTP
import PosternMetrics
import PosternStore
import PosternThreads
import PosternUpstream
import Synchronization

/// Storing what SDKs bring, at once or once there is room.
extension SDKHandler {
    func messages(
        of submission: SDKSubmission, _ site: SDKSite.Form, _ asked: APIRequest, at acceptedAt: Timestamp
    ) -> [NewMessage] {
        let upstream = site.upstream
        let trace = TraceParent(asked.head)?.text
        return submission.items.map { item in
            var (valid, failure) = (ValidPayload(), nil as String?)
            switch item.validation {
            case .success(let payload): valid = payload
            case .failure(let fault): failure = fault.faults.text
            }
            let bytes = valid.rewritten ?? submission.bytes
            let range = valid.rewritten == nil ? item.range : bytes.indices
            return NewMessage(
                queue: upstream.queue, kind: item.kind, lane: valid.lane, acceptedAt: acceptedAt,
                expiresAt: valid.expiresAt, bytes: bytes, range: range, waitsFor: valid.waitsFor,
                credential: valid.credential, traceParent: trace, turn: turn(of: bytes[range], upstream, asked.caller),
                isFromSDK: true, failure: failure, failsIfRejected: submission.refusal == nil)
        }
    }

    /// The turn of a message; its payload is read only if a value in it decides.
    private func turn(of payload: ArraySlice<UInt8>, _ upstream: ConfiguredUpstream, _ caller: Caller?) -> Int64 {
        guard let fairness = upstream.fairness else { return 0 }
        guard fairness.readsPayload else { return fairness.turn(ofCaller: caller?.turn, key: nil, payload: nil) }
        let parsed = JSONParser.ofThisThread.parseWithLoneSurrogates(Array(payload)) { payload in
            fairness.turn(ofCaller: caller?.turn, key: nil, payload: payload)
        }
        return (try? parsed.get()) ?? fairness.turn(ofCaller: caller?.turn, key: nil, payload: nil)
    }

    func admission(of submission: SDKSubmission, to site: SDKSite.Form) -> Admission? {
        submission.admission.map { Admission(to: site.upstream.queue, $0.decide) }
    }

    /// Calls `completion` with the answer, and the ids of what was stored.
    func store(
        _ messages: [NewMessage], _ submission: SDKSubmission, _ site: SDKSite.Form, _ asked: APIRequest,
        _ wait: Wait, _ completion: @escaping @Sendable (SDKAnswer, [MessageID]) -> Void
    ) {
        let name = "\(site.upstream.name)"
        @Sendable func refuse(_ slug: ProblemSlug, with answer: SDKAnswer? = nil) {
            context.metrics.refused(name, slug.rawValue).add(max(1, messages.count))
            completion(answer ?? site.answer(to: .noRoom), [])
        }
        guard !messages.isEmpty || submission.admission != nil else {
            return completion(submission.answer(SDKReceipt(ids: [])), [])
        }
        if asked.caller?.takeMessages(messages.count, at: context.time.instant) != nil { return refuse(.rateLimited) }
        let bytes = messages.reduce(0) { $0 + $1.range.count }
        context.memory.takeAnyway(bytes)
        let admission = admission(of: submission, to: site)
        // The closures below copy the upstream.
        guard site.endpoints.patience > .zero else {
            return append(messages, submission, after: admission, wait) { stored($0) }
        }
        whenAllowed(asked, wait, unless: { [self] in refusal(by: admission, to: site) }) { [self] reason in
            switch reason {
            case nil: append(messages, submission, after: admission, wait) { stored($0) }
            case .problem(let slug):
                context.memory.give(bytes)
                refuse(slug)
            case .notAdmitted(let refusal): stored(.failure(.notAdmitted(refusal)))
            }
        }
        @Sendable func stored(_ result: Result<AppendReceipt, AppendError>) {
            context.memory.give(bytes)
            switch result {
            case .success(let receipt):
                var endpoint: ConfiguredUpstream.KindEndpoint?
                for (index, message) in messages.enumerated() where !receipt.repeated.contains(index) {
                    if endpoint?.kind != message.kind {
                        endpoint = site.upstream.kinds.first { $0.kind == message.kind }
                    }
                    endpoint?.accepted.add()
                }
                completion(
                    submission.answer(SDKReceipt(ids: receipt.ids, repeated: receipt.repeated)), receipt.ids)
            case .failure(.refused(let refused)):
                let faults = Dictionary(refused.map { ($0.index, $0.refusal) }) { first, _ in first }
                let isFull = refused.contains { $0.refusal.reason == .full }
                refuse(isFull ? .outboxFull : .invalidPayload, with: submission.refusal?(faults))
            case .failure(.notAdmitted(let refusal)):
                refuse(
                    refusal.reason.slug, with: refusal.reason == .full ? nil : submission.admission?.refusal(refusal))
            case .failure(.queueFull), .failure(.neverFits): refuse(.outboxFull)
            case .failure(.store(let error)): refuse(Problem(error).slug)
            case .failure(.reused), .failure(.recorded): refuse(.internal)
            }
        }
    }

    /// How long a request that finds no room may wait for it. Any thread.
    final class Wait: Sendable {
        private let deadline: MonotonicInstant
        private let ended = Atomic<Bool>(false)

        init(until deadline: MonotonicInstant) { self.deadline = deadline }

        /// Its client has hung up: it will send again what it has, so nothing of it may be stored any more.
        func end() { ended.store(true, ordering: .relaxed) }
        var isEnded: Bool { ended.load(ordering: .relaxed) }
        func isOver(at now: MonotonicInstant) -> Bool { now >= deadline || isEnded }
    }

    /// Why a request is not passed to the store.
    private enum Reason {
        case problem(ProblemSlug)
        case notAdmitted(AcceptanceError)
    }

    /// Why the request will not be admitted, as far as the state tells by now. Reads the store.
    private func refusal(by admission: Admission?, to site: SDKSite.Form) -> AcceptanceError? {
        // What cannot be read is found out once the request may be stored.
        guard let admission else { return nil }
        let refusal = try? context.outbox.withState(of: site.upstream.queue.number) { admission.refusal(in: $0) }
        // There may be room in time.
        return refusal?.reason == .full ? nil : refusal
    }

    /// Calls `body` once the request may be stored, as far as that does not depend on the store; with the reason if it may not
    /// in time, or if it is not worth the wait. What cannot be held was asked before its body was read.
    private func whenAllowed(
        _ asked: APIRequest, _ wait: Wait, unless refusal: (@Sendable () -> AcceptanceError?)?,
        _ body: @escaping @Sendable (Reason?) -> Void
    ) {
        guard let call = asked.match.call, call.storesMessages, call.site.endpoints.patience > .zero else {
            return body(nil)
        }
        do throws(Problem) {
            try checkAllowance(of: call, asked.head.peer)
            body(nil)
        } catch {
            let slug = error.slug
            @Sendable func holdOrRefuse() {
                let isHeld = hold(wait) { [self] in
                    if wait.isEnded { body(.problem(slug)) } else { whenAllowed(asked, wait, unless: nil, body) }
                }
                if !isHeld { body(.problem(slug)) }
            }
            guard let refusal else { return holdOrRefuse() }
            context.readers.run {
                if let refusal = refusal() { body(.notAdmitted(refusal)) } else { holdOrRefuse() }
            }
        }
    }

    /// Stores the messages. If there is no room, tries it again as long as the request waits.
    private func append(
        _ messages: [NewMessage], _ submission: SDKSubmission, after admission: Admission?, _ wait: Wait,
        _ completion: @escaping @Sendable (Result<AppendReceipt, AppendError>) -> Void
    ) {
        var record: RequestRecord?
        if submission.items.contains(where: { $0.identity != nil }) {
            record = .events(
                submission.items.map { item in item.identity.map { EventIdentity(key: $0, fingerprint: []) } })
        }
        context.outbox.append(messages, recording: record, after: admission) { [self] result in
            guard case .failure(let error) = result, error.isForNow else { return completion(result) }
            let isHeld = hold(wait) { [self] in
                if wait.isEnded { return completion(result) }
                append(messages, submission, after: admission, wait, completion)
            }
            if !isHeld { completion(result) }
        }
    }

    /// Calls `again` in a moment. Returns false if the request may not wait, or if too many do.
    private func hold(_ wait: Wait, _ again: @escaping @Sendable () -> Void) -> Bool {
        guard !wait.isOver(at: context.time.instant), !context.isDraining.load(ordering: .relaxed) else { return false }
        guard held.wrappingAdd(1, ordering: .relaxed).newValue <= context.limits.maxHeldRequests else {
            held.wrappingSubtract(1, ordering: .relaxed)
            return false
        }
        context.timer.run(after: Self.retryInterval) { [self] in
            held.wrappingSubtract(1, ordering: .relaxed)
            again()
        }
        return true
    }
}

extension AppendError {
    /// Whether nothing was stored, and the same messages may be later.
    fileprivate var isForNow: Bool {
        switch self {
        case .queueFull, .store(.full), .store(.unavailable), .store(.conflict): true
        case .refused(let refused): refused.contains { $0.refusal.reason == .full }
        case .notAdmitted(let refusal): refusal.reason == .full
        // Of some of these it is not known whether the messages were stored: they would be there twice.
        case .store, .neverFits, .reused, .recorded: false
        }
    }
}

extension SDKHandler {
    /// The same for a call that waits for other systems. Its task ends when the caller hangs up.
    func store(
        _ submission: SDKSubmission, _ site: SDKSite.Form, _ asked: APIRequest,
        _ completion: @escaping @Sendable (SDKAnswer) -> Void
    ) {
        let messages = messages(of: submission, site, asked, at: context.time.now)
        let wait = Wait(until: context.time.instant + site.endpoints.patience)
        store(messages, submission, site, asked, wait) { answer, _ in completion(answer) }
    }
}
