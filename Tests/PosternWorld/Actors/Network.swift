import PosternConformance
import PosternCore
import PosternSimulatorKit
import PosternScenarios
import PosternTestKit
import PosternThreads
import PosternUpstream

@testable import PosternGateway

/// The way to the upstreams, of one run of the gateway: latency, faults, and time-outs, all drawn.
///
/// A request is taken by its upstream at one moment and answered at a later one; either may be lost.
final class Network: OwnedTransport, Loop, @unchecked Sendable {
    // @unchecked: for the thread of the world only.
    let name = "network"
    private unowned let world: World
    private let random: SeededRandom
    /// For connections without a request.
    private let connectRandom: SeededRandom
    private let wakeUp = Inbox<Void>()
    private var transfers: [Transfer] = []
    /// Those of a gateway that is gone, which gets none of their results.
    private var orphans: [Transfer] = []
    private var isStopped = false
    private var submitted = 0
    private let doubtfulResponses: DoubtfulResponses
    /// As the gateway's own transport keeps them.
    private var connections = ConnectionPools<Connections>()
    /// The number of connections without a request, by the name of the type.
    private(set) var connects: [String: Int] = [:]
    /// By the name of the type.
    let tokens: [String: TokenWatch]

    private final class Connections {
        let openedAt: MonotonicInstant
        init(_ openedAt: MonotonicInstant) { self.openedAt = openedAt }
    }

    private final class Transfer: @unchecked Sendable {
        let number: Int
        let connections: Connections
        let statusDecides: @Sendable (Int) -> Bool
        let service: Service
        let request: SimulatedRequest
        let entries: [Expectations.Entry]
        /// Nil once it has been called.
        private var completion: (@Sendable (TransferResult) -> Void)?
        let fate: Service.Fate
        /// Nil once it has been taken, and if it never will be.
        var takenAt: MonotonicInstant?
        var endsAt: MonotonicInstant
        var timesOut: Bool
        var answer: SimulatedAnswer?
        /// What its upstream has taken of it. A caller that got no response has sent an entry again, so one may be there
        /// several times.
        var taken: [Expectations.Entry] = []
        var holdsMessages: Bool { entries.contains { !$0.isProxied } }

        init(
            _ number: Int, on connections: Connections, _ service: Service, _ request: SimulatedRequest,
            _ entries: [Expectations.Entry], _ fate: Service.Fate, endsAt: MonotonicInstant, timesOut: Bool,
            statusDecides: @escaping @Sendable (Int) -> Bool,
            _ completion: @escaping @Sendable (TransferResult) -> Void
        ) {
            (self.connections, self.statusDecides) = (connections, statusDecides)
            (self.number, self.service, self.request, self.entries) = (number, service, request, entries)
            (self.fate, self.endsAt, self.timesOut, self.completion) = (fate, endsAt, timesOut, completion)
        }

        deinit { precondition(completion == nil, "every transfer is completed") }

        func complete(_ result: TransferResult) {
            guard let completion else { preconditionFailure("a transfer is completed once") }
            self.completion = nil
            completion(result)
        }
    }

    init(_ world: World, run: Int) {
        self.world = world
        tokens = Dictionary(uniqueKeysWithValues: world.services.map { ($0.name, TokenWatch($0, world)) })
        random = SeededRandom(seed: world.plan.seed, for: "network \(run)")
        connectRandom = SeededRandom(seed: world.plan.seed, for: "connects \(run)")
        doubtfulResponses = DoubtfulResponses(world.plan, run: run)
    }

    // MARK: Transport

