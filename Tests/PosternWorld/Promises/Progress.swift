import PosternCore
import PosternDelivery
import PosternStore
import PosternTestKit

@testable import PosternGateway

/// Messages that could be sent: an upstream for which nothing is wrong takes what waits for it. A wake-up that was lost
/// shows here, before an operator or a restart makes up for it.
final class Progress {
    /// How many looks, one each half hour, a message may take that nothing keeps waiting.
    private static let mostLooks = 2
    private unowned let world: World
    /// The oldest message that waits for an upstream, and in how many looks it has been that.
    private var oldest: [UpstreamKind: (number: Int, looks: Int)] = [:]

    init(_ world: World) { self.world = world }

    func look() {
        for kind in [UpstreamKind.samsara, .seer, .streamone] {
            guard isCalm(kind), let run = world.run, let entry = oldestWaiting(of: kind, run) else {
                oldest[kind] = nil
                continue
            }
            let looks = oldest[kind]?.number == entry.number ? (oldest[kind]?.looks ?? 0) + 1 : 1
            oldest[kind] = (entry.number, looks)
            guard looks > Self.mostLooks else { continue }
            world.promises.fail(
                "what can be sent is sent",
                "\(entry.mark), \(entry.ids[0]), of \(kind) waits for an hour, although nothing is wrong")
        }
    }

    private func isCalm(_ kind: UpstreamKind) -> Bool {
        guard let service = world.service(kind), !world.removed.contains(kind), !world.weather.isExcuse else {
            return false
        }
        // A wrong clock keeps StreamOne's signatures from being taken, and poison keeps others waiting.
        if kind == .streamone, world.wasClockSet { return false }
        guard !world.plan.callers.contains(where: { $0.upstream == kind && $0.poison > 0 }) else { return false }
        return service.activeFaults(at: world.time.instant).isEmpty && world.snapshot(of: kind)?.isPaused == false
    }

    private func oldestWaiting(of kind: UpstreamKind, _ run: World.Run) -> Book.Entry? {
        world.book.entries.first { entry in
            guard entry.upstream == kind, !entry.isSettled, !entry.isExempt, !entry.isWaived, !entry.isPoison,
                entry.ids.count == 1, let record = (try? run.gateway.outbox.message(entry.ids[0])) ?? nil
            else { return false }
            entry.isSettled = record.state != .queued
            return !entry.isSettled
        }
    }
}
