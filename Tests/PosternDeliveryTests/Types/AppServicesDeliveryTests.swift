import AppServicesAdapter
import Foundation
import PosternCore
import PosternMetrics
import PosternStore
import PosternTestKit
import PosternUpstream
import Synchronization
import Testing

@testable import PosternDelivery

/// AppServices' adapter with a real store and a real worker: users' tokens, outages and restarts.
@Suite(.timeLimit(.minutes(10))) struct AppServicesDeliveryTests {
    private static let key = [UInt8](repeating: 7, count: 32)
    private static let device = "c0ffee11-2233-4455-8677-8899aabbccdd"
    private static let settings = DeliverySettings.with { ($0.maxInFlight, $0.batchMaxWait) = (8, .zero) }

    private static func appServices() throws -> any Upstream {
        let values: [String: SettingValue] = [
            "baseURL": .text("http://app/x"), "organization": .text("acme"), "application": .text("campus-dev"),
            "apiKey": .text("KEY"),
        ]
        return try UpstreamType.appservices.make(UpstreamName("appservices")!, values)
    }

    private func harness() throws -> DeliveryHarness {
        try DeliveryHarness(
            try Self.appServices(), settings: Self.settings, encryptionKeys: EncryptionKeys(current: Self.key))
    }

    private func group(_ user: String, _ name: String, token: String) -> String {
        #"{"userId":"\#(user)","group":"\#(name)","auth":{"token":"\#(token)"}}"#
    }

    private func hold(_ token: String, of user: String, _ harness: DeliveryHarness) throws {
        try harness.change([.hold(Credential(owner: user, value: Array(token.utf8), note: "pi"))])
    }

    // MARK: Parking

    @Test func refusedToken_parksItsUserAlone_withoutAttempts_untilTheNextOne() throws {
        let harness = try harness()
        let model = Model()
        model.kill("dead")
        harness.transport.answerAll(by: model.rule)
        let parked = try harness.post(
            [group("u1", "a", token: "dead"), group("u1", "b", token: "dead")], as: "group_add")
        let other = try harness.post([group("u2", "a", token: "good")], as: "group_add")
        try harness.run(for: .seconds(60))
        for id in parked {
            let record = try harness.record(id)
            #expect(record.state == .queued && record.facts.isParked && record.attempts == 0)
        }
        #expect(try harness.state(other[0]) == .failed, "its user is not known; but it went out")
        #expect(harness.reports.filter { ModelAppServices.token(in: $0) == "dead" }.count == 1)
        // The same token again changes nothing, but another one does.
        try hold("dead", of: "u1", harness)
        try harness.run(for: .seconds(60))
        #expect(harness.reports.filter { ModelAppServices.token(in: $0) == "dead" }.count == 1)
        model.register("u1")
        try hold("fresh", of: "u1", harness)
        try harness.run(for: .seconds(1))
        #expect(try parked.map { try harness.state($0) } == [.delivered, .delivered])
        let lookUps = harness.reports.filter { $0.method == .get && ModelAppServices.token(in: $0) == "fresh" }.map(
            \.url)
        #expect(lookUps.map { $0.contains("/groups/a?") } == [true, false], "in order")
        #expect(try harness.folder.files(with: "fresh").isEmpty)
    }

    // MARK: Steps

    private func steps(_ outcome: String, of step: String, _ harness: DeliveryHarness) -> Int {
        harness.metrics.steps("\(harness.queue.name)", step, outcome).value
    }

    @Test func endedSequence_hasTheResultsOfItsSteps_whichAreCounted_andItsAttemptsNameThem() throws {
        let harness = try harness()
        var exposition = Exposition()
        harness.metrics.write(to: &exposition)
        let names = harness.queue.upstream.traits.steps
        for outcome in ["done", "failed", "skipped"] {
            let series = names.map {
                #"postern_steps_total{upstream="appservices",step="\#($0)",outcome="\#(outcome)"} 0"#
            }
            for line in series { #expect(exposition.text.contains(line), "\(line)") }
        }
        let model = Model()
        model.register("u1")
        harness.transport.answerAll(by: model.rule)
        let id = try harness.post([group("u1", "a", token: "T")], as: "group_add")[0]
        try harness.run(for: .seconds(1))
        let at = harness.time.now
        #expect(try harness.state(id) == .delivered)
        let result = JSON(try #require(try harness.record(id).result))
        #expect(result["steps"].array.map(\.["step"].string) == ["findGroup", "createGroup", "addToGroup"])
        #expect(result["steps"].array.map(\.["outcome"].string) == ["done", "done", "done"])
        #expect(result["steps"].array.map(\.["status"].int) == [401, 200, 200], "as older releases answer")
        #expect(result["steps"][2]["event"].string == "kPN_AddUserToGroupRequest")
        #expect(result["steps"][2]["at"].string.flatMap { Timestamp(rfc3339: $0) }.map { $0 <= at } == true)
        #expect(try harness.outbox.attempts(of: id).map(\.step) == ["findGroup", "createGroup", "addToGroup"])
        #expect(steps("done", of: "addToGroup", harness) == 1 && steps("failed", of: "addToGroup", harness) == 0)
    }

    @Test func failedSequence_hasTheResultsOfItsSteps_andSoHasOneThatSentNothing() throws {
        let harness = try harness()
        let model = Model()
        harness.transport.answerAll(by: model.rule)
        let id = try harness.post([group("u1", "a", token: "T")], as: "group_remove")[0]
        try harness.run(for: .seconds(1))
        let result = try harness.record(id).result.map { String(decoding: $0, as: UTF8.self) } ?? ""
        #expect(try harness.state(id) == .failed)
        #expect(result.contains(#""step":"findGroup","event":"kPN_GetGroupRequest","status":401,"outcome":"failed""#))
        #expect(
            result.hasSuffix(
                #"{"step":"removeFromGroup","event":"kPN_RemoveUserFromGroupRequest","status":null,"outcome":"skipped","at":null}]}"#
            ))
        #expect(steps("failed", of: "findGroup", harness) == 1 && steps("skipped", of: "removeFromGroup", harness) == 1)
    }

    // MARK: Answers that are not JSON

    /// A captive or maintenance page: three retries, then the message fails, whatever happens to others.
    @Test func page_isTriedFourTimes_thenItsMessageFails() throws {
        let harness = try harness()
        harness.transport.answerAll { _ in .status(200, "<html>") }
        let id = try harness.post([group("u1", "a", token: "T")], as: "group_add")[0]
        try harness.run(for: .seconds(3600))
        let record = try harness.record(id)
        #expect(record.state == .failed && record.attempts == 4)
        #expect(harness.reports.count == 4)
    }

    // MARK: All features together

    /// The items that a test posts, and the expected results in the order of acceptance.
    private struct Script {
        var devices: [String: String] = [:]
        var lists: [String: String] = [:]
        var members: [String: Set<String>] = [:]
        var random: SplitMix64

        static func user(_ number: Int) -> String { "user-\(number)" }
        static func device(_ user: Int, _ number: Int) -> String {
            let tail = String(user * 10 + number)
            return "c0ffee11-2233-4455-8677-" + String(repeating: "0", count: 12 - tail.count) + tail
        }

        mutating func push() -> String {
            (0..<4).map { _ in
                let digits = String(random.next(), radix: 16)
                return String(repeating: "0", count: 16 - digits.count) + digits
            }.joined()
        }

        private mutating func lists(of device: String) -> String {
            let text = #"{"blacklist":{},"whitelist":{"w":["x\#(random.next() % 1000)"]}}"#
            lists[device] = #"{"mobileplatform":{"preferences":\#(text)}}"#
            return #""preferences":\#(text)"#
        }

        /// Adds an entry, or removes it again.
        private mutating func change(of device: String) -> String {
            guard let former = lists[device] else { return lists(of: device) }
            let added = former.replacing(#""blacklist":{}"#, with: #""blacklist":{"b":[]}"#)
            if former != added {
                lists[device] = added
                return #""preferences":{"add":{"blacklist":{"b":[]}}}"#
            }
            lists[device] = former.replacing(#""blacklist":{"b":[]}"#, with: #""blacklist":{}"#)
            return #""preferences":{"remove":{"blacklist":["b"]}}"#
        }

        /// The next item of a user on a device.
        mutating func item(_ user: Int, _ number: Int, token: String) -> (kind: Kind, text: String) {
            let device = Self.device(user, number)
            let auth = #""auth":{"token":"\#(token)"}"#
            let identity = #""userId":"\#(Self.user(user))","deviceId":"\#(device)""#
            switch devices[device] == nil ? 0 : random.next() % 10 {
            case 0, 1, 2:
                let push = push()
                devices[device] = push
                let more = random.next() % 3 == 0 ? "," + lists(of: device) : ""
                let kind: Kind = random.next() % 4 == 0 ? "reregister" : "register"
                return (kind, #"{\#(identity),"deviceToken":"\#(push)"\#(more),\#(auth)}"#)
            case 3:
                devices[device] = ""
                return ("unregister", "{\(identity),\(auth)}")
            case 4: return ("preferences", "{\(identity),\(lists(of: device)),\(auth)}")
            case 5: return ("preferences", "{\(identity),\(change(of: device)),\(auth)}")
            default:
                let group = "g\(random.next() % 5)"
                let isIn = members[group]?.contains(Self.user(user)) ?? false
                if isIn {
                    members[group]?.remove(Self.user(user))
                } else {
                    members[group, default: []].insert(Self.user(user))
                }
                return (
                    isIn ? "group_remove" : "group_add",
                    #"{"userId":"\#(Self.user(user))","group":"\#(group)",\#(auth)}"#
                )
            }
        }
    }

    @Test(arguments: [1, 2] as [UInt64])
    func everyUser_endsAsExpected_throughOutagesDeadTokensAndARestart(seed: UInt64) throws {
        let harness = try harness()
        let model = Model(seed: seed)
        var script = Script(random: SplitMix64(state: seed))
        let users = 30
        var ids: [MessageID] = []
        func post(_ rounds: Int, generation: Int) throws {
            for _ in 0..<rounds {
                for user in 0..<users {
                    let (kind, text) = script.item(
                        user, Int(script.random.next() % 3), token: "canary-\(user)-\(generation)")
                    ids += try harness.post([text], as: kind)
                }
                try harness.run(for: .milliseconds(20))
            }
        }
        harness.transport.answerAll(by: model.rule)
        try post(4, generation: 1)
        for user in stride(from: 0, to: users, by: 2) { model.kill("canary-\(user)-1") }
        try post(4, generation: 1)
        // What is in flight now gets no response, and the run ends without a stop.
        model.isSilent = true
        try harness.run(for: .milliseconds(20))
        try harness.restart(try Self.appServices(), settings: Self.settings)
        model.isSilent = false
        try harness.run(for: .seconds(30))
        #expect(try harness.folder.files(with: "canary").isEmpty)
        for user in stride(from: 0, to: users, by: 2) { try hold("canary-\(user)-2", of: Script.user(user), harness) }
        try post(1, generation: 2)
        for _ in 0..<200 where harness.ledger.queued > 0 {
            try harness.run(for: .seconds(60))
            try harness.change([])
        }

        #expect(harness.ledger.queued == 0)
        let failed = try ids.filter { try harness.state($0) == .failed }
        let reasons = try failed.map { try harness.record($0).lastError?.detail ?? "" }
        #expect(reasons == [])
        let end = model.state
        #expect(end.violations == [])
        #expect(model.refusedSends == 0)
        #expect(end.devices == script.devices)
        #expect(end.groups.filter { !$0.value.isEmpty } == script.members.filter { !$0.value.isEmpty })
        for (device, push) in script.devices where !push.isEmpty {
            let user = try #require(Int(device.suffix(12))) / 10
            #expect(end.connections[device] == Script.user(user))
            #expect(end.preferences[device] == script.lists[device])
        }
        #expect(try harness.outbox.audit().isBalanced)
    }
}

/// The model behind a transport; with a seed one request in ten is answered 503 and one answer in twenty is lost.
private final class Model: Sendable {
    private struct Inside {
        var model = ModelAppServices()
        var random: SplitMix64?
        var refused: Set<String> = []
        var refusedSends = 0
        var isSilent = false
    }
    private let inside: Mutex<Inside>

    init(seed: UInt64? = nil) { inside = Mutex(Inside(random: seed.map { SplitMix64(state: $0 &+ 99) })) }

    var state: ModelAppServices { inside.withLock { $0.model } }
    /// The number of requests with a token that was known to be rejected.
    var refusedSends: Int { inside.withLock { $0.refusedSends } }
    var isSilent: Bool {
        get { inside.withLock { $0.isSilent } }
        set { inside.withLock { $0.isSilent = newValue } }
    }

    func kill(_ token: String) { inside.withLock { _ = $0.model.deadTokens.insert(token) } }

    func register(_ user: String) {
        inside.withLock { inside in
            _ = inside.model.answer(
                UpstreamRequest(
                    url: "http://app/x/acme/campus-dev/users", body: Array(#"{"username":"\#(user)"}"#.utf8)))
        }
    }

    var rule: ScriptedTransport.Rule {
        { [self] request in
            inside.withLock { inside in
                let token = ModelAppServices.token(in: request)
                if inside.refused.contains(token) { inside.refusedSends += 1 }
                let random = inside.random?.next() ?? 99
                if random % 100 < 10, !inside.isSilent { return .status(503) }
                let response = inside.model.answer(request)
                if inside.isSilent { return nil }
                if random % 100 < 15 { return .reset }
                if response.status == 401, inside.model.deadTokens.contains(token) { inside.refused.insert(token) }
                return .success(response)
            }
        }
    }
}