    func submit(
        _ request: UpstreamRequest, options: TransferOptions, completion: @escaping @Sendable (TransferResult) -> Void
    ) -> SubmittedTransfer {
        world.noticeStop()
        guard !isStopped, let service = world.service(of: request.url) else {
            completion(.failure(TransferFailure(.cancelled, mayHaveArrived: false, detail: "stopped")))
            return SubmittedTransfer {}
        }
        guard !request.onlyConnects else { return connect(to: service, request, options, completion) }
        let now = world.time.instant
        var asked = SimulatedRequest(request)
        var (fate, delay) = service.fate(of: asked.path, at: now, random)
        let pool = connections.pool(for: options, at: now) { Connections(now) }
        guard let pool else { preconditionFailure("connections can always be opened") }
        if fate == .answered, service.isMute(pool.openedAt, at: now) { fate = .hang }
        let body = request.gzip ? gunzip(request.body) ?? [] : request.body
        let entries = world.callbacks.entries(in: Array(request.url.utf8) + body)
        if fate == .answered, doubtfulResponses.strike(entries, to: service, at: now) {
            fate = .status(500, retryAfter: nil)
        }
        if fate.reachesUpstream, world.massRejections.strike(entries, to: service, at: now) {
            fate = fate.ifRefused(with: 422)
        }
        // The status that an upstream gives to poison may be the message's fault, however it comes about.
        if case .status(500, _) = fate { for entry in entries { entry.doubts += 1 } }
        asked.isAnswerLost = fate.losesAnswer
        let timesOut = delay > options.requestTimeout || fate == .hang || fate == .hangAfter
        let span = timesOut ? options.requestTimeout : delay
        if timesOut { asked.isAnswerLost = true }
        (asked.sentAt, asked.answeredAt) = (now, now + span)
        submitted += 1
        let transfer = Transfer(
            submitted, on: pool, service, asked, entries, fate, endsAt: now + span, timesOut: timesOut,
            statusDecides: request.statusDecides, completion)
        if fate.reachesUpstream { transfer.takenAt = now + span * random.fraction() }
        transfers.append(transfer)
        let marks = entries.map(\.mark).joined(separator: " ")
        world.history.record("request \(submitted) to \(service.name) \(asked.method) \(asked.path) \(marks) → \(fate)")
        world.promises.sent(entries, to: service)
        world.turns.sent(entries, to: service)
        tokens[service.name]?.willSend(asked)
        let others = transfers.count { $0.service === service && $0.holdsMessages } - 1
        if others > 0 { service.requestsOverlap() }
        world.rateCheck.willSend(entries, to: service.type, others: others)
        wakeUp.nudge()
        if world.diesWhileUncertain, entries.contains(where: \.isSentOnce) {
            (world.diesWhileUncertain, world.deathAfter, world.death) = (false, 0, .kill)
        }
        world.handOver("request")
        let number = submitted
        return SubmittedTransfer { [weak self] in self?.cancel(number) }
    }

    /// Connects to the service, and sends nothing.
    private func connect(
        to service: Service, _ request: UpstreamRequest, _ options: TransferOptions,
        _ completion: @escaping @Sendable (TransferResult) -> Void
    ) -> SubmittedTransfer {
        let now = world.time.instant
        connects[service.name, default: 0] += 1
        submitted += 1
        let number = submitted
        let fate = service.fate(of: "", at: now, connectRandom).fate.ofConnecting
        let timesOut = fate == .hang
        let span = timesOut ? min(options.connectTimeout, options.requestTimeout) : connectRandom.span(0.002...0.2)
        let transfer = Transfer(
            number, on: Connections(now), service, SimulatedRequest(request), [], fate, endsAt: now + span,
            timesOut: timesOut, statusDecides: request.statusDecides, completion)
        transfer.answer = SimulatedAnswer(status: 0)
        transfers.append(transfer)
        world.history.record("connection \(number) to \(service.name) → \(fate)")
        wakeUp.nudge()
        return SubmittedTransfer { [weak self] in self?.cancel(number) }
    }

    private func cancel(_ number: Int) {
        guard let transfer = transfers.first(where: { $0.number == number }) else { return }
        transfers.removeAll { $0 === transfer }
        abort(transfer)
    }

