import PosternCore
import PosternScenarios
import PosternTestKit

@testable import PosternGateway
@testable import PosternHTTP
@testable import PosternStore

/// An upstream that rejects everything for a while costs few messages: half of the latest hundred and one more, for each
/// process that it meets.
final class MassRejections {
    /// `delivery.guard` by default.
    private static let most = 51
    /// More than that, and a few.
    private static let flood = 130...200
    private static let few = 3...60
    private unowned let world: World
    /// Rejected messages with which nothing is wrong, by upstream, and how many processes could count from the beginning.
    private var rejected: [String: (entries: [ObjectIdentifier: Expectations.Entry], counts: Int)] = [:]
    /// The upstreams whose rejections an operator has called right.
    private var allowed: Set<String> = []

    init(_ world: World) { self.world = world }

    /// Whether a request with `entries` is rejected, as all others are.
    func strike(_ entries: [Expectations.Entry], to service: Service, at now: MonotonicInstant) -> Bool {
        guard !entries.isEmpty, service.activeFaults(at: now).contains(where: { $0.kind == .rejectsAll }) else {
            return false
        }
        var known = rejected[service.name] ?? ([:], 1)
        for entry in entries {
            entry.wasRejected = true
            known.entries[ObjectIdentifier(entry)] = entry
        }
        rejected[service.name] = known
        return true
    }

    /// A worker has begun, which counts from the beginning unless the endpoint was held: that is stored with the message
    /// that was one too many.
    func began(_ upstream: String) {
        guard let known = rejected[upstream], let outbox = world.run?.gateway.outbox else { return }
        let failed = world.weather.quietly {
            Self.failed(of: known.entries) { (try? outbox.message($0))??.state }
        }
        if failed < Self.most * known.counts { rejected[upstream]?.counts += 1 }
    }

    private static func failed(
        of entries: [ObjectIdentifier: Expectations.Entry], _ state: (MessageID) -> MessageState?
    ) -> Int {
        entries.values.count { entry in !entry.isPoison && entry.ids.contains { state($0) == .failed } }
    }
    func willResume(_ upstream: String) {
        let faults = world.service(upstream)?.activeFaults(at: world.time.instant) ?? []
        if faults.contains(where: { $0.kind == .rejectsAll }) { allowed.insert(upstream) }
    }

    /// Posts many messages in one request, while all are rejected more than may fail.
    func post(to type: any TypeScenarios, _ random: SeededRandom) {
        guard world.run != nil else { return }
        let faults = world.service(type.name)?.activeFaults(at: world.time.instant) ?? []
        let isRejected = faults.contains { $0.kind == .rejectsAll }
        let poison = isRejected ? 0 : random.pick([0, 0.1])
        let entries = (0..<random.from(isRejected ? Self.flood : Self.few)).map { _ in
            world.expectations.begin(
                type.name, lane: nil, isPoison: poison > 0 && random.chance(poison), isExempt: true)
        }
        let lines = entries.compactMap { entry -> String? in
            guard var payload = type.filler(entry.mark) else { return nil }
            if entry.isPoison { payload = payload.dropLast() + #","poison":"clear"}"# }
            (entry.payload, entry.isPending) = (payload, true)
            return payload
        }
        world.post(lines, entries, to: "/v1/\(type.name)/\(type.kind)")
    }

    /// Called at the end, with the state of each message.
    func judge(_ state: (MessageID) -> MessageState?) {
        for (name, found) in rejected.sorted(by: { $0.key < $1.key })
        where !allowed.contains(name) && world.restores == 0 {
            let failed = Self.failed(of: found.entries, state)
            if failed > Self.most / 2 { world.promises.coverage.visit("an upstream rejects everything") }
            guard failed > Self.most * found.counts else { continue }
            world.promises.fail(
                "an upstream that rejects everything costs few messages",
                "\(failed) failed at \(name), which \(found.counts) processes have seen")
        }
    }
}
