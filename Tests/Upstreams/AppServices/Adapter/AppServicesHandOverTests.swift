import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import AppServicesAdapter

/// Section 5.4: a device changes hands. Every order in which two users' items can be accepted, sent, answered, lose
/// their answer, or find their token dead is gone through; none silences the new owner.
@Suite struct AppServicesHandOverTests {
    /// The actions of two users, and their progress.
    private struct World {
        var harness: AppServicesHarness
        var model = ModelAppServices()
        var accepted: [String] = []
        var toCome: [String: [String]]
        var ids: [String: MessageID] = [:]
        var underWay: [String: UpstreamRequest] = [:]
        var answers: [String: UpstreamResponse] = [:]
        var isTokenOfBDead = false
        var losses = 1
        /// The tokens that the gateway knows to be rejected.
        var refused: Set<String> = []
        var sendsRefused = false

        /// Equal for states that behave the same from here on.
        var fingerprint: String {
            let values = harness.state.values.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }
            let messages = harness.messages.values.sorted { $0.id < $1.id }
                .map { "\($0.id) \($0.progress ?? []) \($0.mayHaveArrived)" }
            let ended = harness.ended.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value.state)" }
            let credentials = harness.state.credentials.sorted { $0.key < $1.key }
                .map { "\($0.key) \($0.value.value) \($0.value.isRefused)" }
            let devices = model.devices.description + model.connections.description + "\(model.violations)"
            return [
                "\(values)", "\(messages)", "\(ended)", "\(credentials)", devices, "\(model.users.sorted())",
                "\(accepted)", "\(underWay.keys.sorted())", "\(isTokenOfBDead)", "\(harness.parked.sorted())",
                "\(losses)",
                "\(refused.sorted())", "\(sendsRefused)",
            ].joined(separator: "|")
        }
    }

    private static let users = ["b": "user-b", "c": "user-c"]
    private static let pushTokens = [
        "b": String(repeating: "b", count: 64), "c": String(repeating: "c", count: 64),
    ]

    private static func text(_ item: String) -> (kind: String, text: String) {
        let user = String(item.first ?? "b")
        let token = "token-\(user)"
        switch item.dropFirst() {
        case "unregister": return ("unregister", AppServicesItems.item(users[user] ?? "", token: token))
        case let kind:
            let text = AppServicesItems.registration(users[user] ?? "", push: pushTokens[user] ?? "", token: token)
            return (String(kind), text)
        }
    }

    // MARK: What can happen next

    private static func successors(of world: World) throws -> [World] {
        var next: [World] = []
        for (user, items) in world.toCome {
            guard let item = items.first else { continue }
            var after = world
            after.toCome[user]?.removeFirst()
            let (kind, text) = text(item)
            after.ids[item] = try after.harness.post(kind, text)
            after.accepted.append(item)
            next.append(after)
        }
        // Both users' lanes are of one device: nothing goes out while something is under way.
        if world.underWay.isEmpty {
            for user in ["b", "c"] {
                guard let after = try sending(user, in: world) else { continue }
                next.append(after)
            }
        }
        for (item, request) in world.underWay {
            next.append(try answering(item, request, in: world, isLost: false))
            if world.losses > 0 { next.append(try answering(item, request, in: world, isLost: true)) }
        }
        if !world.isTokenOfBDead {
            var after = world
            after.isTokenOfBDead = true
            after.model.deadTokens = ["token-b"]
            next.append(after)
        } else if world.harness.parked.contains("user-b") {
            var after = world
            after.harness.hold("token-b-renewed", of: "user-b")
            next.append(after)
        }
        return next
    }

    /// The oldest item of the user goes out, or ends without.
    private static func sending(_ user: String, in world: World) throws -> World? {
        guard !world.harness.parked.contains(users[user] ?? ""),
            let item = world.accepted.first(where: { item in
                item.hasPrefix(user) && world.ids[item].map(world.harness.isOpen) ?? false
            }), let id = world.ids[item]
        else { return nil }
        var after = world
        switch try world.harness.plan(id) {
        case .send(let request, _):
            after.underWay[item] = request
            // It arrives at once; what can differ is when its answer is known here.
            after.answers[item] = after.model.answer(request)
            if !after.refused.isDisjoint(with: tokens(request)) { after.sendsRefused = true }
        case .wait: return nil
        case let plan: try after.harness.carryOut(plan, id)
        }
        return after
    }

    private static func answering(
        _ item: String, _ request: UpstreamRequest, in world: World, isLost: Bool
    ) throws -> World {
        var after = world
        after.underWay[item] = nil
        guard let id = world.ids[item], let response = after.answers.removeValue(forKey: item) else { return after }
        if isLost {
            after.losses -= 1
            after.harness.lose(id)
        } else {
            try after.harness.judge(response, to: request, of: id)
            if String(decoding: response.body, as: UTF8.self).contains("expired_token") {
                after.refused.formUnion(tokens(request))
            }
        }
        return after
    }

    private static func tokens(_ request: UpstreamRequest) -> [String] {
        request.headers.filter { $0.name == "Authorization" }.map(\.value)
    }

    // MARK: What must hold

    /// The user who registered last, by acceptance, unless that user has unregistered since.
    private static func expectation(_ world: World) -> (owner: String, isUnregistered: Bool)? {
        guard let last = world.accepted.lastIndex(where: { !$0.hasSuffix("unregister") }) else { return nil }
        let owner = String(world.accepted[last].first ?? "b")
        return (owner, world.accepted[last...].contains(owner + "unregister"))
    }

    private static func fault(of world: World, isOver: Bool) -> String? {
        if !world.model.violations.isEmpty { return "\(world.model.violations)" }
        if world.sendsRefused { return "a refused token was sent again" }
        let push = world.model.devices[AppServicesItems.device]
        let expected = expectation(world)
        // Once the new owner's registration is complete, no request silences it.
        if let expected, !expected.isUnregistered, let id = world.ids[expected.owner + "register"],
            world.harness.ended[id]?.state == .delivered
        {
            if push != pushTokens[expected.owner] { return "the new owner is silenced" }
            if world.model.connections[AppServicesItems.device] != users[expected.owner] {
                return "the new owner is not connected"
            }
        }
        guard isOver else { return nil }
        if !world.harness.messages.isEmpty { return "a message waits forever" }
        if world.harness.ended.values.contains(where: { $0.state == .failed }) { return "something failed" }
        let end = expected.map { $0.isUnregistered ? "" : pushTokens[$0.owner] ?? "" }
        return push == end ? nil : "the push token is \(push ?? "none")"
    }

    @Test(arguments: [
        ["b": ["bregister", "bunregister"], "c": ["cregister"]],
        ["b": ["breregister", "bunregister"], "c": ["cregister"]],
        ["b": ["bregister", "bunregister"], "c": ["cregister", "cunregister"]],
    ])
    func everyOrder_leavesTheDeviceToItsLatestOwner(items: [String: [String]]) throws {
        var open = [World(harness: try AppServicesHarness(), toCome: items)]
        var seen: Set<String> = []
        var orders: Set<[String]> = []
        while let world = open.popLast() {
            guard seen.insert(world.fingerprint).inserted else { continue }
            let next = try Self.successors(of: world)
            open += next
            let isOver = next.isEmpty || world.toCome.values.allSatisfy(\.isEmpty) && world.harness.messages.isEmpty
            if isOver { orders.insert(world.accepted) }
            // One expectation for each of so many worlds would take minutes.
            guard let fault = Self.fault(of: world, isOver: isOver) else { continue }
            Issue.record("\(fault): \(world.accepted), \(world.harness.ended.values)")
        }
        #expect(orders.count == (items["c"]?.count == 1 ? 3 : 6))
        #expect(seen.count > 500, "\(seen.count) worlds")
    }
}