    /// The gateway does not wait for it any longer; the upstream may take it all the same.
    private func abort(_ transfer: Transfer) {
        if transfer.takenAt != nil, random.chance(0.5) { take(transfer, isAnswerLost: true) }
        recordUnknown(transfer)
        finish(transfer, .failure(TransferFailure(.cancelled, mayHaveArrived: true, detail: "cancelled")))
    }

    func stop() {
        isStopped = true
        let open = transfers
        transfers = []
        for transfer in open { abort(transfer) }
        wakeUp.nudge()
    }

    /// The gateway is gone, with all of its connections.
    func cutOff() {
        isStopped = true
        for transfer in transfers {
            if transfer.takenAt != nil, random.chance(0.5) { take(transfer, isAnswerLost: true) }
            recordUnknown(transfer)
        }
        orphans += transfers
        transfers = []
    }

    /// No loop of its gateway turns any more. A task that waits for a result must not be left without one all the same.
    func abandon() {
        isStopped = true
        let left = orphans + transfers
        (orphans, transfers) = ([], [])
        for transfer in left {
            transfer.complete(.failure(TransferFailure(.cancelled, mayHaveArrived: true, detail: "abandoned")))
        }
    }

    /// The messages of requests that were not answered yet.
    var underWay: [Expectations.Entry] { transfers.flatMap(\.entries).filter { !$0.isProxied } }

    /// Whether a request for messages has been sent there that was not answered.
    func isSending(to name: String) -> Bool { transfers.contains { $0.service.name == name && $0.holdsMessages } }

    /// The worker that has sent messages there gives their requests up.
    func abort(to name: String) {
        let open = transfers.filter { $0.service.name == name && $0.holdsMessages }
        transfers.removeAll { transfer in open.contains { $0 === transfer } }
        for transfer in open { abort(transfer) }
    }

    /// Whether something has been sent there that was not answered.
    func isBusy(with service: Service) -> Bool { transfers.contains { $0.service === service } }

    // MARK: Loop

    func turn(at now: MonotonicInstant) -> MonotonicInstant? {
        _ = wakeUp.takeAll()
        for transfer in transfers where transfer.takenAt.map({ $0 <= now }) ?? false {
            take(transfer, isAnswerLost: transfer.request.isAnswerLost)
        }
        let ended = transfers.filter { $0.endsAt <= now }
        transfers.removeAll { $0.endsAt <= now }
        for transfer in ended { end(transfer) }
        return transfers.map { min($0.takenAt ?? $0.endsAt, $0.endsAt) }.min() ?? .distantFuture
    }

    func wait(until deadline: MonotonicInstant) -> Bool { wakeUp.wait(until: deadline) }

    private func take(_ transfer: Transfer, isAnswerLost: Bool) {
        transfer.takenAt = nil
        var request = transfer.request
        request.isAnswerLost = isAnswerLost
        let exists = transfer.entries.contains { $0.isTakenOnce && $0.arrivals > 0 }
        let judged = transfer.service.judge(request, exists: exists)
        transfer.answer = judged.answer
        for range in judged.items.ranges {
            let item = Array(judged.items.text[range])
            guard transfer.service.type.isDelivery(item) else { continue }
            let isMarked = !transfer.service.type.isMarkedByRequest(item)
            for entry in isMarked ? world.callbacks.entries(in: item) : transfer.entries {
                transfer.taken.append(entry)
                world.expectations.arrived(entry)
                world.promises.arrived(entry, in: item)
            }
        }
        for violation in judged.violations { world.history.record("breach of \(transfer.service.name): \(violation)") }
    }

    private func end(_ transfer: Transfer) {
        let result: TransferResult
        if transfer.timesOut {
            connections.retire(transfer.connections)
            result = .failure(TransferFailure(.timeout, mayHaveArrived: true, detail: "timed out"))
        } else {
            result = self.result(of: transfer)
        }
        if case .failure(let failure) = result, failure.mayHaveArrived { recordUnknown(transfer) }
        finish(transfer, result)
    }

