import CurioAdapter
import InMemoryLogging
import Logging
import PosternCore
import PosternStore
import PosternTestKit
import PosternUpstream
import SamsaraAdapter
import SeerAdapter
import Testing
import WebhookAdapter

@testable import PosternDelivery

/// Responses that mean wrong credentials or a wrong URL, although one message or one endpoint is the cause: others are
/// delivered within seconds, and only that message fails. If the upstream accepts nothing else, nothing fails.
@Suite(.timeLimit(.minutes(10))) struct RefusedMessageTests {
    private static let delivery = DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages) = (4, 500) }

    private func webhook(_ settings: [String: SettingValue] = [:]) throws -> any Upstream {
        let all: [String: SettingValue] = [
            "url": .text("http://hook"),
            "kinds": .objects(["a": ["path": "/a"], "b": ["path": "/b"], "c": ["path": "/c"]]),
        ]
        return try UpstreamType.webhook.make(#require(UpstreamName("hook")), all.merging(settings) { $1 })
    }

    private static func payload(_ number: Int, isPoison: Bool = false, lane: Int? = nil) -> String {
        #"{"key":"k\#(lane ?? number % 7)","n":"\#(isPoison ? "poison" : "\(number)")"}"#
    }

    private func isPoison(_ request: UpstreamRequest) -> Bool { request.text.contains("poison") }

    struct Shape: Sendable {
        var batch = "none"
        var orderBy = ""
        var poison: [Int] = [0]
    }
    private static let shapes = ["none", "array"].flatMap { batch in
        ["", "/key"].flatMap { order in
            [[0], [24], [3, 4, 5, 6, 30]].map { Shape(batch: batch, orderBy: order, poison: $0) }
        }
    }

    /// Traffic that shows that the upstream works, until `isOver`.
    private func goOn(_ harness: DeliveryHarness, as kind: Kind = "a", until isOver: () throws -> Bool) throws -> Int {
        var accepted = 0
        while try !isOver(), accepted < 200 {
            try harness.post([Self.payload(1000 + accepted, lane: 1000 + accepted)], as: kind)
            accepted += 1
            try harness.run(for: .seconds(20))
        }
        return accepted
    }

    // MARK: One message

    @Test(arguments: [401, 403, 404, 405, 406, 302, 407], shapes)
    func message_thatIsRefusedByItself_failsAlone_andOthersAreDelivered(status: Int, shape: Shape) throws {
        let harness = try DeliveryHarness(
            webhook(["batch": .text(shape.batch), "orderBy": .text(shape.orderBy)]), settings: Self.delivery)
        harness.transport.answerAll { self.isPoison($0) ? .status(status) : .status(200) }
        // The poison messages are in lanes of their own, each with one message behind it.
        let ids = try (0..<53).flatMap { number in
            let index = shape.poison.firstIndex(of: number)
            return try harness.post(
                [Self.payload(number, isPoison: index != nil, lane: index.map { 100 + $0 })], as: "a")
        }
        let behind = try shape.poison.indices.flatMap {
            try harness.post([Self.payload(500 + $0, lane: 100 + $0)], as: "a")
        }
        try harness.run(for: .seconds(30))
        let poison = shape.poison.map { ids[$0] }
        let others = ids.filter { !poison.contains($0) }
        #expect(try others.allSatisfy { try harness.state($0) == .delivered })
        #expect(try poison.allSatisfy { try harness.state($0) == .queued })
        if shape.orderBy.isEmpty { #expect(try behind.allSatisfy { try harness.state($0) == .delivered }) }
        #expect(harness.worker.snapshot.circuit == .closed)
        let more = try goOn(harness) { try poison.allSatisfy { try harness.state($0) == .failed } }
        try harness.run(for: .seconds(10))
        #expect(try poison.allSatisfy { try harness.state($0) == .failed })
        #expect(harness.ledger.failed == poison.count)
        #expect(harness.ledger.delivered == others.count + behind.count + more)
        #expect(try poison.map(harness.record).allSatisfy { $0.attempts == 5 && $0.lastError?.status == status })
        #expect(harness.worker.snapshot.health == .up)
        #expect(try harness.outbox.audit().isBalanced)
    }

    /// The first request of all, and nothing else is queued.
    @Test func messageAfterALonelyRefusedOne_isDeliveredAtOnce() throws {
        let harness = try DeliveryHarness(webhook(), settings: Self.delivery)
        harness.transport.answerAll { self.isPoison($0) ? .status(403) : .status(200) }
        let poison = try harness.post([Self.payload(0, isPoison: true)], as: "a")[0]
        try harness.run(for: .seconds(60))
        #expect(harness.worker.snapshot.health == .unauthorized)
        #expect(harness.reports.count == 1, "only another message probes soon")
        let reopensAt = try #require(harness.worker.snapshot.reopensAt)
        #expect(reopensAt > harness.time.now, "when the message itself is sent again")
        let other = try harness.post([Self.payload(1)], as: "a")[0]
        try harness.run(for: .seconds(1))
        #expect(try harness.state(other) == .delivered)
        #expect(harness.worker.snapshot.health == .up)
        #expect(try harness.state(poison) == .queued)
    }

    /// Without a success of something else in between, no response counts.
    @Test func refusedMessage_countsNothing_whileNothingElseIsSent() throws {
        let harness = try DeliveryHarness(webhook(), settings: Self.delivery)
        harness.transport.answerAll { self.isPoison($0) ? .status(403) : .status(200) }
        let poison = try harness.post([Self.payload(0, isPoison: true), Self.payload(1)], as: "a")[0]
        try harness.run(for: .seconds(7200))
        #expect(harness.ledger.delivered == 1)
        #expect(try harness.state(poison) == .queued)
        #expect(harness.reports.count < 50)
        #expect(harness.worker.snapshot.circuit == .closed)
        #expect(harness.logged("upstream rejected our credentials or URL; messages are held") == 1)
    }

    private static let forms = [("none", 0), ("none", 10), ("array", 0), ("array", 10)]

    @Test(arguments: [401, 403], forms)
    func messageRefusedUnderOAuth2_getsOneNewToken_andFailsAlone(
        status: Int, form: (batch: String, position: Int)
    ) throws {
        let (batch, position) = form
        let harness = try DeliveryHarness(
            webhook([
                "auth.type": .text("oauth2"), "auth.tokenURL": .text(DeliveryHarness.tokenURL),
                "auth.clientId": .text("id"), "auth.clientSecret": .text("secret"), "verifyAtStart": .bool(false),
                "batch": .text(batch),
            ]), settings: Self.delivery)
        harness.transport.answerAll { request in
            guard request.url != DeliveryHarness.tokenURL else {
                return .status(200, #"{"access_token":"t","expires_in":3600}"#)
            }
            return self.isPoison(request) ? .status(status) : .status(200)
        }
        let ids = try (0..<21).flatMap { try harness.post([Self.payload($0, isPoison: $0 == position)], as: "a") }
        try harness.run(for: .seconds(30))
        #expect(harness.ledger.delivered == 20)
        // The first rejection costs a new token. The next one is of a request that was sent again with it while it is
        // fresh, so it shows that the token is not the cause; later ones follow a success with that token.
        #expect(harness.tokenRequests.count == 2)
        _ = try goOn(harness) { try harness.state(ids[position]) == .failed }
        #expect(try harness.state(ids[position]) == .failed)
        #expect(harness.ledger.failed == 1)
        #expect(harness.worker.snapshot.health == .up)
        #expect(harness.tokenRequests.count == 2)
    }

    @Test func revokedToken_with403_isReplacedOnce_andNothingIsHeld() throws {
        let harness = try DeliveryHarness(
            webhook([
                "auth.type": .text("oauth2"), "auth.tokenURL": .text(DeliveryHarness.tokenURL),
                "auth.clientId": .text("id"), "auth.clientSecret": .text("secret"), "verifyAtStart": .bool(false),
            ]), settings: Self.delivery)
        let valid = SharedValue("t1")
        harness.transport.answerAll { request in
            guard request.url != DeliveryHarness.tokenURL else {
                return .status(200, #"{"access_token":"\#(valid.value)","expires_in":3600}"#)
            }
            return request.headers.contains { $0.value == "Bearer \(valid.value)" } ? .status(200) : .status(403)
        }
        try harness.post([Self.payload(0)], as: "a")
        try harness.run(for: .seconds(1))
        valid.set("t2")
        try harness.post([Self.payload(1)], as: "a")
        try harness.run(for: .seconds(1))
        #expect(harness.ledger.delivered == 2)
        #expect(harness.tokenRequests.count == 2)
        #expect(harness.logged("upstream rejected our credentials or URL; messages are held") == 0)
    }

    /// An API that has rejected two tokens accepts the next one.
    @Test(arguments: ["flush", "reload"]) func operator_hasANewTokenFetched(how: String) throws {
        let upstream = try webhook([
            "auth.type": .text("oauth2"), "auth.tokenURL": .text(DeliveryHarness.tokenURL),
            "auth.clientId": .text("id"), "auth.clientSecret": .text("secret"), "verifyAtStart": .bool(false),
        ])
        let harness = try DeliveryHarness(upstream, settings: Self.delivery)
        let isGood = SharedValue(false)
        harness.transport.answerAll { request in
            guard request.url != DeliveryHarness.tokenURL else {
                return .status(200, #"{"access_token":"\#(isGood.value ? "good" : "bad")","expires_in":3600}"#)
            }
            return request.headers.contains { $0.value == "Bearer good" } ? .status(200) : .status(403)
        }
        try harness.post([Self.payload(0)], as: "a")
        try harness.run(for: .seconds(5))
        #expect(harness.worker.snapshot.health == .unauthorized)
        isGood.set(true)
        if how == "flush" {
            _ = try harness.flush()
        } else {
            harness.worker.apply(Self.delivery)
            try harness.run(for: .seconds(1))
        }
        #expect(harness.ledger.delivered == 1)
        #expect(harness.worker.snapshot.health == .up)
    }

    // MARK: All messages

    @Test(arguments: [401, 403, 404], shapes.filter { $0.poison == [0] })
    func wrongCredentials_failNothing_areProbedRarely_andRightOnesDeliverAll(status: Int, shape: Shape) throws {
        let settings: [String: SettingValue] = ["batch": .text(shape.batch), "orderBy": .text(shape.orderBy)]
        let harness = try DeliveryHarness(webhook(settings), settings: Self.delivery)
        harness.transport.answerAll { _ in .status(status) }
        for number in 0..<50 { try harness.post([Self.payload(number)], as: Kind(["a", "b"][number % 2])) }
        try harness.run(for: .seconds(120))
        #expect(harness.reports.count <= 4 + 8 + 3, "in flight, soon, and after 8, 16, and 32 s")
        try harness.run(for: .seconds(4 * 3600))
        // Nothing shows that one endpoint works, so the upstream as a whole is probed. With this draw, six pauses double up
        // to 256 s, 527 s after the first response, and the others are 300 s.
        #expect(harness.reports.count <= 4 + 8 + 6 + (4 * 3600 + 120 - 527) / 300)
        #expect(harness.worker.snapshot.health == (status == 404 ? .misconfigured : .unauthorized))
        #expect(harness.ledger.queued == 50)
        #expect(harness.ledger.failed == 0)
        let records = try harness.outbox.messages(MessageFilter(), after: nil, limit: 100).messages
        #expect(records.allSatisfy { $0.attempts == 0 })
        harness.transport.answerAll { _ in .status(200) }
        let right = try webhook(settings.merging(["url": .text("http://hook2")]) { $1 })
        try harness.outbox.replace(right, of: harness.queue.target)
        harness.worker.apply(Self.delivery, upstream: right)
        try harness.run(for: .seconds(10))
        #expect(harness.ledger.delivered == 50)
        #expect(harness.worker.snapshot.health == .up)
    }

    /// Credentials that are revoked while a message is under suspicion do not make it fail.
    @Test func revocation_failsNoSuspect() throws {
        let harness = try DeliveryHarness(webhook(), settings: Self.delivery)
        let accepts = SharedValue(true)
        harness.transport.answerAll { request in
            accepts.value && !request.text.contains("unlucky") ? .status(200) : .status(403)
        }
        let id = try harness.post([#"{"n":"unlucky"}"#], as: "a")[0]
        for round in 0..<3 {
            try harness.post([Self.payload(round)], as: "a")
            try harness.run(for: .seconds(8))
        }
        accepts.set(false)
        for round in 0..<200 {
            try harness.post([Self.payload(round)], as: "a")
            try harness.run(for: .seconds(60))
        }
        #expect(harness.ledger.failed == 0)
        #expect(try harness.state(id) == .queued)
    }

    // MARK: Many messages

    struct Row: Sendable {
        var name: String
        var poison: Int
        /// Whether all poison is in one lane.
        var isOneLane = false
        /// Whether another kind is accepted all the time, so that only the endpoint is held.
        var hasOtherKind = false
        /// Whether there are new messages while the first ones wait.
        var hasTraffic = false
    }
    private static let rows =
        [20, 50].flatMap { count in
            ["none", "array", "orderBy", "samsara"].map { Row(name: $0, poison: count) }
                + [Row(name: "none", poison: count, hasOtherKind: true)]
        } + ["none", "samsara"].map { Row(name: $0, poison: 200, hasTraffic: true) }
        + [Row(name: "orderBy", poison: 20, isOneLane: true)]

    private func upstream(of row: Row) throws -> any Upstream {
        switch row.name {
        case "samsara":
            try UpstreamType.samsara.make(
                #require(UpstreamName("samsara")), ["url": .text("http://samsara"), "compression": .text("none")])
        case "orderBy": try webhook(["orderBy": .text("/key")])
        default: try webhook(["batch": .text(row.name)])
        }
    }

    /// Every lane but one has refused messages at any place, so that soon all are headed by one. The other lane has a
    /// message now and then, which ends a hold; what is refused again then must not use up the probes that follow soon.
    @Test(arguments: [UInt64](0..<4))
    func ordered_areAllDelivered_althoughEveryLaneHasRefusedMessages(seed: UInt64) throws {
        var numbers = SplitMix64(state: seed)
        let settings = DeliverySettings.with {
            ($0.maxInFlight, $0.batchMaxMessages) = (8, 500)
            $0.retry = RetryPolicy(base: .milliseconds(50), longest: .seconds(1))
        }
        let harness = try DeliveryHarness(
            webhook(["batch": .text("array"), "orderBy": .text("/key")]), settings: settings)
        harness.numbers.set(numbers.next().isMultiple(of: 2) ? SplitMix64(state: seed) : nil)
        harness.transport.answerAll { request in
            request.text.firstMatch(of: /poison([0-9]+)/).flatMap { Int($0.1) }.map { .status($0) } ?? .status(200)
        }
        var (others, poison): ([MessageID], [MessageID]) = ([], [])
        for number in 0..<1200 {
            let status = number < 12 || numbers.below(100) == 0 ? [401, 403, 404, 400][numbers.below(4)] : nil
            let text = #"{"key":"k\#(number % 12)","n":"\#(status.map { "poison\($0)" } ?? "\(number)")"}"#
            let id = try harness.post([text], as: "a")[0]
            if status == nil { others.append(id) } else { poison.append(id) }
        }
        try harness.run(for: .seconds(5))
        for number in 0..<300 {
            others += try harness.post([Self.payload(2000 + number, lane: 2000)], as: "a")
            try harness.run(for: .milliseconds(200))
        }
        #expect(try others.allSatisfy { try harness.state($0) == .delivered })
        #expect(try poison.allSatisfy { try harness.state($0) == .failed })
        #expect(try harness.outbox.audit().isBalanced)
    }

    /// As many as are refused by themselves come first, then 200 that are not. Probes are spread, so one of the eight that
    /// follow soon finds one of these; from then on, each of the others costs a request or two, and at most one pause of 4 s.
    @Test(arguments: rows) func poisonMessages_inARow_keepOthersWaitingForSeconds(row: Row) throws {
        let settings = DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages) = (4, 40) }
        let harness = try DeliveryHarness(upstream(of: row), settings: settings)
        harness.numbers.set(SplitMix64(state: 7))
        let accepted = row.name == "samsara" ? 202 : 200
        harness.transport.answerAll { self.isPoison($0) ? .status(403) : .status(accepted) }
        var posted = 0
        func post(isPoison: Bool = false, lane: Int? = nil) throws -> MessageID {
            posted += 1
            let text = Self.payload(posted, isPoison: isPoison, lane: lane ?? posted)
            guard row.name == "samsara" else { return try harness.post([text], as: "a")[0] }
            let name = isPoison ? "poison" : "event"
            return try harness.post(
                [#"{"sourceId":"s\#(posted)","timestamp":1479988864057,"eventName":"\#(name)"}"#], as: "event")[0]
        }
        func goOn(for seconds: Int, each span: Int = 1) throws {
            for _ in 0..<seconds / span {
                if row.hasOtherKind { try harness.post([Self.payload(1)], as: "b") }
                try harness.run(for: .seconds(span))
            }
        }
        try goOn(for: 2)
        let poison = try (0..<row.poison).map { _ in try post(isPoison: true, lane: row.isOneLane ? 1 << 20 : nil) }
        let good = try (0..<200).map { _ in try post() }
        var seconds = 0
        var open = good[...]
        while !open.isEmpty, seconds < 3600 {
            if row.hasTraffic { _ = try post() }
            try goOn(for: 1)
            seconds += 1
            open = try open.drop { try harness.state($0) == .delivered }
        }
        #expect(seconds <= 30 + 4 * row.poison)
        #expect(try good.allSatisfy { try harness.state($0) == .delivered })
        // With a success each 5 s, each fails after at most five waits of 300 s, however many there are. Those of one lane
        // fail one after the other: at most three tries are too soon to follow a success, and five wait for 248 s at most.
        seconds = 0
        while harness.ledger.failed < row.poison, seconds < 7200 {
            _ = try post()
            try goOn(for: 5, each: 5)
            seconds += 5
        }
        #expect(seconds <= (row.isOneLane ? 255 * row.poison : 5 * 300))
        #expect(try poison.allSatisfy { try harness.state($0) == .failed && harness.record($0).attempts == 5 })
        #expect(harness.ledger.failed == row.poison)
        try goOn(for: 20)
        #expect(harness.ledger.queued == 0)
        #expect(harness.worker.snapshot.health == .up)
    }

    // MARK: One endpoint

    /// 500 may be the message's fault, too, but here it is the endpoint's.
    @Test(arguments: [("none", 500), ("array", 500)])
    func brokenEndpoint_failsNoMessage_whateverOthersAccept(batch: String, status: Int) throws {
        let harness = try DeliveryHarness(webhook(["batch": .text(batch)]), settings: Self.delivery)
        harness.transport.answerAll { $0.url.hasSuffix("/a") ? .status(status) : .status(200) }
        let ids = try harness.post((0..<20).map { Self.payload($0) }, as: "a")
        for number in 0..<360 {
            try harness.post([Self.payload(number)], as: "b")
            try harness.run(for: .seconds(10))
        }
        #expect(harness.ledger.delivered == 360)
        #expect(harness.ledger.failed == 0)
        #expect(try ids.allSatisfy { try harness.state($0) == .queued && harness.record($0).attempts == 0 })
        harness.transport.answerAll { self.isPoison($0) ? .status(status) : .status(200) }
        let poison = try harness.post([Self.payload(0, isPoison: true)], as: "a")[0]
        try harness.run(for: .seconds(302))
        #expect(harness.ledger.queued == 1)
        _ = try goOn(harness) { try harness.state(poison) == .failed }
        #expect(try harness.state(poison) == .failed, "what its own endpoint accepts shows that it is the cause")
        #expect(harness.ledger.failed == 1)
    }

    /// A message that gets 500 is the only one for its endpoint for a while.
    @Test func lonePoisonOfAnEndpoint_holdsUpNoMessageForIt() throws {
        let harness = try DeliveryHarness(webhook(), settings: Self.delivery)
        harness.transport.answerAll { self.isPoison($0) ? .status(500) : .status(200) }
        let poison = try harness.post([Self.payload(0, isPoison: true)], as: "a")[0]
        for number in 0..<120 {
            try harness.post([Self.payload(number)], as: "b")
            try harness.run(for: .seconds(10))
        }
        #expect(try harness.state(poison) == .queued)
        let other = try harness.post([Self.payload(1)], as: "a")[0]
        try harness.run(for: .seconds(1))
        #expect(try harness.state(other) == .delivered)
    }

    @Test(arguments: [404, 403]) func wrongEndpoint_thatIsTriedFirst_stopsNoOther(status: Int) throws {
        let harness = try DeliveryHarness(webhook(), settings: Self.delivery)
        harness.transport.answerAll { $0.url.hasSuffix("/a") ? .status(status) : .status(200) }
        let wrong = try harness.post((0..<5).map { Self.payload($0) }, as: "a")
        for number in 0..<190 { try harness.post([Self.payload(number)], as: number % 2 == 0 ? "b" : "c") }
        try harness.run(for: .seconds(2))
        #expect(harness.ledger.delivered == 190)
        #expect(harness.worker.snapshot.health == .degraded)
        #expect(harness.worker.snapshot.endpoints.map(\.name) == ["POST http://hook/a"])
        // What others accept says nothing about this endpoint.
        for number in 0..<60 {
            try harness.post([Self.payload(number)], as: "b")
            try harness.run(for: .seconds(60))
        }
        #expect(try wrong.allSatisfy { try harness.state($0) == .queued && harness.record($0).attempts == 0 })
        #expect(harness.ledger.failed == 0)
        harness.transport.answerAll { _ in .status(200) }
        try harness.run(for: .seconds(302))
        #expect(harness.ledger.queued == 0)
        #expect(harness.worker.snapshot.health == .up)
    }

    /// Its probes have become rare, because nothing else was queued for hours.
    @Test(arguments: [404, 403]) func wrongEndpoint_thatIsHeldForLong_stopsNoOther(status: Int) throws {
        let harness = try DeliveryHarness(webhook(), settings: Self.delivery)
        harness.transport.answerAll { $0.url.hasSuffix("/a") ? .status(status) : .status(200) }
        for number in 0..<5 { try harness.post([Self.payload(number)], as: "a") }
        try harness.run(for: .seconds(3 * 3600))
        #expect(harness.worker.snapshot.health == (status == 404 ? .misconfigured : .unauthorized))
        for number in 0..<5 { try harness.post([Self.payload(number)], as: "a") }
        for number in 0..<20 { try harness.post([Self.payload(number)], as: number % 2 == 0 ? "b" : "c") }
        try harness.run(for: .seconds(2))
        #expect(harness.ledger.delivered == 20)
        #expect(harness.worker.snapshot.health == .degraded)
    }

    @Test func wrongEndpointOfSeer_thatIsTriedFirst_stopsNoOtherKind() throws {
        let seer = try UpstreamType.seer.make(
            #require(UpstreamName("seer")),
            [
                "clientId": .text("id"), "clientSecret": .text("secret"), "baseURL": .text("http://seer"),
                "verifyAtStart": .bool(false), "endpoints": .strings(["custom": "/custom"]),
            ])
        let harness = try DeliveryHarness(seer, settings: Self.delivery)
        let time = harness.time
        harness.transport.answerAll { request in
            if request.url.contains("/custom") { return .status(404) }
            guard request.url.contains("/oauth/access_token") else { return .status(200) }
            let expiry = (time.now + .seconds(3600)).milliseconds
            return .status(200, #"{"access_token":"t","expiration_date":\#(expiry)}"#)
        }
        let first = try harness.post([#"{"x":1}"#], as: "custom")[0]
        let activity =
            #"{"actor":{"id":"a"},"verb":"v","object":{"id":"o","objectType":"t"},"generator":{"appId":"g"}}"#
        for _ in 0..<58 {
            for kind in ["activity", "instrumentation"] { try harness.post([activity], as: Kind(kind)) }
        }
        try harness.run(for: .seconds(2))
        #expect(harness.ledger.delivered == 116)
        #expect(try harness.state(first) == .queued)
    }

    @Test func wrongEndpointOfCurio_thatIsTriedFirst_stopsNoOther() throws {
        let curio = try UpstreamType.curio.make(
            #require(UpstreamName("curio")),
            ["serverURL": .text("http://curio"), "apiKey": .text("key"), "trackingCode": .text("RIGHT")])
        let harness = try DeliveryHarness(curio, settings: Self.delivery)
        harness.transport.answerAll { $0.url.hasSuffix("/location/set") ? .status(404) : .status(200, "{}") }
        let device =
            #""screenWidth":750,"screenHeight":1334,"lang":"tr-TR","simOperator":"","simOpCountry":"","#
            + #""networkOpName":"","connType":"wifi","brand":"Apple","model":"iPhone","osType":"iOS","osVer":"9","#
            + #""curioSdkVer":"1.2.4","appVer":"2""#
        func post(_ visitor: Int, _ kind: String, _ members: String) throws -> MessageID {
            let session = "6d551000-a21d-11e4-8123-\(100_000_000_000 + visitor)"
            let text =
                #"{"visitorCode":"v\#(visitor)","sessionCode":"\#(session)","#
                + #""timestamp":\#(harness.time.now.milliseconds),\#(members)}"#
            return try harness.post([text], as: Kind(kind))[0]
        }
        _ = try post(0, "session_start", device)
        try harness.run(for: .seconds(40))
        #expect(harness.ledger.delivered == 1)
        let wrong = try post(0, "location", #""lat":1,"long":2"#)
        let others = try (1...30).map { try post($0, "session_start", device) }
        try harness.run(for: .seconds(5))
        #expect(try others.allSatisfy { try harness.state($0) == .delivered })
        #expect(try harness.state(wrong) == .queued)
        #expect(harness.worker.snapshot.endpoints.map(\.name) == ["/location/set"])
        #expect(harness.worker.snapshot.circuit == .closed)
        // The endpoint is probed alone from then on.
        for visitor in 31..<60 {
            let id = try post(visitor, "session_start", device)
            try harness.run(for: .seconds(30))
            #expect(try harness.state(id) == .delivered)
        }
        #expect(harness.ledger.failed == 0)
    }

    /// The line about the hold is enough, as it is for the upstream as a whole.
    @Test(arguments: [403, 404]) func holdOfOneEndpoint_isNotReportedAsAnOutage_too(status: Int) throws {
        let harness = try DeliveryHarness(webhook(), settings: Self.delivery)
        harness.transport.answerAll { $0.url.hasSuffix("/b") ? .status(status) : .status(200) }
        try harness.post([Self.payload(0)], as: "a")
        try harness.run(for: .seconds(1))
        try harness.post([Self.payload(1)], as: "b")
        try harness.run(for: .seconds(5))
        #expect(harness.worker.snapshot.endpoints.map(\.name) == ["POST http://hook/b"])
        let notices = harness.log.entries.filter { $0.level >= .notice }
        #expect(
            notices.map(\.message) == [
                "endpoint rejected our credentials or URL; its messages are held, others are delivered"
            ])
    }

    // MARK: Nothing is queued

    /// The cause may have ended without a message to show it.
    @Test(arguments: ["time", "flush", "resume", "reload", "restart"], [403, 404, 429])
    func health_isUpAgain_whenNothingIsQueued(how: String, status: Int) throws {
        let harness = try DeliveryHarness(webhook(), settings: Self.delivery)
        harness.transport.answerAll { _ in .status(status, headers: [("Retry-After", "100")]) }
        let ids = try harness.post((0..<8).map { Self.payload($0) }, as: "a")
        try harness.run(for: .seconds(30))
        #expect(harness.worker.snapshot.health != .up)
        for id in ids { #expect(try harness.cancel(id)) }
        if how != "time" { try harness.run(for: .milliseconds(1)) }
        switch how {
        case "time": try harness.run(for: .seconds(310))
        case "flush": #expect(try harness.flush() != nil)
        case "resume": harness.worker.resume()
        case "reload":
            let right = try webhook(["url": .text("http://hook2")])
            try harness.outbox.replace(right, of: harness.queue.target)
            harness.worker.apply(Self.delivery, upstream: right)
        default:
            try harness.restart(webhook(), settings: Self.delivery)
            try harness.run(for: .seconds(101))
        }
        try harness.turn()
        #expect(harness.worker.snapshot.health == .up)
        #expect(harness.worker.snapshot.reopensAt == nil)
        harness.commit()
        let stored = try harness.outbox.summary(of: harness.queue.number)?.circuit
        #expect(stored?.hold == nil && stored?.reopensAtMs == nil)
    }

    @Test func unreachableHost_isForgotten_whenNothingIsQueued() throws {
        let harness = try DeliveryHarness(webhook(), settings: Self.delivery)
        harness.transport.answerAll { _ in .refusedConnection }
        let ids = try harness.post((0..<8).map { Self.payload($0) }, as: "a")
        try harness.run(for: .seconds(60))
        #expect(harness.worker.snapshot.health == .down)
        for id in ids { _ = try harness.cancel(id) }
        try harness.run(for: .seconds(301))
        #expect(harness.worker.snapshot.health == .up)
        #expect(harness.worker.snapshot.failures == 0)
    }

    /// The start may have come with other credentials.
    @Test func restart_probesAHeldUpstream_soon() throws {
        let harness = try DeliveryHarness(webhook(), settings: Self.delivery)
        harness.transport.answerAll { _ in .status(401) }
        try harness.post((0..<3).map { Self.payload($0) }, as: "a")
        try harness.run(for: .seconds(900))
        harness.transport.answerAll { _ in .status(200) }
        try harness.restart(webhook(), settings: Self.delivery)
        try harness.run(for: .seconds(16))
        #expect(harness.ledger.delivered == 3)
    }
}
