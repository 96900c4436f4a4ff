import PosternCore
import PosternSimulatedDisk
import PosternStore
import PosternScenarios
import PosternTestKit

@testable import PosternGateway
@testable import PosternHTTP

/// Who runs the gateway: steers it, changes its configuration, stops and kills it, and sets its clock.
final class Operator {
    private unowned let world: World
    private var actions: ArraySlice<ActionPlan>
    private var diesDone: Set<Int> = []
    /// When it acts next.
    private var nextAt = MonotonicInstant.distantPast

    init(_ world: World) {
        self.world = world
        actions = world.plan.actions[...]
    }

    /// Does what is due. Returns when the next is.
    func act(at now: MonotonicInstant, since start: MonotonicInstant) -> MonotonicInstant {
        if now < nextAt { return nextAt }
        func instant(_ hour: Double) -> MonotonicInstant { start + .milliseconds(Int(hour * 3_600_000)) }
        while let action = actions.first, instant(action.atHour) <= world.time.instant, world.promises.broken == nil {
            actions.removeFirst()
            if world.run == nil { world.restart() }
            world.history.record("\(action)")
            perform(action, SeededRandom(seed: action.draw, for: "action"))
        }
        var next = actions.first.map { instant($0.atHour) } ?? .distantFuture
        for (number, fault) in world.plan.faults.enumerated()
        where fault.kind == .tokensDie && !diesDone.contains(number) {
            if instant(fault.fromHour) <= world.time.instant {
                diesDone.insert(number)
                killTokens(of: fault)
            } else {
                next = min(next, instant(fault.fromHour))
            }
        }
        nextAt = next
        return next
    }

    private func killTokens(of fault: FaultPlan) {
        world.history.record("tokens of \(fault.type.name) die")
        let credentials = world.scenarios.compactMap(\.credential) + (world.devices?.credentials ?? [])
        world.service(fault.type.name)?.endTokens(of: fault, credentials)
    }

