import PosternCompression
import PosternCore
import PosternScenarios
import PosternTestKit
import PosternThreads

@testable import PosternHTTP

/// Apps whose SDKs have the gateway in the place of their platforms, in one loop.
final class Devices: Loop, @unchecked Sendable {
    // @unchecked: for the thread of the world only.
    let name = "devices"
    private let devices: [Device]
    private let wakeUp = Inbox<Void>()

    init(_ world: World) {
        devices = world.plan.devices.compactMap { Device($0, world) }
        for device in devices { device.wakeUp = wakeUp }
    }

    func turn(at now: MonotonicInstant) -> MonotonicInstant? {
        _ = wakeUp.takeAll()
        for device in devices where device.nextAt <= now { device.act(at: now) }
        return devices.map(\.nextAt).min() ?? .distantFuture
    }

    func wait(until deadline: MonotonicInstant) -> Bool { wakeUp.wait(until: deadline) }

    /// The apps report nothing new any more; what their SDKs have is still sent.
    func finish() {
        for device in devices { device.finish() }
        wakeUp.nudge()
    }
    var areDone: Bool { devices.allSatisfy { $0.isFinishing && $0.isEmpty } }
    var credentials: [String] { devices.flatMap(\.credentials) }
    func explains(_ violation: String) -> Bool { devices.contains { $0.explains(violation) } }
    /// What the calls of an app have not left at its platform as they should have; nil if there is nothing.
    var mismatch: String? { devices.lazy.compactMap(\.mismatch).first }
    /// What the SDKs still have, for people.
    var descriptionOfRest: String? {
        devices.first { !$0.isEmpty }.map { "\($0.plan), and its SDK is not empty" }
    }
}

/// An app, and the SDK in it.
final class Device {
    private final class Flight {
        let call: SDKCall
        let deadline: MonotonicInstant
        var exchange: IngressStub.Exchange?

        init(_ call: SDKCall, until deadline: MonotonicInstant) { (self.call, self.deadline) = (call, deadline) }
    }
    let plan: DevicePlan
    private unowned let world: World
    private let random: SeededRandom
    private let losses: SeededRandom
    /// How many of the answers do not arrive.
    private static let lostAnswers = 0.03
    private var model: any SDKModel
    var wakeUp: Inbox<Void>?
    private(set) var isFinishing = false
    /// The requests without an answer, by number.
    private var flights: [Int: Flight] = [:]
    /// When entries were sent for the first time, by number.
    private var firstSent: [Int: MonotonicInstant] = [:]
    private var usedAt: MonotonicInstant
    private var timerAt = MonotonicInstant.distantFuture
    /// Whether an answer has come, so that the SDK may go on.
    private var goesOn = false
    /// Less than the gateway recognizes repeats for, even if its clock is set forward several times.
    private static let longestRepeat = Duration.seconds(4 * 3600)

    init?(_ plan: DevicePlan, _ world: World) {
        let key = TurnWatch.key(of: nil)
        let device = SDKDevice(
            plan.number, seed: world.plan.seed, key: key, reportsInvalid: plan.reportsInvalid)
        guard let model = plan.type.sdk(on: device) else { return nil }
        (self.plan, self.world, self.model) = (plan, world, model)
        random = SeededRandom(seed: world.plan.seed, for: "app \(plan.number)")
        losses = SeededRandom(seed: world.plan.seed, for: "losses \(plan.number)")
        usedAt = world.time.instant + random.span(1...plan.pause * 3)
    }

    private var upstream: String { plan.type.name }
    var credentials: [String] { model.credentials }

    func finish() {
        isFinishing = true
        goesOn = true
        model.finish()
    }

    fileprivate func explains(_ violation: String) -> Bool { model.explains(violation) }
    /// What was sent again since, or forgotten, leaves the platform in another state.
    fileprivate var mismatch: String? {
        let isReplayed = world.plan.actions.contains { $0.kind == .replay && $0.type.name == upstream }
        guard !isReplayed, isComparable, let state = world.service(upstream)?.shownState else { return nil }
        return model.mismatch(with: state).map { "\(plan): \($0)" }
    }
    /// Whether the gateway still has all that it has acknowledged.
    private var isComparable: Bool { world.promises.losses == 0 && world.restores == 0 && !world.isDamaged }
    var isEmpty: Bool { model.isEmpty && flights.isEmpty }

