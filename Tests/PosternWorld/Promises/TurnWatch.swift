import PosternAPI
import PosternCore
import PosternDelivery
import PosternScenarios
import PosternStore
import PosternTestKit

@testable import PosternGateway

/// Where callers take turns, what one of them has posted is not passed over for long, whatever others have queued.
final class TurnWatch {
    private unowned let world: World
    /// Of each upstream and caller: the requests without one of its messages, while one could be sent.
    private var passed: [String: [Waiter: Int]] = [:]
    /// Of each upstream, the number of the latest message that was posted while it was not calm.
    private var held: [String: Int] = [:]

    private struct Waiter: Hashable {
        let caller: Int
        /// Whether the message was there while the upstream was not calm. Probes choose among such messages, and the others
        /// of those are sent together, as a group that is sent again is: in their order, between new messages.
        let wasHeld: Bool
    }
    /// The messages among which a probe chooses.
    private static let probeChoice = 512

    init(_ world: World) { self.world = world }

    /// The API key of a caller; nil for that of the operator.
    static func key(of caller: Int?) -> String { caller.map { "key-of-caller-\($0)" } ?? "key-of-operator" }

    /// The setting `delivery.fairBy`; nil if callers have no keys.
    var fairBy: String? {
        let all = world.plan.settings.turns
        return all.isEmpty ? nil : all[world.reloads % all.count]
    }

    /// The elements of `auth.keys`.
    var keys: [String] {
        guard fairBy != nil else { return [] }
        return ([nil] + world.plan.callers.map { $0.number as Int? }).map { caller in
            let digest = KeyText.digest(of: Self.key(of: caller)).hexadecimal
            let weight = caller.map(SettingsPlan.weight) ?? 1
            return #"{"name":"\#(Self.key(of: caller))","sha256":"\#(digest)","scopes":["write","read","admin"],"#
                + #""weight":\#(weight)}"#
        }
    }

    func disturbed() { passed = [:] }

    /// A request leaves.
    func sent(_ entries: [Expectations.Entry], to service: Service) {
        let isFirst = entries.contains { !$0.wasSent }
        for entry in entries { entry.wasSent = true }
        guard fairBy == "caller", isCalm(service) else {
            passed[service.name] = nil
            held[service.name] = world.expectations.entries.count
            return
        }
        // What is sent again is sent between new messages.
        guard isFirst else { return }
        let served = Set(entries.compactMap(\.caller))
        let all = world.expectations.entries.filter { $0.upstream == service.name }
        // A lane that callers share waits in the turn of one of them.
        var owners: [String: Set<Int?>] = [:]
        for entry in all {
            guard let lane = entry.lane else { continue }
            owners[lane, default: []].insert(entry.caller)
            // Copies have no caller.
            if entry.copies > 0 { owners[lane]?.insert(nil) }
        }
        var counts: [Waiter: Int] = [:]
        let kind = kind(of: entries, to: service)
        let limits = service.type.rates(seed: world.plan.seed)
        for entry in all where isWaiting(entry) && entry.lane.map({ owners[$0]?.count == 1 }) ?? true {
            guard let caller = entry.caller, !served.contains(caller) else { continue }
            let waiter = Waiter(caller: caller, wasHeld: entry.number < held[service.name] ?? 0)
            guard counts[waiter] == nil else { continue }
            counts[waiter] = passed[service.name]?[waiter] ?? 0
            // A kind with a limit of its own waits for that, while others are sent.
            guard limits[entry.kind] == nil || entry.kind == kind else { continue }
            counts[waiter, default: 0] += 1
            world.promises.coverage.visit("queue: a caller waits while others are sent")
            let most = most(service) + (waiter.wasHeld ? 2 * Self.probeChoice : 0)
            guard counts[waiter, default: 0] > most else { continue }
            guard isNext(entry, of: all) else {
                counts[waiter] = 0
                continue
            }
            world.promises.fail(
                "callers take turns",
                "\(entry.mark), \(entry.ids[0]), waits while \(most) requests of others are sent")
        }
        passed[service.name] = counts
    }

    /// Events about messages have the kind of the type.
    private func kind(of entries: [Expectations.Entry], to service: Service) -> String {
        entries.lazy.map(\.kind).first { !$0.isEmpty } ?? service.type.kind
    }

    /// Every turn has its weight in messages before the next one. Every other request may be of rows that were left before,
    /// and some are claimed before a message is stored, and sent after that.
    private func most(_ service: Service) -> Int {
        let callers =
            world.plan.callers.count { $0.type.name == service.name } + 2
            + world.plan.devices.count { $0.type.name == service.name }
        return 2 * SettingsPlan.maxWeight * callers + 2 * world.plan.settings.maxInFlight + 8
    }

    private func isCalm(_ service: Service) -> Bool {
        guard service.type.traits.contains(.independent), !world.weather.isExcuse,
            !world.removed.contains(service.name),
            !world.plan.settings.dropsOldest(of: service.name), let snapshot = world.snapshot(of: service.name)
        else { return false }
        return service.activeFaults(at: world.time.instant).isEmpty && !snapshot.isPaused && snapshot.health == .up
            && snapshot.endpoints.isEmpty
    }

    private func isWaiting(_ entry: Expectations.Entry) -> Bool {
        !entry.wasSent && !entry.isPending && !entry.isExempt && !entry.isPoison && !entry.isWaived && !entry.isSettled
            && !entry.isInvalid && !entry.isProxied && entry.ids.count == 1
    }

    /// Whether the message is queued, and no other one of its lane is before it.
    private func isNext(_ entry: Expectations.Entry, of all: [Expectations.Entry]) -> Bool {
        guard isQueued(entry) else { return false }
        return !all.contains { other in
            other.lane != nil && other.lane == entry.lane && other.number < entry.number && isQueued(other)
        }
    }

    private func isQueued(_ entry: Expectations.Entry) -> Bool {
        guard !entry.isSettled else { return false }
        let records = entry.ids.compactMap { (try? world.run?.gateway.outbox.message($0)) ?? nil }
        return records.contains { $0.state == .queued }
    }
}
