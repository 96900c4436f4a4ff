import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import AppServicesAdapter

/// Two users on one device in turns, through the SDK: what was accepted while the platform was away leaves it in the state
/// in which the same calls leave a platform that is always there.
@Suite struct AppServicesAbsenceTests {
    private typealias Items = AppServicesItems

    /// The calls of an app, one after the other.
    private struct App {
        private var random: SplitMix64
        private var user: String?
        private var launches = 0

        init(seed: UInt64) { random = SplitMix64(state: seed) }

        private var token: String { "token-\(user ?? "")" }
        private func item(_ members: String = "", device: String? = Items.deviceID) -> String {
            Items.item(user ?? "", members, token: token, device: device)
        }

        /// The steps of what the user does next.
        mutating func next() -> [(kind: String, text: String)] {
            guard user != nil else {
                user = Bool.random(using: &random) ? "user-b" : "user-c"
                return launch()
            }
            switch Int.random(in: 0..<5, using: &random) {
            case 0:
                let calls = [
                    ("disconnect", item()), ("device_unregister", Items.step(#""notifier":"apple""#, token: token)),
                ]
                user = nil
                return calls
            case 1: return launch()
            case 2: return [save()]
            case 3:
                let kind = Bool.random(using: &random) ? "group_add" : "group_remove"
                let group = #""group":"g\#(Int.random(in: 0..<2, using: &random))""#
                return [
                    ("group", #"{\#(group),"auth":{"token":"\#(token)"}}"#), (kind, item("," + group, device: nil)),
                ]
            // The SDK cancels what follows a step that failed.
            default: return Array(launch().prefix(Int.random(in: 1...3, using: &random)))
            }
        }

        private mutating func launch() -> [(kind: String, text: String)] {
            launches += 1
            let push = Items.registrationStep(push: String(repeating: "\(launches % 10)", count: 64), token: token)
            return [("device", push), ("user", item(device: nil)), ("connect", item()), save()]
        }

        private mutating func save() -> (kind: String, text: String) {
            let lists = #""preferences":{"whitelist":{"t\#(Int.random(in: 0..<100, using: &random))":[]}}"#
            return ("preferences", Items.step(#""userId":null,\#(lists)"#, token: token))
        }
    }

    /// Lanes go on in any order, each in its own, until nothing is left.
    private static func deliver(
        _ harness: inout AppServicesHarness, to model: inout ModelAppServices, _ random: inout SplitMix64
    ) throws {
        for _ in 0..<10_000 where !harness.messages.isEmpty {
            var fronts: [String: MessageID] = [:]
            for message in harness.messages.values {
                guard case .named(let lane, _) = message.lane else { continue }
                fronts[lane] = min(fronts[lane] ?? message.id, message.id)
            }
            let id = try #require(fronts.values.sorted().randomElement(using: &random))
            switch try harness.plan(id) {
            case .wait: continue
            case .send:
                let (request, _) = try harness.begin(id)
                try harness.judge(model.answer(request), to: request, of: id)
            case let plan: try harness.carryOut(plan, id)
            }
        }
    }

    @Test(arguments: 1...60 as ClosedRange<UInt64>) func absence_leavesThePlatformAsItWouldBe(seed: UInt64) throws {
        var app = App(seed: seed)
        var random = SplitMix64(state: ~seed)
        var (queued, prompt) = (try AppServicesHarness(), try AppServicesHarness())
        var (model, expected) = (ModelAppServices(), ModelAppServices())
        for _ in 0..<Int.random(in: 2...12, using: &random) {
            for call in app.next() {
                try queued.post(call.kind, call.text)
                try prompt.post(call.kind, call.text)
                try Self.deliver(&prompt, to: &expected, &random)
            }
            if Int.random(in: 0..<5, using: &random) == 0 { try Self.deliver(&queued, to: &model, &random) }
        }
        try Self.deliver(&queued, to: &model, &random)
        #expect(queued.messages.isEmpty && prompt.messages.isEmpty)
        for harness in [queued, prompt] {
            #expect(harness.ended.values.filter { $0.state == .failed }.map(\.reason) == [])
        }
        #expect(model == expected)
        #expect(model.violations == [])
    }
}