    private func perform(_ action: ActionPlan, _ random: SeededRandom) {
        if [.clockBack, .clockFarBack, .clockForward, .suspend, .stall].contains(action.kind) {
            world.clockWillBeSet()
        }
        world.rateCheck.waitsMayEnd()
        world.endpoints.disturbed()
        world.turns.disturbed()
        let name = action.type.name
        let upstream = "/v1/upstreams/\(name)"
        switch action.kind {
        case .pause: Self.post(upstream + "/pause", in: world)
        case .resume:
            world.rateCheck.willResume(name)
            world.massRejections.willResume(name)
            Self.post(upstream + "/resume", in: world)
        case .flush: Self.post(upstream + "/flush", in: world)
        case .retry: retry(action.type, asOperation: random.chance(0.5))
        case .cancel: cancel(random)
        case .reload: reload()
        case .removeUpstream:
            // Callbacks need the upstream that they notify.
            if name != world.plan.settings.callbacks?.upstream { world.removed.insert(name) }
            world.stop()
        case .stop:
            world.promises.coverage.visit("store: open after a stop")
            world.stop()
        case .kill:
            world.promises.coverage.visit("store: open after a kill")
            world.die()
        case .killInside: (world.deathAfter, world.death) = (random.from(0...40), .kill)
        case .powerCut:
            world.promises.coverage.visit("store: open after a power cut")
            world.die(.powerCut)
        case .powerCutInside: (world.deathAfter, world.death) = (random.from(0...40), .powerCut)
        case .killInsideDisk, .powerCutInsideDisk:
            world.death = action.kind == .killInsideDisk ? .kill : .powerCut
            world.disk.strike(.stop, on: nil, after: random.from(0...200))
        case .purge:
            world.purged.insert(name)
            steer("purge", #"{"upstream":"\#(name)","state":"delivered"}"#, asOperation: random.chance(0.5))
        case .changeKey:
            world.changeKey()
            world.stop()
        case .retryDropped:
            retry(action.type, #","state":"dropped""#, asOperation: random.chance(0.5))
        case .probe: world.credentials.probe(name)
        case .clockBack: world.time.setWallClock(back: random.span(1...7200))
        case .clockForward: world.time.setWallClock(back: .zero - random.span(1...7200))
        case .clockFarBack: world.time.setWallClock(back: random.span(10_800...14_400))
        case .suspend: world.time.setWallClock(back: .seconds(-3600))
        case .stall:
            world.time.advance(by: random.span(1...1200))
            world.stoodStill()
        case .flipBit: world.damage(random)
        case .backup: world.takeBackup()
        case .restore: world.restoreBackup(random)
        case .killWhileUncertain: world.diesWhileUncertain = true
        case .moveQueue: world.moves.begin(action.type, random)
        case .flood: world.massRejections.post(to: action.type, random)
        case .replay: world.replays.begin(of: name, random)
        case .erase: world.erasures.erase(random)
        case .wrongEndpointFirst:
            let isReload = random.chance(0.3)
            if isReload {
                reload()
            } else {
                if random.chance(0.5) { world.stop() } else { world.die() }
                world.restart()
            }
            world.endpoints.post(to: action.type, random)
        }
    }

    private func retry(_ type: any TypeScenarios, _ more: String = "", asOperation: Bool) {
        let kind = type.traits.contains(.sendsOnce) ? #","kind":"\#(type.kind)""# : ""
        steer("retry", #"{"upstream":"\#(type.name)"\#(kind)\#(more)}"#, asOperation: asOperation)
    }

    /// An operation is looked at once it has begun, and now and then stopped. The latest events are, too.
    private func steer(_ action: String, _ body: String, asOperation: Bool) {
        let headers: [(name: String, value: String)] = asOperation ? [("Prefer", "respond-async")] : []
        Self.post("/v1/messages/\(action)", headers: headers, body, in: world) { [world] response, text in
            guard asOperation, let path = response.headers.first(where: { $0.name == "Location" })?.value else {
                return
            }
            Self.post("/v1/stream", method: "GET", headers: [("Accept", "application/json")], "", in: world)
            Self.post(path, method: text.hasBytes(of: "7") ? "DELETE" : "GET", "", in: world) { response, text in
                let isShown = text.hasBytes(of: "\"action\":\"\(action)\"")
                guard response.status == 200 ? !isShown : response.status == 404 else { return }
                world.promises.fail("an operation can be looked at", "\(response.status) \(text)")
            }
        }
    }

    private func cancel(_ random: SeededRandom) {
        func mayBeCancelled(_ entry: Expectations.Entry) -> Bool {
            !entry.ids.isEmpty && !entry.isNeeded && !entry.isWaived
        }
        // What is being sent is the worst choice.
        var candidates = world.run?.network.underWay.filter(mayBeCancelled) ?? []
        if candidates.isEmpty { candidates = world.expectations.entries.suffix(60).filter(mayBeCancelled) }
        guard !candidates.isEmpty else { return }
        let entry = random.pick(candidates)
        entry.isExempt = true
        // A request without a response may have stored another copy.
        let isOnly = entry.ids.count == 1 && entry.unanswered == 0
        for id in entry.ids {
            Self.post("/v1/messages/\(id)", method: "DELETE", "", in: world) { [world] response, text in
                guard response.status == 200 else { return }
                entry.isCancelled = isOnly
                // The upstream is told of the session again with its next event.
                if isOnly, world.run?.network.underWay.contains(where: { $0 === entry }) == true,
                    !world.rateCheck.isStartOfQueued(entry)
                {
                    world.promises.fail("what is being sent is not cancelled", "\(entry.mark), \(id)")
                }
                guard !text.contains(#""state":"cancelled""#) else { return }
                world.promises.fail("a cancel that succeeds has an effect", "\(entry.mark), \(id): \(text)")
            }
        }
    }

    /// Only delivery settings differ, so each upstream keeps its token.
    private func reload() {
        world.reloads += 1
        guard let run = world.run else { return }
        do {
            _ = run.gateway.reload(try world.configuration())
        } catch {
            world.promises.fail("a good configuration can be reloaded", "\(error)")
        }
    }

    static func post(
        _ path: String, method: String = "POST", headers: [(name: String, value: String)] = [],
        _ body: String = "{}",
        in world: World,
        then: @escaping (HTTPResponse, String) -> Void = { _, _ in }
    ) {
        let post = Post(
            path: path, headers: headers + (body.isEmpty ? [] : [(name: "Content-Type", value: "application/json")]),
            body: body, method: method, entries: [])
        world.run?.ingress.send(post.bytes) { [weak world] response in
            guard let world, let response else { return }
            world.history.record("operator gets \(response.status) of \(path)")
            world.promises.responded(response, to: post)
            let text = String(decoding: response.body, as: UTF8.self)
            then(response, text)
            if text.hasBytes(of: "\"retried\":"), !text.hasBytes(of: "\"retried\":0") {
                world.promises.coverage.visit(
                    "message: \(post.body.contains("dropped") ? "dropped" : "failed") → queued")
            }
        }
    }
}
