import PosternStore
import PosternTestKit
import PosternCore

@testable import PosternGateway

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
        world.killAfter = nil
        world.removed = []
        let wrong = world.time.now - world.upstreamTime.now
        world.time.setWallClock(back: wrong)
        for service in world.services { service.isHealed = true }
        // What was left out of the configuration comes back with a start.
        world.stop()
        world.restart()
        guard world.promises.broken == nil else { return }
        for kind in UpstreamKind.allCases { Operator.post("/v1/upstreams/\(kind.rawValue)/resume", in: world) }
        world.callers?.finish()
        let end = world.time.instant + World.longestEnd
        var tokensAt = world.time.instant
        while !isQuiet, world.time.instant < end, world.promises.broken == nil {
            if world.time.instant >= tokensAt {
                handInTokens()
                tokensAt = world.time.instant + .seconds(4 * 3600)
            }
            world.step(until: min(end, tokensAt))
        }
        if world.promises.broken == nil { world.promises.atTheEnd(isQuiet: isQuiet) }
    }

    private var isQuiet: Bool {
        guard world.callers?.areDone ?? true, let run = world.run else { return false }
        return run.parts.outbox.ledgers.values.allSatisfy { $0.queued == 0 } && run.door.runningRequests == 0
    }

    private func handInTokens() {
        for user in world.users {
            let item = user.freshToken(dice)
            let post = Post(path: item.kind, body: item.payload, method: "PUT", entries: [])
            world.run?.door.send(post.bytes) { _ in }
        }
    }
}
