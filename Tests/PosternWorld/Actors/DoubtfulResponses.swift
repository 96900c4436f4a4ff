import PosternCore
import PosternScenarios
import PosternUpstream

/// Doubtful answers to messages with which nothing is wrong: 500, while other requests are taken. No message gets as
/// many of them as would make the gateway give it up.
struct DoubtfulResponses {
    /// Less than `delivery.suspectTries`.
    private static let maxForOne = 3
    private let random: SeededRandom

    init(_ plan: Plan, run: Int) { random = SeededRandom(seed: plan.seed, for: "hiccups \(run)") }

    /// Whether the request with `entries` gets one.
    func strike(_ entries: [Expectations.Entry], to service: Service, at now: MonotonicInstant) -> Bool {
        guard let fault = service.activeFaults(at: now).first(where: { $0.kind == .hiccups }), !entries.isEmpty,
            entries.allSatisfy({ $0.doubts < Self.maxForOne })
        else { return false }
        return random.chance(fault.share)
    }
}
