import PosternCore

/// Keeps a receiver that has begun to reject everything from turning a queue into dead letters.
///
/// If more than a share of the latest messages of an endpoint were rejected, the endpoint is held: what it rejects stays
/// queued, and one message every half minute probes it. The hold ends when a probe is accepted, or when an operator resumes
/// the upstream, who says with it that the rejections are right. A plain value; times are arguments.
struct RejectionGuard: Equatable {
    /// When an endpoint is held.
    struct Limits: Equatable {
        /// Of the latest `window` different messages, 0 ... 1; 0 means that no endpoint is held.
        var share: Double
        var window: Int

        /// The number of rejections that is one too many; nil if no number is.
        var tooMany: Int? { share > 0 ? Int(share * Double(window) + 1e-9) + 1 : nil }
    }

    private struct Endpoint: Equatable {
        /// The number of verdicts on different messages.
        var seen = 0
        /// The rejected ones among the latest, with their positions, oldest first.
        var rejected: [(id: MessageID, at: Int)] = []
        var hold: Hold?

        mutating func forget(before position: Int) {
            let old = rejected.prefix { $0.at <= position }.count
            if old > 0 { rejected.removeFirst(old) }
        }

        static func == (left: Self, right: Self) -> Bool {
            left.seen == right.seen && left.hold == right.hold
                && left.rejected.elementsEqual(right.rejected) { $0 == $1 }
        }
    }

    private struct Hold: Equatable {
        var probeAt: Timestamp
        /// The number of the last request that was sent before the hold, which proves nothing about it.
        var after: Int
    }

    /// The time between two probes.
    static let probeInterval = Duration.seconds(30)

    private var endpoints: [String: Endpoint] = [:]
    /// An operator has said that rejections of messages up to this one are right.
    var allowedThrough: MessageID?

    /// The held endpoints, and when each is probed next.
    var held: [String: Timestamp] { endpoints.compactMapValues { $0.hold?.probeAt } }

    func isHolding(_ endpoint: String) -> Bool { endpoints[endpoint]?.hold != nil }

    /// When a request may be sent to the endpoint; nil if it may be sent now.
    func wait(of endpoint: String, now: Timestamp) -> Timestamp? {
        endpoints[endpoint]?.hold.flatMap { $0.probeAt > now ? $0.probeAt : nil }
    }

    // MARK: Verdicts

    /// The endpoint accepted `count` messages by the request with that number. Returns whether that ended its hold.
    mutating func accepted(_ count: Int, by number: Int, at endpoint: String, _ limits: Limits) -> Bool {
        // Without a rejection there is nothing to count.
        guard var known = endpoints[endpoint] else { return false }
        if let hold = known.hold {
            guard number > hold.after else { return false }
            endpoints[endpoint] = nil
            return true
        }
        known.seen += count
        known.forget(before: known.seen - limits.window)
        endpoints[endpoint] = known.rejected.isEmpty ? nil : known
        return false
    }

    /// The endpoint rejected the message. Returns whether the message fails: not while the endpoint is held. `latest`: the
    /// number of the last request that was sent.
    mutating func rejected(
        _ id: MessageID, at endpoint: String, _ limits: Limits, latest: Int, now: Timestamp
    ) -> Bool {
        guard let tooMany = limits.tooMany, allowedThrough.map({ id > $0 }) ?? true else { return true }
        var known = endpoints[endpoint] ?? Endpoint()
        defer { endpoints[endpoint] = known }
        guard known.hold == nil else { return false }
        if let index = known.rejected.firstIndex(where: { $0.id == id }) { known.rejected.remove(at: index) }
        known.seen += 1
        known.rejected.append((id, known.seen))
        known.forget(before: known.seen - limits.window)
        if known.rejected.count >= tooMany { known.hold = Hold(probeAt: now + Self.probeInterval, after: latest) }
        return true
    }

    // MARK: Probes

    /// A request to the endpoint was sent, which is a probe if the endpoint is held.
    mutating func sent(to endpoint: String, now: Timestamp) {
        if isHolding(endpoint) { endpoints[endpoint]?.hold?.probeAt = now + Self.probeInterval }
    }

    mutating func probeNow(now: Timestamp) {
        for name in endpoints.keys where isHolding(name) { endpoints[name]?.hold?.probeAt = now }
    }

    // MARK: Ends, and a former run

    /// Rejections of messages up to `id` are right. Returns the endpoints that were held.
    mutating func release(through id: MessageID) -> [String] {
        let names = held.keys.sorted()
        guard !names.isEmpty else { return [] }
        endpoints = [:]
        allowedThrough = id
        return names
    }

    /// These endpoints were held when the former run ended. A start is no reason to probe earlier than before.
    mutating func restore(_ names: [String], now: Timestamp) {
        for name in names {
            endpoints[name, default: Endpoint()].hold = Hold(probeAt: now + Self.probeInterval, after: 0)
        }
    }

    /// The settings have changed. A guard that is turned off holds nothing. Returns the endpoints that it held.
    mutating func apply(_ limits: Limits) -> [String] {
        guard limits.tooMany == nil else { return [] }
        defer { endpoints = [:] }
        return held.keys.sorted()
    }
}