    var nextAt: MonotonicInstant {
        let deadline = flights.values.lazy.map(\.deadline).min() ?? .distantFuture
        return goesOn ? .distantPast : min(deadline, timerAt, isFinishing ? .distantFuture : usedAt)
    }

    func act(at now: MonotonicInstant) {
        for number in flights.keys.sorted() {
            guard let flight = flights[number], flight.deadline <= now else { continue }
            flight.exchange?.hangUp()
            answered(number, nil)
        }
        goesOn = false
        if !isFinishing, usedAt <= now {
            model.use(Stage(upstream, world.expectations, now: world.upstreamTime.now, random), poison: plan.poison)
            usedAt = now + random.span(plan.pause / 10...plan.pause * 3)
        }
        let timerFires = timerAt <= now
        send(model.calls(at: world.upstreamTime.now, timerFired: timerFires), at: now)
        if model.isEmpty {
            timerAt = .distantFuture
        } else if timerFires || timerAt == .distantFuture {
            timerAt = now + .seconds(plan.interval)
        }
    }

    private func send(_ calls: [SDKCall], at now: MonotonicInstant) {
        for call in calls {
            let flight = Flight(call, until: now + call.timeout)
            flights[call.number] = flight
            for entry in call.entries {
                // Of two copies on their way, one counts as if its answer were lost.
                if entry.isPending { entry.unanswered += 1 }
                entry.isPending = true
                let first = firstSent[entry.number] ?? now
                firstSent[entry.number] = first
                if now - first > Self.longestRepeat { entry.isKnownAgain = false }
            }
            let marks = call.entries.map(\.mark).joined(separator: " ")
            world.history.record("device \(plan.number) \(call.method) \(call.path) \(marks)")
            guard let run = world.run else {
                answered(call.number, nil, wasConnected: false)
                continue
            }
            world.weather.requestArrives()
            // The network of a device loses it.
            let isLost = !isFinishing && losses.chance(Self.lostAnswers)
            flight.exchange = run.ingress.receive(bytes(of: call)) { [unowned self] in
                answered(call.number, isLost ? nil : $0)
            }
        }
    }

    private func bytes(of call: SDKCall) -> [UInt8] {
        Post(
            path: "/sdk/\(upstream)\(call.path)", headers: call.headers, body: call.body, method: call.method,
            entries: call.entries, coding: call.isCompressed ? .gzip : .identity
        ).bytes
    }

    /// - Parameter response: Nil if none arrived in time, or the connection broke.
    private func answered(_ number: Int, _ response: HTTPResponse?, wasConnected: Bool = true) {
        guard let call = flights.removeValue(forKey: number)?.call else { return }
        for entry in call.entries {
            entry.isPending = flights.values.contains { $0.call.entries.contains { $0 === entry } }
        }
        world.history.record("device \(plan.number) gets \(response.map { "\($0.status)" } ?? "no answer")")
        let reply = response.map { SDKReply($0.status, String(decoding: $0.body, as: UTF8.self)) }
        let verdict = model.take(reply, to: call)
        // Without its upstream, the path does not exist, which only callers with a key are told.
        let isGone = [401, 404].contains(response?.status) && world.removed.contains(upstream)
        if let response, !isGone { world.promises.answered(response, to: call, of: upstream) }
        switch verdict {
        case .accepted: world.promises.acceptedOfSDK(call.entries, upstream)
        case .unexpected(let detail) where !isGone:
            world.promises.fail("an SDK gets what its platform would answer", "\(upstream) \(call.path): \(detail)")
        case .forgotten(let detail):
            if isComparable, !world.wasClockSet, !isGone {
                world.promises.fail(
                    "an SDK's session lives as long as it is used", "\(upstream) \(call.path): \(detail)")
            }
            refused(call, response, wasConnected)
        case .postponed: for entry in call.entries { entry.unanswered += 1 }
        case .kept, .unexpected: refused(call, response, wasConnected)
        }
        goesOn = true
        wakeUp?.nudge()
        world.handOver("response")
    }

    /// While the store fails, a refusal does not say that nothing was stored.
    private func refused(_ call: SDKCall, _ response: HTTPResponse?, _ wasConnected: Bool) {
        guard wasConnected else { return }
        for entry in call.entries {
            if response == nil || world.weather.isExcuse { entry.unanswered += 1 } else { entry.refusals += 1 }
        }
    }
}
