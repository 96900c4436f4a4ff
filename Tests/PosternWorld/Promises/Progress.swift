import PosternCore
import PosternDelivery
import PosternStore
import PosternScenarios
import PosternTestKit

@testable import PosternGateway

/// Messages that could be sent: an upstream for which nothing is wrong takes what waits for it. A wake-up that was lost
/// shows here, before an operator or a restart makes up for it.
final class Progress {
    /// How many looks, one each half hour, a message may take that nothing keeps waiting.
    private static let maxLooks = 2
    private unowned let world: World
    /// The oldest message that waits for an upstream, and in how many looks it has been that.
    private var oldest: [String: (number: Int, looks: Int)] = [:]

    init(_ world: World) { self.world = world }

    func look() {
        for service in world.services where service.type.traits.contains(.independent) {
            let name = service.name
            guard isCalm(service), let run = world.run, let entry = oldestWaiting(of: service, run) else {
                oldest[name] = nil
                continue
            }
            let looks = oldest[name]?.number == entry.number ? (oldest[name]?.looks ?? 0) + 1 : 1
            oldest[name] = (entry.number, looks)
            guard looks > Self.maxLooks else { continue }
            world.promises.fail(
                "what can be sent is sent",
                "\(entry.mark), \(entry.ids[0]), of \(name) waits for an hour, although nothing is wrong; "
                    + "\(world.run.flatMap { (try? $0.gateway.outbox.message(entry.ids[0])) ?? nil }.map { "\($0) at \(world.time.now)" } ?? "")"
            )
        }
    }

    private func isCalm(_ service: Service) -> Bool {
        guard !world.removed.contains(service.name), !world.weather.isExcuse else { return false }
        if service.type.traits.contains(.signedWithTime), world.wasClockSet { return false }
        // Poison keeps others waiting.
        guard !world.plan.callers.contains(where: { $0.type.name == service.name && $0.poison > 0 }),
            !world.plan.devices.contains(where: { $0.type.name == service.name && $0.poison > 0 })
        else { return false }
        return service.activeFaults(at: world.time.instant).allSatisfy { $0.kind == .wrongEndpoint }
            && world.snapshot(of: service.name)?.isPaused == false
    }

    private func isDue(_ entry: Expectations.Entry) -> Bool {
        guard let notBefore = entry.notBefore else { return !entry.isExempt }
        return !world.wasClockSet && notBefore <= world.upstreamTime.now
    }

    private func oldestWaiting(of service: Service, _ run: World.Run) -> Expectations.Entry? {
        let wrong = service.activeFaults(at: world.time.instant).compactMap { $0.wrongEndpoint?.endpoint.kind }
        return world.expectations.entries.first { entry in
            guard entry.upstream == service.name, !wrong.contains(where: { $0 == entry.lane }), !entry.isSettled,
                isDue(entry), !entry.isWaived, !entry.isPoison,
                entry.ids.count == 1, let record = (try? run.gateway.outbox.message(entry.ids[0])) ?? nil
            else { return false }
            entry.isSettled = record.state != .queued
            return !entry.isSettled
        }
    }
}
