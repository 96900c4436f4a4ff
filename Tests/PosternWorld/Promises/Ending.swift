import PosternCore
import PosternDelivery
import PosternStore
import PosternTestKit

@testable import PosternGateway
@testable import PosternHTTP

/// The end of a world: the faults are over, the operator has put everything right, and all has to become quiet.
struct Ending {
    private let world: World
    private let dice: Dice

    init(_ world: World) {
        self.world = world
        dice = Dice(seed: world.plan.seed, for: "end")
    }

    func play() {
        world.history.note("faults end")
        world.deathAfter = nil
        world.weather.heal()
        world.removed = []
        let wrong = world.time.now - world.upstreamTime.now
        world.time.setWallClock(back: wrong)
        for service in world.services { service.isHealed = true }
        if world.isDamaged { world.endDamage() }
        // What was left out of the configuration comes back with a start.
        world.stop()
        // A store that the disk has damaged is repaired on the way.
        for _ in 0..<3 where world.run == nil { world.restart() }
        guard world.promises.broken == nil, world.run != nil else {
            return world.promises.fail("the gateway starts", "it does not, although the faults have ended")
        }
        resume()
        let requests = world.services.map(\.requests)
        world.callers?.finish()
        let end = world.time.instant + World.longestEnd
        var (tokensAt, eventAt) = (world.time.instant, world.time.instant)
        while !isQuiet, world.time.instant < end, world.promises.broken == nil {
            if world.time.instant >= tokensAt {
                handInTokens()
                tokensAt = world.time.instant + .seconds(4 * 3600)
            }
            if world.time.instant >= eventAt {
                postEvent()
                eventAt = world.time.instant + .seconds(600)
            }
            world.step(until: min(end, tokensAt, eventAt))
        }
        if world.promises.broken == nil { world.promises.atTheEnd(isQuiet: isQuiet) }
        for (service, before) in zip(world.services, requests) where service.requests > before {
            checkHealth(of: service.kind)
        }
    }

    /// What is not paused has to go on by itself.
    private func resume() {
        for kind in UpstreamKind.allCases where world.snapshot(of: kind)?.isPaused == true {
            Operator.post("/v1/upstreams/\(kind.rawValue)/resume", in: world)
        }
    }

    /// Everything was delivered, so nothing is wrong with what was sent to.
    private func checkHealth(of kind: UpstreamKind) {
        guard let hold = world.snapshot(of: kind)?.hold else { return }
        world.promises.fail("an upstream that works is not held", "\(kind) is held for \(hold.rawValue)")
    }

    private var isQuiet: Bool {
        guard world.callers?.areDone ?? true, let run = world.run else { return false }
        return run.gateway.outbox.ledgers.values.allSatisfy { $0.queued == 0 } && run.door.runningRequests == 0
    }

    /// Doubtful answers to the first messages of all lanes cannot be told from an outage unless something else is
    /// taken.
    private func postEvent() {
        let entry = world.book.begin(.samsara, lane: nil, isExempt: true)
        let post = Post(
            path: "/v1/samsara/event", body: #"{"sourceId":"\#(entry.mark)","eventName":"e","id":"\#(entry.mark)"}"#,
            entries: [entry])
        entry.isPending = true
        world.run?.door.send(post.bytes) { [world] response in
            entry.isPending = false
            if let response, response.status == 202 { world.promises.accepted([entry], response) }
        }
    }

    private func handInTokens() {
        for user in world.users {
            let item = user.freshToken(dice)
            let post = Post(path: item.kind, body: item.payload, method: "PUT", entries: [])
            world.run?.door.send(post.bytes) { _ in }
        }
    }
}
