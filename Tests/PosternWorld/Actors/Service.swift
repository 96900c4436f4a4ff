import PosternCore
import PosternSimulatorKit
import PosternSimulators
import PosternScenarios
import PosternUpstream

/// One upstream: its strict simulator, in process, with what is wrong with it at times.
final class Service {
    let type: any TypeScenarios
    let simulator: any Simulator
    private let faults: [FaultPlan]
    private let start: MonotonicInstant
    /// What it has seen of the gateway that must not be, since `takeViolations` was called.
    private var violations: [String] = []
    private(set) var requests = 0
    /// When the end has come, from which on everything works.
    var healedAt: MonotonicInstant?
    private var isHealed: Bool { healedAt != nil }

    /// What `/control` is told as soon as several requests are under way.
    private var whenBusy: String?
    let tokenLife: Duration

    init(_ type: any TypeScenarios, _ plan: Plan, _ time: UpstreamTime) {
        self.type = type
        guard let simulated = SimulatorRegistry.all.first(where: { $0.name == type.name }) else {
            preconditionFailure("there is no simulator of \(type.name)")
        }
        simulator = simulated.make(plan.seed, time)
        start = time.instant
        faults = plan.faults.filter { $0.type.name == type.name }
        let opening = type.opening(SeededRandom(seed: plan.seed, for: "service \(type.name)"))
        tokenLife = opening.tokenLife
        for text in opening.control { control(text) }
    }

    var name: String { type.name }

    func control(_ text: String) {
        let answer = simulator.control(SimulatedRequest(method: "POST", path: "/control", body: Array(text.utf8)))
        precondition(answer?.status == 200, "\(name): \(String(decoding: answer?.body ?? [], as: UTF8.self))")
    }

    /// What its simulator holds; nil if it does not show that.
    var shownState: String? {
        let answer = simulator.control(SimulatedRequest(method: "GET", path: "/control/state"))
        return answer.flatMap { $0.status == 200 ? String(decoding: $0.body, as: UTF8.self) : nil }
    }

    /// Several requests are under way.
    func requestsOverlap() {
        guard let text = whenBusy, !isHealed else { return }
        whenBusy = nil
        control(text)
    }

    func endTokens(of fault: FaultPlan, _ credentials: [String]) {
        switch type.death(share: fault.share, of: credentials) {
        case .now(let texts): for text in texts { control(text) }
        case .whenBusy(let text): whenBusy = text
        }
    }

    /// - Parameter exists: Whether it creates what exists.
    func judge(_ request: SimulatedRequest, exists: Bool) -> SimulatedResult {
        requests += 1
        if exists, let text = type.existing?.begin { control(text) }
        defer { if exists, let text = type.existing?.end { control(text) } }
        let judged = simulator.judge(request, poisons: type.poisons)
        violations += judged.violations
        return judged
    }

    func takeViolations() -> [String] {
        defer { violations = [] }
        return violations
    }

    // MARK: Faults

    /// Whether a connection that was opened at that time gets no response any more.
    func isMute(_ openedAt: MonotonicInstant, at instant: MonotonicInstant) -> Bool {
        faults.contains { fault in
            let begin = start + .milliseconds(Int64(fault.fromHour * 3_600_000))
            return fault.kind == .mute && openedAt < begin && begin <= instant
        }
    }

    /// What becomes of one request.
    enum Fate: Equatable {
        case answered
        case status(Int, retryAfter: Faults.RetryAfter?)
        case refused, resetBefore, resetAfter, hang, hangAfter, garbage, truncated
    }

    func activeFaults(at instant: MonotonicInstant) -> [FaultPlan] {
        guard !isHealed else { return [] }
        let hour = (instant - start) / .seconds(3600)
        return faults.filter { $0.fromHour <= hour && hour < $0.toHour }
    }

