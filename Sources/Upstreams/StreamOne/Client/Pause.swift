package import PosternCore
package import PosternUpstream

/// A pause for calls, which grows each time in a row.
package struct Pause: Sendable, Equatable {
    package enum Reason: String, Sendable {
        /// Status 10: writes wait.
        case readOnly
        /// Status 8: the actor does not authenticate.
        case rateLimited
        /// Status 2: the call is signed again once soon, then rarely.
        case clock
        /// Status 3: the call is signed again once soon, then rarely, until an operator has corrected the credentials.
        case authentication
    }

    package let reason: Reason
    /// 0 for the first.
    package let step: Int
    package let until: Timestamp
    /// `StreamOnePlatform.fingerprint` of the credentials that the platform rejected in a call that was answered at once.
    /// Nil for any other pause: after such a queued call, the upstream itself is held.
    package var credentials: String?

    /// Whether it keeps the actor from authenticating at all.
    var holdsActor: Bool {
        switch reason {
        case .rateLimited: true
        case .authentication: step > 0
        case .readOnly, .clock: false
        }
    }

    /// The first pause of each kind and the longest (Assumptions A2 to A5).
    package struct Lengths: Sendable, Equatable {
        package var readOnly = Duration.seconds(30)
        package var rateLimited = Duration.seconds(60)

        package init() {}

        func length(_ reason: Reason, step: Int) -> Duration {
            let doubled = Double(1 << min(step, 10))
            return switch reason {
            case .readOnly: min(readOnly * doubled, readOnly * 10)
            case .rateLimited: min(rateLimited * doubled, rateLimited * 15)
            // The first pause lets calls finish that were in flight with it.
            case .authentication: step == 0 ? .seconds(1) : min(rateLimited * (doubled / 2), rateLimited * 15)
            case .clock: step == 0 ? .seconds(1) : min(.seconds(30) * (doubled / 2), .seconds(300))
            }
        }
    }

    /// Whether it has ended. One that would go on for longer than its length began before the clock was set back.
    package func isOver(at now: Timestamp, _ lengths: Lengths) -> Bool {
        until <= now || until - now > lengths.length(reason, step: step)
    }

    /// Whether it keeps the queue from sending with the credentials of `platform`. Other credentials end a pause that the
    /// former ones have caused.
    package func holds(_ platform: StreamOnePlatform, at now: Timestamp, _ lengths: Lengths) -> Bool {
        guard !isOver(at: now, lengths) else { return false }
        return switch reason {
        case .rateLimited: true
        case .authentication: credentials == platform.fingerprint
        case .clock, .readOnly: false
        }
    }

    /// The pause that follows `former`: the same one while it lasts, and the next longer one if it has ended.
    package static func after(
        _ former: Self?, _ reason: Reason, now: Timestamp, lengths: Lengths, firstStep: Int = 0
    ) -> Self {
        guard let former, former.reason == reason else {
            return Self(reason: reason, step: firstStep, until: now + lengths.length(reason, step: firstStep))
        }
        guard former.isOver(at: now, lengths) else { return former }
        let step = former.step + 1
        return Self(reason: reason, step: step, until: now + lengths.length(reason, step: step))
    }
}

// MARK: In the state

extension Pause {
    package static let key = "pause"

    package init?(in state: any UpstreamState) {
        guard let value = state.value(of: Self.key) else { return nil }
        self.init(stored: value)
    }

    init?(stored value: [UInt8]) {
        let parts = String(decoding: value, as: UTF8.self).split(separator: " ")
        guard (3...4).contains(parts.count), let reason = Reason(rawValue: String(parts[0])),
            let step = Int(parts[1]), let until = Int64(parts[2])
        else { return nil }
        self.init(
            reason: reason, step: step, until: Timestamp(milliseconds: until),
            credentials: parts.count > 3 ? String(parts[3]) : nil)
    }

    package var change: StateChange {
        let words = [reason.rawValue, "\(step)", "\(until.milliseconds)", credentials].compactMap(\.self)
        return .set(key: Self.key, value: Array(words.joined(separator: " ").utf8))
    }
}
