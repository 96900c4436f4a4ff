package import PosternCore
package import PosternSimulatorKit

/// An SDK in front of the simulator of its platform, without a gateway in between: what the simulated world expects of the
/// gateway has to be what the SDK gets from the platform.
package struct PlatformRun {
    /// What the SDK was told is accepted, what the platform has taken, and how often, by number.
    package private(set) var accepted: Set<Int> = []
    package private(set) var taken: [Int: Int] = [:]
    /// Answers that the SDK does not expect of its platform.
    package private(set) var unexpected: [String] = []
    package private(set) var model: any SDKModel
    private let upstream: String
    private let simulator: any Simulator
    private let expectations = Expectations()
    private let random: SeededRandom

    package init(of upstream: String, _ model: any SDKModel, on simulator: any Simulator, seed: UInt64) {
        (self.upstream, self.model, self.simulator) = (upstream, model, simulator)
        random = SeededRandom(seed: seed, for: "platform")
    }

    package var reported: [Expectations.Entry] { expectations.entries }

    /// Uses the app for a while in which requests and answers are lost, and then lets the SDK send what it has.
    ///
    /// - Parameter advance: Moves the time of the simulator, and returns what it is then.
    package mutating func play(advance: (Duration) -> Timestamp) {
        for step in 0..<300 {
            // Never the very second in which a token expires, which the SDK still uses.
            let now = advance(.seconds(61))
            let isFaulty = step < 200
            if step == 200 { model.finish() }
            if isFaulty, random.chance(0.5) {
                model.use(Stage(upstream, expectations, now: now, random), poison: 0)
            }
            var calls = model.calls(at: now, timerFired: random.chance(0.4))
            // A token, what waits for it, and the steps of a call that follow, or the rows of a table.
            for _ in 0..<200 where !calls.isEmpty {
                for call in calls { exchange(call, isFaulty: isFaulty) }
                calls = model.calls(at: now, timerFired: false)
            }
        }
    }

    private mutating func exchange(_ call: SDKCall, isFaulty: Bool) {
        let fate = isFaulty ? random.below(8) : 3
        let answer: SimulatedAnswer? =
            switch fate {
            case 0: nil
            case 1: simulator.answer(status: 503)
            default: judge(call, isAnswerLost: fate == 2)
            }
        let reply = answer.map { SDKReply($0.status, String(decoding: $0.body, as: UTF8.self)) }
        switch model.take(fate == 2 ? nil : reply, to: call) {
        case .accepted: accepted.formUnion(call.entries.map(\.number))
        case .kept, .postponed, .forgotten: break
        case .unexpected(let detail): unexpected.append("\(call.method) \(call.path): \(detail)")
        }
    }

    private mutating func judge(_ call: SDKCall, isAnswerLost: Bool) -> SimulatedAnswer? {
        let parts = call.path.split(separator: "?", maxSplits: 1).map(String.init)
        let request = SimulatedRequest(
            method: call.method, path: parts[0], query: parts.count > 1 ? parts[1] : nil,
            headers: call.headers + [("Content-Length", "\(call.body.utf8.count)")], body: Array(call.body.utf8),
            isAnswerLost: isAnswerLost)
        let judged = simulator.judge(request, poisons: [])
        for range in judged.items.ranges {
            for entry in expectations.entries(in: Array(judged.items.text[range])) {
                taken[entry.number, default: 0] += 1
            }
        }
        return judged.answer
    }
}
