import PosternCore
import PosternDelivery
import PosternStore
import PosternScenarios
import PosternTestKit
import PosternUpstream

@testable import PosternGateway
@testable import PosternHTTP

/// The end of a world: the faults are over, the operator has put everything right, and all has to become quiet.
struct Ending {
    private let world: World

    init(_ world: World) { self.world = world }

    func play() {
        world.history.record("faults end")
        (world.deathAfter, world.diesWhileUncertain) = (nil, false)
        world.weather.heal()
        world.removed = []
        let wrong = world.time.now - world.upstreamTime.now
        world.time.setWallClock(back: wrong)
        for service in world.services { service.healedAt = world.time.instant }
        if world.isDamaged { world.endDamage() }
        // What was left out of the configuration comes back with a start.
        world.stop()
        // A store that the disk has damaged is repaired on the way.
        for _ in 0..<3 where world.run == nil {
            world.restart()
            if world.isDamaged { world.endDamage() }
        }
        guard world.promises.broken == nil, world.run != nil else {
            return world.promises.fail("the gateway starts", "it does not, although the faults have ended")
        }
        resume()
        let requests = world.services.map(\.requests)
        world.callers?.finish()
        world.devices?.finish()
        let end = world.time.instant + World.longestEnd
        var (tokensAt, eventAt) = (world.time.instant, world.time.instant)
        while !isQuiet, world.time.instant < end, world.promises.broken == nil {
            if world.time.instant >= tokensAt {
                handInTokens()
                tokensAt = world.time.instant + .seconds(4 * 3600)
            }
            if world.time.instant >= eventAt {
                postFillers()
                cancelDistant(isLate: end - world.time.instant < World.longestEnd / 2)
                eventAt = world.time.instant + .seconds(600)
            }
            world.step(until: min(end, tokensAt, eventAt))
        }
        if world.promises.broken == nil { world.promises.atTheEnd(isQuiet: isQuiet) }
        for (service, before) in zip(world.services, requests) where service.requests > before {
            checkHealth(of: service.name)
        }
    }

    /// What is not paused has to go on by itself.
    private func resume() {
        for service in world.services where world.snapshot(of: service.name)?.isPaused == true {
            Operator.post("/v1/upstreams/\(service.name)/resume", in: world)
        }
    }

    /// Everything was delivered, so nothing is wrong with what was sent to.
    private func checkHealth(of upstream: String) {
        guard let hold = world.snapshot(of: upstream)?.hold else { return }
        world.promises.fail("an upstream that works is not held", "\(upstream) is held for \(hold.rawValue)")
    }

    private var isQuiet: Bool {
        guard world.callers?.areDone ?? true, world.devices?.areDone ?? true, let run = world.run else { return false }
        return run.gateway.outbox.ledgers.values.allSatisfy { $0.queued == 0 } && run.ingress.runningRequests == 0
            && world.alerts.isComplete && world.replays.areDone
    }

    /// Doubtful answers to the first messages of all lanes cannot be told from an outage unless something else is
    /// taken.
    private func postFillers() {
        for type in world.plan.types where type.filler("") != nil {
            let entry = world.expectations.begin(type.name, lane: nil, isExempt: true)
            let post = Post(
                path: "/v1/\(type.name)/\(type.kind)", body: type.filler(entry.mark) ?? "", entries: [entry])
            entry.isPending = true
            world.run?.ingress.send(post.bytes) { [world] response in
                entry.isPending = false
                if let response, response.status == 202 { world.promises.accepted([entry], response) }
            }
        }
    }

    /// The operator gives up what is not to be sent for years. Its caller may not know its id. Late also groups that an SDK has
    /// created with a token that came with no user: they wait for the next token of an unknown user.
    private func cancelDistant(isLate: Bool) {
        let inYears = world.upstreamTime.now + .seconds(366 * 86_400)
        let queued = try? world.run?.gateway.outbox.messages(MessageFilter(state: .queued), after: nil, limit: 1000)
        for message in queued?.messages ?? [] {
            let isUnclaimed = isLate && message.isFromSDK && message.kind == "group" && message.facts.isParked
            guard isUnclaimed || (message.facts.nextAttemptAt ?? inYears) > inYears else { continue }
            Operator.post("/v1/messages/\(message.id)", method: "DELETE", "", in: world)
        }
    }

    private func handInTokens() {
        for item in world.scenarios.compactMap({ $0.freshCredential() }) {
            let post = Post(path: item.kind, body: item.payload, method: "PUT", entries: [])
            world.run?.ingress.send(post.bytes) { _ in }
        }
    }
}
