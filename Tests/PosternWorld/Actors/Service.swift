import PosternCore
import PosternSimulatorKit
import PosternSimulators

/// One upstream: its strict simulator, in process, with what is wrong with it at times.
final class Service {
    let kind: UpstreamKind
    let simulator: any Simulator
    private let faults: [FaultPlan]
    private let start: MonotonicInstant
    /// What it has seen of the gateway that must not be, since `takeViolations` was called.
    private var violations: [String] = []
    private(set) var requests = 0
    /// Whether the end has come, when everything works.
    var isHealed = false

    /// Whether its tokens die as soon as several requests are under way.
    var revokesWhenBusy = false
    /// How long a token of Seer lives.
    private(set) var tokenLife = Duration.seconds(3600)

    /// Which items the simulator refuses, by the value of a member.
    private let poisons: [Faults.Poison]

    init(_ kind: UpstreamKind, _ plan: Plan, _ time: UpstreamTime) {
        self.kind = kind
        let type = SimulatorRegistry.all.first { $0.name == kind.rawValue }
        guard let type else { preconditionFailure("there is no simulator of \(kind)") }
        simulator = type.make(plan.seed, time)
        start = time.instant
        faults = plan.faults.filter { $0.upstream == kind }
        poisons =
            switch kind {
            case .samsara:
                [.init(field: "poison", value: "clear", answer: .naming), .init(field: "poison", value: "doubt")]
            case .seer: [.init(field: "poison", value: "clear", answer: .refusal)]
            case .curio: [.init(field: "eventValue", value: "clear", answer: .refusal)]
            case .streamone: [.init(field: "/arguments/poison", value: "clear", answer: .refusal)]
            case .appservices: []
            }
        let dice = Dice(seed: plan.seed, for: "service \(kind.rawValue)")
        if kind == .seer, dice.chance(0.5) {
            let seconds = dice.from(60...3000)
            tokenLife = .seconds(seconds)
            control(#"{"tokenLifeSeconds":\#(seconds)}"#)
        }
        if kind == .streamone { control(#"{"failuresUntilRateLimited":0}"#) }
        if kind == .curio, dice.chance(0.3) { control(#"{"killSessionRate":0.02,"codeForm":"mixed"}"#) }
    }

    func control(_ text: String) {
        let answer = simulator.control(SimulatedRequest(method: "POST", path: "/control", body: Array(text.utf8)))
        precondition(answer?.status == 200, "\(kind): \(String(decoding: answer?.body ?? [], as: UTF8.self))")
    }

    /// Several requests are under way.
    func requestsOverlap() {
        guard revokesWhenBusy, !isHealed else { return }
        revokesWhenBusy = false
        control(#"{"revokeNow":true}"#)
    }

    func judge(_ request: SimulatedRequest) -> SimulatedResult {
        requests += 1
        let judged = simulator.judge(request, poisons: poisons)
        violations += judged.violations
        return judged
    }

    func takeViolations() -> [String] {
        defer { violations = [] }
        return violations
    }

    // MARK: Faults

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

    func fate(of path: String, at instant: MonotonicInstant, _ dice: Dice) -> (fate: Fate, delay: Duration) {
        var delay = dice.span(0.002...0.2)
        for fault in activeFaults(at: instant) {
            switch fault.kind {
            case .slow: delay += dice.span(1...25)
            case .tokensDie: continue
            case .outage: return (.refused, delay)
            case .hang: return (dice.chance(0.5) ? .hang : .hangAfter, delay)
            case .maintenance: return (.status(503, retryAfter: retryAfter(dice, atMost: 900)), delay)
            case .rateLimit where dice.chance(fault.share):
                return (.status(429, retryAfter: retryAfter(dice, atMost: 120)), delay)
            case .endpoint where path.hashedShare < 0.5: return (.status(503, retryAfter: nil), delay)
            case .flaky where dice.chance(fault.share): return (flaky(dice), delay)
            case .unauthorized: return (.status(kind.unauthorizedStatus, retryAfter: nil), delay)
            case .wrongURL: return (.status(404, retryAfter: nil), delay)
            case .rateLimit, .endpoint, .flaky: continue
            }
        }
        return (.answered, delay)
    }

    private func flaky(_ dice: Dice) -> Fate {
        switch dice.below(9) {
        case 0: .refused
        case 1: .resetBefore
        case 2: .resetAfter
        case 3: .hang
        case 4: .hangAfter
        case 5: .garbage
        case 6: .truncated
        default:
            .status(dice.pick([408, 425, 429, 502, 503, 500]), retryAfter: dice.chance(0.3) ? retryAfter(dice) : nil)
        }
    }

    private func retryAfter(_ dice: Dice, atMost most: Int = 60) -> Faults.RetryAfter {
        .init(seconds: dice.from(0...most), form: dice.pick(Faults.RetryAfter.Form.allCases))
    }
}

extension UpstreamKind {
    /// How it says that the gateway's credentials, or a user's, are not accepted.
    fileprivate var unauthorizedStatus: Int {
        switch self {
        case .samsara, .seer, .streamone: 403
        case .curio: 412
        case .appservices: 401
        }
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
