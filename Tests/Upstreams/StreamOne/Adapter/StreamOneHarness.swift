import Foundation
import PosternCore
import PosternTestKit
import PosternThreads
import PosternUpstream
import Synchronization
import Testing

@testable import StreamOneAdapter

/// The context of a route, with a platform whose responses the test sets.
final class StreamOneHarness: SDKContext {
    let clock = ManualTime(now: Timestamp(milliseconds: 1_450_000_000_000))
    let transport = ScriptedTransport()
    private let stored = Mutex(DictionaryState())
    var time: any TimeSource { clock }
    private let computations = try! BlockingExecutor(name: "test-computing", atATime: 1, on: DedicatedThreads())
    func compute(_ work: @escaping @Sendable () -> Void) { computations.run(work) }
    var waitingComputations: Int { computations.waiting }
    var state: DictionaryState { stored.withLock { $0 } }
    /// How many times state was read.
    let reads = Mutex(0)
    /// How many times state was written.
    let writes = Mutex(0)
    /// When values that may be lost are deleted.
    let expiries = Mutex<[String: Timestamp]>([:])

    /// The size of each body that was checked for a caller.
    let checks = Mutex<[Int]>([])
    /// What there is too much of.
    enum Overload { case checks, memory }
    let overload = Mutex<Overload?>(nil)

    func check<T: Sendable>(
        _ bytes: Int, _ work: @escaping @Sendable (_ isCancelled: () -> Bool) -> T
    ) async throws(OverloadError) -> T {
        if overload.withLock({ $0 }) == .checks { throw OverloadError() }
        checks.withLock { $0.append(bytes) }
        return work { Task.isCancelled }
    }

    /// How often a caller could not prove who it is.
    let refusals = Mutex(0)
    func delayRefusal() async { refusals.withLock { $0 += 1 } }

    func reserveToParse(_ bytes: Int) throws(OverloadError) {
        if overload.withLock({ $0 }) == .memory { throw OverloadError() }
    }

    func send(_ request: UpstreamRequest, timeout: Duration, isAbortable: Bool) async -> TransferResult {
        timeouts.withLock { $0.append(timeout) }
        return await transport.send(
            request, options: TransferOptions(requestTimeout: timeout), isAbortable: isAbortable)
    }

    func read<T: Sendable>(
        _ body: @escaping @Sendable (any UpstreamState) -> T
    ) async throws(StateError) -> T {
        reads.withLock { $0 += 1 }
        let seen = body(state)
        if let happening = whileReading.withLock({ $0 }) { await happening(self) }
        if isUnreadable.withLock({ $0 }) { throw .unreadable }
        return seen
    }

    func change(_ changes: [StateChange]) async throws(StateError) {
        enqueue(changes)
        await withCheckedContinuation { continuation in
            let isHeld = held.withLock { held in
                held?.append { continuation.resume() }
                return held != nil
            }
            if !isHeld { continuation.resume() }
        }
    }

    func enqueue(_ changes: [StateChange]) {
        stored.withLock { $0.apply(changes) }
        for case .cache(let key, _, let until) in changes { expiries.withLock { $0[key] = until } }
        writes.withLock { $0 += 1 }
    }

    func report(_ notice: UpstreamNotice) { notices.withLock { $0.append(notice.text) } }

    /// What was reported to the operator.
    let notices = Mutex<[String]>([])
    /// How long each request was given.
    let timeouts = Mutex<[Duration]>([])
    /// Called between a read of the state and its result.
    let whileReading = Mutex<(@Sendable (StreamOneHarness) async -> Void)?>(nil)
    let isUnreadable = Mutex(false)
    private let held = Mutex<[@Sendable () -> Void]?>(nil)

    /// From now on changes are not on disk until `release`.
    func holdChanges() { held.withLock { $0 = [] } }
    func release() {
        let completions = held.withLock { held in
            defer { held = nil }
            return held ?? []
        }
        completions.forEach { $0() }
    }

    var calls: [SentCall] { transport.requests.map(SentCall.init) }

    // MARK: What SDKs bring

    /// Nil with the setting `sdk.enabled` false.
    let servesSDKs = Mutex(true)
    func wait<T: Sendable>(seconds: Int, for start: (@escaping @Sendable (T) -> Void) -> Void) async -> T? { nil }
    var sdk: (any SDKContext)? { servesSDKs.withLock { $0 } ? self : nil }
    let isReady = true
    let awayness = Mutex(false)
    var isAway: Bool { awayness.withLock { $0 } }
    let hasRoom = Mutex(true)
    /// The calls that were queued, and their lanes.
    let queued = Mutex<[(payload: String, lane: Lane)]>([])

    /// A queued call stays queued.
    func store(_ submission: SDKSubmission) async -> SDKAnswer {
        guard hasRoom.withLock({ $0 }) else { return .json(200, .noRoom, "no room") }
        for item in submission.items {
            guard case .success(let valid) = item.validation, case .named(let lane, _) = valid.lane else { continue }
            queued.withLock {
                $0.append((String(decoding: submission.bytes[item.range], as: UTF8.self), valid.lane))
            }
            stored.withLock { $0.queued[lane, default: 0] += 1 }
        }
        return submission.answer(SDKReceipt(ids: submission.items.map { _ in MessageID(rawValue: 1) }))
    }
}

