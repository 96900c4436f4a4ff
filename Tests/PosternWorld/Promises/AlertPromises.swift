import PosternCore
import PosternDelivery
import PosternScenarios
import PosternStore
import PosternTestKit

@testable import PosternGateway

/// What alerts promise: no event of an upstream is told twice within a minute, and each outage that was told gets its
/// end.
final class AlertPromises {
    private unowned let world: World
    private let plan: CallbackPlan?
    /// When each event was told last, by event and upstream.
    private var toldAt: [String: MonotonicInstant] = [:]
    /// The texts of the outages, and of their ends, that are known, by the upstream.
    private var downs: [String: Set<String>] = [:]
    private var ups: [String: Set<String>] = [:]
    /// Some time passes from the look at a condition until what it shows is stored.
    private static let interval = Duration.seconds(45)

    static let startText = #"{"event":""#
    private static let starts = AlertEvent.allCases.map { Array(#"\#(startText)\#($0.rawValue)","upstream":"#.utf8) }

    static func isAlert(_ text: ArraySlice<UInt8>) -> Bool { starts.contains { text.starts(with: $0) } }

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
        note(event, upstream, at: value("at"))
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

    private func note(_ event: String, _ upstream: String, at: String) {
        if event == "upstream.down" { downs[upstream, default: []].insert(at) }
        if event == "upstream.up" { ups[upstream, default: []].insert(at) }
    }

    /// Returns the ids of the messages with this text. A process may have been killed after it stored an alert, and
    /// before it wrote to the log.
    func sent(_ text: String) -> [MessageID] {
        func member(_ name: String) -> String {
            text.firstBytes(of: "\"\(name)\":\"").map { String(text[$0.upperBound...].prefix { $0 != "\"" }) } ?? ""
        }
        let (event, upstream) = (member("event"), member("upstream"))
        note(event, upstream, at: member("at"))
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

    private var lastsTooLong: String? {
        guard let plan, Set(["upstream.down", "upstream.up"]).isSubset(of: plan.events), isWhole else { return nil }
        return downs.keys.sorted().first { upstream in
            guard let health = world.snapshot(of: upstream)?.health, [.up, .degraded].contains(health) else {
                return false
            }
            return (downs[upstream]?.count ?? 0) > (ups[upstream]?.count ?? 0)
        }
    }

    /// Whether nothing that was told can be missing: the end of an outage may have been dropped before it was seen, if
    /// the process was killed then.
    private var isWhole: Bool {
        world.promises.losses == 0 && world.restores == 0
            && !world.plan.settings.caps.contains { $0.upstream == plan?.upstream }
    }

    var isComplete: Bool { lastsTooLong == nil }

    func atTheEnd() {
        guard let upstream = lastsTooLong else { return }
        world.promises.fail(
            "each outage that was told gets its end",
            "\(upstream) was \(downs[upstream]?.count ?? 0) times down, and \(ups[upstream]?.count ?? 0) times up again"
        )
    }
}