    /// The faults that are active at some time between two instants, and whether each is during all of it.
    func faults(from begin: MonotonicInstant, to end: MonotonicInstant) -> [(kind: FaultPlan.Kind, isWhole: Bool)] {
        if let healedAt, begin >= healedAt { return [] }
        let hours = (begin - start) / .seconds(3600)...(end - start) / .seconds(3600)
        return faults.filter { $0.fromHour <= hours.upperBound && hours.lowerBound < $0.toHour }.map {
            ($0.kind, !isHealed && $0.fromHour <= hours.lowerBound && hours.upperBound < $0.toHour)
        }
    }

    func fate(of path: String, at instant: MonotonicInstant, _ random: SeededRandom) -> (fate: Fate, delay: Duration) {
        var delay = random.span(0.002...0.2)
        for fault in activeFaults(at: instant) {
            switch fault.kind {
            case .slow: delay += random.span(1...25)
            case .tokensDie, .hiccups, .mute, .rejectsAll: continue
            case .outage: return (.refused, delay)
            case .hang: return (refusing(random.chance(0.5) ? .hang : .hangAfter, of: path, at: instant), delay)
            case .maintenance: return (.status(503, retryAfter: retryAfter(random, atMost: 900)), delay)
            case .rateLimit where random.chance(fault.share):
                return (.status(429, retryAfter: retryAfter(random, atMost: 120)), delay)
            case .endpoint where path.hashedShare < 0.5: return (.status(503, retryAfter: nil), delay)
            case .flaky where random.chance(fault.share):
                return (refusing(flaky(random), of: path, at: instant), delay)
            case .unauthorized, .wrongURL, .wrongEndpoint:
                guard let status = refusal(of: path, by: fault) else { continue }
                return (.status(status, retryAfter: nil), delay)
            case .rateLimit, .endpoint, .flaky: continue
            }
        }
        return (.answered, delay)
    }

    /// The status with which a fault refuses whatever arrives at a path.
    private func refusal(of path: String, by fault: FaultPlan) -> Int? {
        switch fault.kind {
        case .unauthorized: type.unauthorizedStatus
        case .wrongURL: 404
        default: fault.wrongEndpoint.flatMap { path.hasPrefix($0.endpoint.path) ? $0.status : nil }
        }
    }

    /// What becomes of a request on its way does not make an upstream take it that refuses everything.
    private func refusing(_ fate: Fate, of path: String, at instant: MonotonicInstant) -> Fate {
        let status = activeFaults(at: instant).lazy.compactMap { self.refusal(of: path, by: $0) }.first
        return status.map { fate.ifRefused(with: $0) } ?? fate
    }

    private func flaky(_ random: SeededRandom) -> Fate {
        switch random.below(9) {
        case 0: .refused
        case 1: .resetBefore
        case 2: .resetAfter
        case 3: .hang
        case 4: .hangAfter
        case 5: .garbage
        case 6: .truncated
        default:
            .status(
                random.pick([408, 425, 429, 502, 503, 500]), retryAfter: random.chance(0.3) ? retryAfter(random) : nil)
        }
    }

    private func retryAfter(_ random: SeededRandom, atMost most: Int = 60) -> Faults.RetryAfter {
        .init(seconds: random.from(0...most), form: random.pick(Faults.RetryAfter.Form.allCases))
    }
}

extension String {
    /// 0 to 1, the same for the same text.
    fileprivate var hashedShare: Double {
        Double(utf8.reduce(UInt64(7)) { ($0 ^ UInt64($1)) &* 0x0000_0100_0000_01B3 } >> 11 & 1023) / 1024
    }
}

/// The clock of the upstreams, which is right whatever is done to the gateway's.
struct UpstreamTime: TimeSource {
    let gateway: any TimeSource
    let startNow: Timestamp
    let startInstant: MonotonicInstant

    init(_ gateway: any TimeSource) {
        self.gateway = gateway
        (startNow, startInstant) = (gateway.now, gateway.instant)
    }

    var instant: MonotonicInstant { gateway.instant }
    var now: Timestamp { startNow + (gateway.instant - startInstant) }
}
