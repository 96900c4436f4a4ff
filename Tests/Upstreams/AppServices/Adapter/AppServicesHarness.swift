import PosternConformance
import PosternCore
import PosternMachineDriver
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import AppServicesAdapter

/// Runs items through an AppServices upstream without a store: does what the store and a worker do, on values.
struct AppServicesHarness {
    static let key = "SAMPLEKEY7Q2W9E4R6T1Y8U3I5O0PAS1"
    static let settings: [String: SettingValue] = [
        "organization": .text("acme"), "application": .text("campus-dev"), "apiKey": .text(key),
    ]

    let upstream: AppServicesUpstream
    var state = DictionaryState()
    var now = UpstreamFixture.now
    private(set) var messages: [MessageID: Message] = [:]
    private(set) var ended: [MessageID: (state: MessageState, reason: String)] = [:]
    /// The steps of settled messages.
    private(set) var results: [MessageID: [StepResult]] = [:]
    private(set) var parked: Set<String> = []
    private(set) var lastChanges: [StateChange] = []
    private var sequence: Int64 = 0

    init(_ others: [String: SettingValue] = [:]) throws {
        let settings = Self.settings.merging(others) { $1 }
        upstream = AppServicesUpstream(
            try #require(UpstreamName("appservices")), try AppServicesSettings(settings))
    }

    var context: PlanContext { PlanContext(now: now, token: nil, state: state) }

    // MARK: Accepting

    @discardableResult mutating func post(_ kind: String, _ text: String) throws -> MessageID {
        sequence += 1
        let (valid, message) = try UpstreamFixture.appservices.validate(
            .init(Kind(kind), text), to: AnyUpstream(upstream), at: now, sequence: sequence)
        if let credential = valid.credential { hold(credential) }
        let candidate = PendingMessage(
            id: message.id, kind: message.kind, lane: message.lane, acceptedAt: now, payload: message.payload,
            credentialOwner: valid.credential?.owner)
        state.apply(try upstream.validate(candidate, against: state))
        messages[message.id] = message
        count(message, 1)
        return message.id
    }

    /// Stores another token, with a message or alone.
    mutating func hold(_ credential: Credential) {
        let former = state.credential(of: credential.owner)?.version
        state.apply([.hold(credential)])
        if state.credential(of: credential.owner)?.version != former { parked.remove(credential.owner) }
    }

    mutating func hold(_ token: String, of user: String) {
        hold(Credential(owner: user.lowercased(), value: Array(token.utf8), note: "pi"))
    }

    private mutating func count(_ message: Message, _ change: Int) {
        guard case .named(let lane, _) = message.lane else { return }
        state.queued[lane, default: 0] += change
        if change > 0 { state.open.insert(message.id) } else { state.open.remove(message.id) }
    }

    // MARK: Sending

    func plan(_ id: MessageID) throws -> Plan {
        upstream.plan(for: [try #require(messages[id], "it has ended")], in: context)
    }

    func isOpen(_ id: MessageID) -> Bool { messages[id] != nil }

    /// Carries out a plan that sends nothing.
    mutating func carryOut(_ plan: Plan, _ id: MessageID) throws {
        guard let message = messages[id] else { return }
        switch plan {
        case .settle(_, let end, let reason, let steps, let changes):
            state.apply(changes?(state) ?? [])
            finish(message, end, reason, steps)
        case .park: park(message)
        case .send, .wait: break
        }
    }

    @discardableResult
    mutating func judge(_ response: UpstreamResponse, to request: UpstreamRequest, of id: MessageID) throws -> Judgement
    {
        guard let message = messages[id] else { return Judgement(.retry(after: nil)) }
        let batch = Batch(id: BatchID(rawValue: 1), messages: [message], request: request)
        let decision = AnyUpstream(upstream).judge(.success(response), to: batch, in: context)
        let judgement = decision.judgement
        lastChanges = decision.changes?(state) ?? []
        state.apply(lastChanges)
        for case .release(let group) in lastChanges { parked.remove(group) }
        let settlement = MachineDriver.settlement(.success(response), judgement, of: batch, at: now)
        messages[id]?.follow(settlement)
        if !settlement.delivered.isEmpty { finish(message, .delivered, "", settlement.steps) }
        for ended in settlement.ended { finish(message, ended.state, ended.error?.detail ?? "", settlement.steps) }
        if !settlement.parked.isEmpty { park(message) }
        return judgement
    }

    /// Sends the next request of the message.
    mutating func begin(_ id: MessageID) throws -> (request: UpstreamRequest, message: Message) {
        guard case .send(let request, _) = try plan(id) else { preconditionFailure("nothing is sent") }
        messages[id]?.begin(request)
        return (request, try #require(messages[id]))
    }

    mutating func lose(_ id: MessageID) { messages[id]?.mayHaveArrived = true }

    private mutating func park(_ message: Message) {
        guard case .named(_, let owner?) = message.lane else { return }
        if let held = state.credential(of: owner), held.isUsable(at: now) { return }
        parked.insert(owner)
    }

    private mutating func finish(
        _ message: Message, _ end: MessageState, _ reason: String, _ steps: [StepResult]
    ) {
        messages[message.id] = nil
        results[message.id] = steps
        ended[message.id] = (end, reason)
        count(message, -1)
    }

    /// As an operator cancels it.
    mutating func cancel(_ id: MessageID) {
        if let message = messages[id] { finish(message, .cancelled, "", []) }
    }

    /// Sends the requests of the message until it is settled, parked, or waits. Returns the requests.
    mutating func run(_ id: MessageID, answer: (UpstreamRequest) -> UpstreamResponse) throws -> [UpstreamRequest] {
        var requests: [UpstreamRequest] = []
        while isOpen(id) {
            let plan = try plan(id)
            guard case .send(let request, 1) = plan else {
                try carryOut(plan, id)
                return requests
            }
            messages[id]?.begin(request)
            requests.append(request)
            try #require(requests.count < 20, "a loop")
            let judgement = try judge(answer(request), to: request, of: id)
            switch judgement.verdict {
            case .proceed, .delivered, .reject: continue
            case .park where !parked.contains(owner(of: id)): continue
            case .park, .each, .retry, .backOff, .suspect, .refreshToken, .holdUpstream, .split: return requests
            }
        }
        return requests
    }

    func owner(of id: MessageID) -> String {
        if case .named(_, let owner?) = messages[id]?.lane { owner } else { "" }
    }

    /// The step of each request.
    mutating func steps(
        _ id: MessageID, answer: (UpstreamRequest) -> UpstreamResponse = { AppServicesHarness.usual($0) }
    ) throws -> [String] {
        try run(id, answer: answer).map { $0.step ?? "" }
    }

    /// The response of AppServices to a valid request.
    static func usual(_ request: UpstreamRequest) -> UpstreamResponse {
        UpstreamResponse(status: 200, body: Array(#"{"entities":[{"uuid":"e","type":"device"}]}"#.utf8))
    }

    static func response(_ status: Int, _ body: String) -> UpstreamResponse {
        UpstreamResponse(status: status, body: Array(body.utf8))
    }

    static func error(_ status: Int, _ code: String) -> UpstreamResponse {
        response(status, #"{"error":"\#(code)","error_description":"words","duration":0}"#)
    }
}
