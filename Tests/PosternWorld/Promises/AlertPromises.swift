import PosternCore
import PosternDelivery
import PosternScenarios
import PosternStore
import PosternTestKit

@testable import PosternGateway

/// What alerts promise: no event of an upstream is told twice within a minute, and each condition that was told gets its
/// end.
final class AlertPromises {
    private unowned let world: World
    private let plan: CallbackPlan?
    /// When each event was told last, by event and upstream.
    private var toldAt: [String: MonotonicInstant] = [:]
    /// When conditions were told as having begun, and as having ended, as far as that is known.
    private var told: [Condition: (begun: Set<String>, ended: Set<String>)] = [:]
    /// Some time passes from the look at a condition until what it shows is stored.
    private static let interval = Duration.seconds(45)

    static let startText = #"{"event":""#
    private static let starts = AlertEvent.allCases.map { Array(#"\#(startText)\#($0.rawValue)","upstream":"#.utf8) }

    static func isAlert(_ text: ArraySlice<UInt8>) -> Bool { starts.contains { text.starts(with: $0) } }

    private struct Condition: Hashable {
        let event: String
        let upstream: String
    }

    init(_ world: World) {
        self.world = world
        plan = world.plan.settings.callbacks
    }

    // MARK: While it goes on

    /// The gateway logs each alert as soon as it is stored.
    func logged(_ line: String) {
        guard line.hasPrefix("alert queued") else { return }
        func value(_ name: String) -> String {
            line.split(separator: " ").first { $0.hasPrefix("\(name)=") }.map { String($0.dropFirst(name.count + 1)) }
                ?? ""
        }
        let (event, upstream, now) = (value("event"), value("upstream"), world.time.instant)
        world.promises.coverage.visit("alert: \(event) \(value("status"))")
        note(event, upstream, status: value("status"), at: value("at"))
        let key = "\(event) \(upstream)"
        defer { toldAt[key] = now }
        guard let former = toldAt[key], now - former < Self.interval, isCertain(since: former) else { return }
        world.promises.fail("an alert is told once a minute at most", "\(key) was told again after \(now - former)")
    }

    /// After a restart, the wall clock says how long ago something was told.
    private func isCertain(since moment: MonotonicInstant) -> Bool {
        world.promises.losses == 0 && world.restores == 0 && !world.isDamaged
            && world.clockSetAt.map { $0 < moment } ?? true
    }

    private func note(_ event: String, _ upstream: String, status: String, at: String) {
        guard event != "messages.dropped" else { return }
        let condition = Condition(event: event == "upstream.up" ? "upstream.down" : event, upstream: upstream)
        if status == "firing" {
            told[condition, default: ([], [])].begun.insert(at)
        } else {
            told[condition, default: ([], [])].ended.insert(at)
        }
    }

    /// Returns the ids of the messages with this text. A process may have been killed after it stored an alert, and
    /// before it wrote to the log.
    func sent(_ text: String) -> [MessageID] {
        func member(_ name: String) -> String {
            text.firstBytes(of: "\"\(name)\":\"").map { String(text[$0.upperBound...].prefix { $0 != "\"" }) } ?? ""
        }
        let (event, upstream) = (member("event"), member("upstream"))
        note(event, upstream, status: member("status"), at: member("at"))
        if plan?.events.contains(event) != true {
            world.promises.fail("only the alerts that were chosen are told", text)
        }
        guard let plan, let outbox = world.run?.gateway.outbox else { return [] }
        let key = upstream.isEmpty ? event : "\(event)/\(upstream)"
        let filter = MessageFilter(upstream: UpstreamName(plan.upstream), state: .queued, key: key)
        let found = world.weather.quietly { try? outbox.messages(filter, after: nil, limit: 100, payload: true) }
        return found?.messages.filter { $0.payload == Array(text.utf8) }.map(\.id) ?? []
    }

    // MARK: At the end

    /// A condition that is over, and of which that is not told.
    private var unfinished: Condition? {
        guard isWhole else { return nil }
        let open = told.filter { condition, times in
            times.begun.count > times.ended.count && isOver(condition)
                && (condition.event != "upstream.down" || plan?.events.contains("upstream.up") == true)
        }
        return open.keys.min { ($0.event, $0.upstream) < ($1.event, $1.upstream) }
    }

    private func isOver(_ condition: Condition) -> Bool {
        switch condition.event {
        case "upstream.down", "upstream.unauthorized":
            world.snapshot(of: condition.upstream).map { [.up, .degraded].contains($0.health) } ?? false
        case "disk.full": world.run.map { $0.gateway.outbox.failure == nil } ?? false
        // Nothing is queued any more.
        default: true
        }
    }

    /// Whether nothing that was told can be missing: the end of an outage may have been dropped before it was seen, if
    /// the process was killed then.
    private var isWhole: Bool {
        world.promises.losses == 0 && world.restores == 0
            && !world.plan.settings.caps.contains { $0.upstream == plan?.upstream }
    }

    /// Whether it may end, once nothing is queued.
    var isComplete: Bool { unfinished == nil }

    func atTheEnd() {
        guard let condition = unfinished, let times = told[condition] else { return }
        world.promises.fail(
            "each condition that was told gets its end",
            "\(condition.event) of \(condition.upstream) has begun \(times.begun.count) times, and ended "
                + "\(times.ended.count) times")
    }
}