/// A request to the platform, decomposed.
struct SentCall {
    let path: String
    let parameters: [String: String]
    let arguments: [String: String]

    init(_ request: UpstreamRequest) {
        let parts = request.url.split(separator: "?", maxSplits: 1).map(String.init)
        path = parts[0].split(separator: "/").suffix(3).joined(separator: "/")
        parameters = formPairs(parts.count == 2 ? parts[1] : "")
        arguments = request.form
    }
}

/// The response to a request for a resource.
final class StreamOneReply: Sendable {
    private let answers = Mutex<[UpstreamRouteResponse]>([])
    private let task = Mutex<Task<Void, Never>?>(nil)
    func take(_ answer: UpstreamRouteResponse) { answers.withLock { $0.append(answer) } }
    func begin(_ task: Task<Void, Never>) { self.task.withLock { $0 = task } }

    /// Called when the caller disconnects.
    func hangUp() { task.withLock { $0?.cancel() } }

    /// Nil until there is a response. A second response fails the test that reads it.
    var answer: UpstreamRouteResponse? {
        answers.withLock { answers in
            #expect(answers.count < 2, "answered twice")
            return answers.first
        }
    }

    var json: (text: String, status: Int, headers: [String: String])? {
        switch answer {
        case .json(let text, let status, let headers)?: (text, status, headers)
        case .forwarded(let body, let headers)?: (String(decoding: body, as: UTF8.self), 200, headers)
        case .empty, .problem, .invalidJSON, .later, nil: nil
        }
    }

    var problem: (slug: String, status: Int, detail: String)? {
        switch answer {
        case .problem(let slug, let status, let detail, _)?, .later(.problem(let slug, let status, let detail, _), _)?:
            (slug.rawValue, status, detail)
        case .invalidJSON(let detail, _)?: (ProblemSlug.invalidJSON.rawValue, 400, detail)
        default: nil
        }
    }

    /// Waits for a response from another thread.
    func wait() throws {
        try #require(eventually { answers.withLock { !$0.isEmpty } }, "no answer")
    }
}

/// Runs a task on the thread that resumes it, so that all that follows from an event has happened when the event's
/// function returns.
private final class InlineExecutor: TaskExecutor {
    func enqueue(_ job: consuming ExecutorJob) { job.runSynchronously(on: asUnownedTaskExecutor()) }
}
private let executor = InlineExecutor()

extension StreamOneUpstream {
    /// Posts below the prefix, as an SDK does.
    func post(
        _ path: String, _ sent: StreamOneSDK.Sent, type: String? = "application/x-www-form-urlencoded",
        at now: Timestamp? = nil, _ harness: StreamOneHarness
    ) throws -> SDKAnswer {
        let route = try #require(sdk?.routes.first)
        let names = path.split(separator: "/", omittingEmptySubsequences: false).suffix(2).map(String.init)
        let request = SDKRequest(
            parameters: ["command": names[0], "action": names[1]], queryText: sent.query,
            headers: { $0 == "Content-Type" ? type : nil }, body: Array(sent.body.utf8),
            receivedAt: now ?? harness.clock.now)
        guard case .perform(let perform) = route.response else { throw TransferFailure.notPerformed }
        let answer = SharedValue<SDKAnswer?>(nil)
        _ = Task.immediate(executorPreference: executor) {
            do throws(SDKAnswer) {
                answer.set(try await perform(request, harness))
            } catch {
                answer.set(error)
            }
        }
        return try #require(answer.value)
    }
}

extension TransferFailure {
    fileprivate static let notPerformed = Self(.cancelled, mayHaveArrived: false, detail: "the route performs nothing")
}

extension Upstream {
    /// Requests a resource as the API does.
    @discardableResult func ask(
        _ method: UpstreamRoute.Method, _ path: String, query: [String: String] = [:], session: String? = nil,
        headers: [(name: String, value: String)] = [], queryText: String = "", body: String = "",
        _ harness: StreamOneHarness
    ) throws -> StreamOneReply {
        let segments = path.split(separator: "/")
        let found = traits.routes.filter { $0.method == method }.lazy.compactMap { resource in
            resource.parameters(matching: segments).map { (resource, $0) }
        }.first
        let (resource, parameters) = try #require(found, "\(path)")
        #expect(resource.query.map { Set(query.keys).isSubset(of: $0) } ?? query.isEmpty)
        let reply = StreamOneReply()
        let request = UpstreamRouteRequest(
            parameters: parameters, query: query, queryText: queryText,
            headers: headers + (session.map { [("postern-session", $0)] } ?? []), body: Array(body.utf8),
            receivedAt: harness.clock.now)
        guard case .perform(let perform) = resource.response else {
            Issue.record("\(path) does not take its time")
            return reply
        }
        reply.begin(
            Task.immediate(executorPreference: executor) {
                do throws(UpstreamRouteResponse) {
                    reply.take(try await perform(request, harness))
                } catch {
                    reply.take(error)
                }
            })
        return reply
    }
}
