import PosternCore
import PosternEvents
import PosternHTTP
import PosternScenarios
import PosternTestKit

/// What a caller sends once more although it was accepted: requests under their `Idempotency-Key`, and events, alone or
/// among others. The gateway has to recognize them, also after a restart.
final class Repeats {
    /// Less than the gateway remembers them for, even if its clock is set forward several times.
    private static let longestAge = Duration.seconds(4 * 3600)
    private static let most = 20

    /// An event as the caller sends it.
    struct Event {
        let entry: Expectations.Entry
        let type: String
        let data: String
        var id: String
        let source: String

        var json: String {
            #"{"specversion":"1.0","id":"\#(id)","source":"\#(source)","type":"\#(type)","data":\#(data)}"#
        }
    }

    /// When it was accepted for the first time.
    private struct Accepted<Value> {
        let value: Value
        let entries: [Expectations.Entry]
        let at: MonotonicInstant
    }
    private let plan: CallerPlan
    private let random: SeededRandom
    private let time: any TimeSource
    private var requests: [Accepted<(post: Post, response: HTTPResponse)>] = []
    private var events: [Accepted<Event>] = []

    init(_ plan: CallerPlan, _ world: World) {
        self.plan = plan
        random = SeededRandom(seed: world.plan.seed, for: "repeats \(plan.number)")
        time = world.time
    }

    /// Whether the next request consists of events.
    func sendsEvents() -> Bool { random.chance(plan.events) }

    func accepted(_ post: Post, _ response: HTTPResponse) {
        guard plan.repeats > 0 else { return }
        // The outcome of a request that waits may replace its first response.
        if post.key != nil, post.first == nil, !post.hasWaited {
            requests.append(Accepted(value: (post, response), entries: post.entries, at: time.instant))
            requests = requests.suffix(Self.most)
        }
        for event in post.events where !events.contains(where: { $0.value.id == event.id }) {
            events.append(Accepted(value: event, entries: [event.entry], at: time.instant))
        }
        events = events.suffix(Self.most)
    }

    private func known<Value>(_ list: [Accepted<Value>]) -> [Accepted<Value>] {
        guard random.chance(plan.repeats) else { return [] }
        return list.filter { time.instant - $0.at < Self.longestAge && !$0.entries.contains(where: \.isWaived) }
    }

    private func knownRequest() -> (post: Post, response: HTTPResponse)? {
        let known = self.known(requests)
        return known.isEmpty ? nil : random.pick(known).value
    }

    /// A request that was accepted before.
    func request() -> Post? {
        guard let (former, response) = knownRequest() else { return nil }
        var post = former
        post.first = response
        return post
    }

    /// The key of a request that was accepted, for another request.
    func key() -> String? { knownRequest()?.post.key }

    /// Some events that were accepted before.
    func formerEvents() -> [Event] {
        let known = self.known(events)
        guard !known.isEmpty else { return [] }
        let first = random.below(known.count)
        return known[first...].prefix(random.from(1...3)).map(\.value)
    }
}

extension Post {
    /// - Parameter isBinary: Whether the attributes of a single event are headers.
    init(_ events: [Repeats.Event], isBinary: Bool) {
        let entries = events.map(\.entry)
        let path = "/v1/cloudevents"
        if events.count > 1 {
            self.init(
                path: path, headers: [("Content-Type", "application/cloudevents-batch+json")],
                body: "[\(events.map(\.json).joined(separator: ","))]", entries: entries)
        } else if isBinary {
            let event = events[0]
            self.init(
                path: path,
                headers: [
                    ("Content-Type", "application/json"), ("ce-specversion", "1.0"), ("ce-id", event.id),
                    ("ce-source", event.source), ("ce-type", event.type),
                ],
                body: event.data, entries: entries)
        } else {
            self.init(
                path: path, headers: [("Content-Type", "application/cloudevents+json")], body: events[0].json,
                entries: entries)
        }
        self.events = events
        for entry in entries { entry.isKnownAgain = true }
    }
}