    private func result(of transfer: Transfer) -> TransferResult {
        switch transfer.fate {
        case .answered:
            guard let answer = transfer.answer else {
                return .failure(TransferFailure(.timeout, mayHaveArrived: true, detail: "no answer"))
            }
            return .success(UpstreamResponse(answer))
        case .status(let status, let retryAfter):
            var answer = transfer.service.simulator.answer(status: status, to: transfer.request)
            if let retryAfter {
                answer.headers.append(("Retry-After", retryAfter.value(at: world.upstreamTime.now)))
                let isDate = retryAfter.form != .seconds
                if transfer.holdsMessages {
                    world.rateCheck.asked(transfer.service.type, for: retryAfter.seconds, isDate: isDate)
                }
            }
            return .success(UpstreamResponse(answer))
        case .refused: return .failure(TransferFailure(.unreachable, mayHaveArrived: false, detail: "refused"))
        case .truncated:
            if let answer = transfer.answer, transfer.statusDecides(answer.status) {
                return .success(
                    UpstreamResponse(
                        status: answer.status, headers: answer.headers,
                        body: Array(answer.body.prefix(answer.body.count / 2))))
            }
            return .failure(TransferFailure(.interrupted, mayHaveArrived: true, detail: "the response was cut"))
        case .resetBefore, .resetAfter:
            return .failure(TransferFailure(.interrupted, mayHaveArrived: true, detail: "connection reset"))
        case .garbage: return .failure(TransferFailure(.garbled, mayHaveArrived: true, detail: "not HTTP"))
        case .hang, .hangAfter:
            return .failure(TransferFailure(.timeout, mayHaveArrived: true, detail: "timed out"))
        }
    }

    private func recordUnknown(_ transfer: Transfer) {
        for entry in transfer.taken { entry.unknownOutcomes += 1 }
        for entry in transfer.entries where entry.isSentOnce { entry.unclear += 1 }
        if !transfer.taken.isEmpty, transfer.entries.contains(where: { !$0.isProxied }) {
            world.promises.outcomeWasLost(at: transfer.service)
        }
    }

    private func finish(_ transfer: Transfer, _ result: TransferResult) {
        switch result {
        case .success(let response):
            world.history.record("answer \(transfer.number): \(response.status)")
            if response.status >= 300 { for entry in transfer.entries where entry.isSentOnce { entry.unclear += 1 } }
            tokens[transfer.service.name]?.ended(transfer.request, with: response)
        case .failure(let failure): world.history.record("answer \(transfer.number): \(failure.reason.rawValue)")
        }
        transfer.complete(result)
        world.handOver("answer")
    }
}

extension Service.Fate {
    var losesAnswer: Bool {
        switch self {
        case .answered, .status, .refused: false
        case .resetBefore, .resetAfter, .hang, .hangAfter, .garbage, .truncated: true
        }
    }
    /// The same for an upstream that refuses the request with this status.
    func ifRefused(with status: Int) -> Self {
        switch self {
        case .answered, .truncated: .status(status, retryAfter: nil)
        case .resetAfter, .garbage: .resetBefore
        case .hangAfter: .hang
        case .status, .refused, .resetBefore, .hang: self
        }
    }
    /// What becomes of a connection without a request.
    var ofConnecting: Self {
        switch self {
        case .refused: .refused
        case .hang, .hangAfter: .hang
        case .answered, .status, .resetBefore, .resetAfter, .garbage, .truncated: .answered
        }
    }
    var reachesUpstream: Bool {
        switch self {
        case .answered, .resetAfter, .hangAfter, .garbage, .truncated: true
        case .status, .refused, .resetBefore, .hang: false
        }
    }
}

extension UpstreamResponse {
    fileprivate init(_ answer: SimulatedAnswer) {
        self.init(status: answer.status, headers: answer.headers, body: answer.body)
    }
}
