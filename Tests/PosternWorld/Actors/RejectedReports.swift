import PosternCore
import PosternDelivery
import PosternScenarios
import PosternUpstream

@testable import PosternGateway
@testable import PosternStore

/// What an SDK posts and the rules of its kind refuse: messages that are stored as failed, which no request to the API brings.
/// Nothing is wrong with these, so that their upstream takes them if the operator retries them.
final class RejectedReports: @unchecked Sendable {
    // @unchecked: for the thread of the world only.
    private unowned let world: World
    private let type: any TypeScenarios
    private let random: SeededRandom
    private static let fault = "/mark is refused"

    init(_ plan: CallerPlan, _ world: World) {
        self.world = world
        type = plan.type
        random = SeededRandom(seed: world.plan.seed, for: "rejected \(plan.number)")
    }

    /// Now and then, stores one.
    func report(of scenario: any Scenario) {
        guard scenario.mayBeRefused, random.chance(0.05), let run = world.run,
            let queue = run.workers.first(where: { $0.type.name == type.name })?.worker.queue.target
        else { return }
        let stage = Stage(type.name, world.expectations, now: world.upstreamTime.now, random)
        let (outbox, entries) = (run.gateway.outbox, Entries())
        let messages = scenario.next(random.from(1...6), stage, poison: 0).compactMap { item -> NewMessage? in
            guard item.method == nil, let entry = item.entry,
                let message = message(item, to: queue, at: outbox.time.now, fails: entries.all.isEmpty)
            else { return nil }
            (entry.isExempt, entry.isPending, entry.isFromSDK) = (true, true, true)
            entry.isRejected = entries.all.isEmpty
            entries.all.append(entry)
            return message
        }
        guard !messages.isEmpty else { return }
        world.history.record("an SDK of \(type.name) \(entries.all.map(\.mark).joined(separator: " "))")
        let number = world.runs
        outbox.append(messages) { [self] result in
            for entry in entries.all { entry.isPending = false }
            guard case .success(let receipt) = result, world.runs == number else {
                for entry in entries.all { entry.unanswered += 1 }
                return
            }
            for (entry, id) in zip(entries.all, receipt.ids) { entry.ids.append(id) }
            check(entries.all[0], receipt, outbox)
        }
    }

    /// For the thread of the world only.
    private final class Entries: @unchecked Sendable {
        var all: [Expectations.Entry] = []
    }

    private func message(_ item: ScenarioItem, to queue: QueueTarget, at now: Timestamp, fails: Bool) -> NewMessage? {
        let payload = Array(item.payload.utf8)
        let valid = try? JSONParser.ofThisThread.parse(payload) { root in
            try? queue.upstream.validate(root, of: Kind(item.kind), in: ValidationContext(acceptedAt: now))
        }.get()
        guard let valid = valid.flatMap(\.self) else { return nil }
        return NewMessage(
            queue: queue, kind: Kind(item.kind), lane: valid.lane, acceptedAt: now, expiresAt: valid.expiresAt,
            bytes: valid.rewritten ?? payload, waitsFor: valid.waitsFor, isFromSDK: true,
            failure: fails ? Self.fault : nil)
    }

    private func check(_ entry: Expectations.Entry, _ receipt: AppendReceipt, _ outbox: Outbox) {
        let record = world.weather.quietly { (try? outbox.message(receipt.ids[0])) ?? nil }
        guard let record, !world.weather.isExcuse else { return }
        world.promises.coverage.visit("message: failed when it was accepted")
        guard record.state != .failed || record.attempts != 0 || record.lastError?.detail != Self.fault else { return }
        world.promises.fail(
            "what is refused is stored as failed",
            "\(entry.mark), \(record.id), is \(record.state.name): \(record.lastError?.detail ?? "no error")")
    }
}
