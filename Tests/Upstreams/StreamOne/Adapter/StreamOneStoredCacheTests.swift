import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Synchronization
import Testing

@testable import StreamOneAdapter
@testable import StreamOneClient

/// The caches by the settings, and what of them outlives a restart.
@Suite struct StreamOneStoredCacheTests {
    private let harness = StreamOneHarness()
    private var transport: ScriptedTransport { harness.transport }
    private let kept = StreamOneSamples.answer(cacheable: true, body: #"{"secret":"canary-body"}"#)
    private static let role = #"[{"role":{"id":"r","name":"n","tokens":["a"]},"customer":null}]"#

    /// Each upstream is a new run on the same store.
    private func upstream(_ settings: [String: SettingValue] = [:]) throws -> StreamOneUpstream {
        try StreamOneSamples.upstream(
            ["requestCache": .text("store"), "tokenCache": .text("store")].merging(settings) { $1 })
    }

    private func serve() {
        transport.answerAll { [kept] request in
            .status(200, request.url.contains("getmyroles") ? StreamOneSamples.answer(body: Self.role) : kept)
        }
    }

    private var rows: [String] { harness.state.values.keys.filter { $0.hasPrefix("cache/") } }

    /// The requests that `body` makes the platform receive.
    private func asked(_ body: () throws -> Void) rethrows -> Int {
        let before = transport.requests.count
        try body()
        return transport.requests.count - before
    }

    // MARK: The settings

    /// How often the platform is asked for what two callers want to know: outside sessions, in two sessions of a user.
    @Test(arguments: [
        ("none", true, 2, 2), ("none", false, 2, 4), ("memory", true, 1, 2), ("memory", false, 1, 1),
        ("store", true, 1, 2), ("store", false, 1, 1),
    ])
    func tokenCache_isTheSettings_orTheSessions(place: String, usesSession: Bool, outside: Int, inside: Int) throws {
        let upstream = try upstream([
            "tokenCache": .text(place), "useSessionForTokenCache": .bool(usesSession), "requestCache": .text("none"),
        ])
        let sessions = try ["S1", "S2"].map { try StreamOneSamples.login(upstream, harness, id: $0) }
        serve()
        let asked = try (
            asked { for _ in 0..<2 { try upstream.ask(.get, "tokens/a", harness) } },
            asked {
                for session in sessions + sessions { try upstream.ask(.get, "roles", session: session, harness) }
            }
        )
        #expect(asked == (outside, inside))
        #expect(rows.isEmpty == (place != "store"))
    }

    @Test(arguments: [("none", 2, 0), ("memory", 1, 0), ("store", 1, 1)])
    func requestCache_isTheSettings(place: String, times: Int, stored: Int) throws {
        let upstream = try upstream(["requestCache": .text(place)])
        serve()
        #expect(try asked { for _ in 0..<2 { try upstream.ask(.post, "proxy/item/view", harness) } } == times)
        #expect(rows.count == stored)
    }

    @Test func tokens_areKeptAsLongAsTheirSetting_orElseAsLongAsResponses() throws {
        serve()
        for (settings, seconds) in [
            (["tokenCacheSeconds": SettingValue.integer(300), "requestCacheSeconds": .integer(0)], 300),
            (["tokenCacheSeconds": .integer(20)], 20), (["requestCacheSeconds": .integer(30)], 30), ([:], 60),
        ] {
            for place in ["memory", "store"] {
                let upstream = try upstream(settings.merging(["tokenCache": .text(place)]) { $1 })
                harness.clock.advance(by: .seconds(1000))
                try upstream.ask(.get, "roles", harness)
                harness.clock.advance(by: .seconds(seconds - 1))
                #expect(try asked { try upstream.ask(.get, "roles", harness) } == 0, "\(settings)")
                harness.clock.advance(by: .seconds(1))
                #expect(try asked { try upstream.ask(.get, "roles", harness) } == 1, "\(settings)")
            }
        }
    }

    // MARK: After a restart

    @Test func tokensInTheStore_answerAfterARestart_withoutAsking() throws {
        serve()
        try upstream().ask(.get, "roles", harness)
        #expect(try upstream().ask(.get, "tokens/a", harness).json?.text == #"{"hasToken":true}"#)
        #expect(transport.requests.count == 1)
        harness.clock.advance(by: .seconds(60))
        #expect(try asked { try upstream().ask(.get, "tokens/a", harness) } == 1)
    }

    @Test func responseInTheStore_isServedAfterARestart_byteForByte_withItsAge() throws {
        serve()
        let body = #"{"title":"Caf\u00e9 \"\n1","list":["x","y"],"é":1}"#
        let query = ["accounts": "A1,A2", "timezone": "Europe/Amsterdam"]
        try upstream().ask(.post, "proxy/item/view", query: query, body: body, harness)
        harness.clock.advance(by: .seconds(42))
        let next = try upstream()
        let hit = try next.ask(.post, "proxy/item/view", query: query, body: body, harness).json
        #expect(hit?.headers == ["X-Cache": "hit", "Age": "42"])
        #expect(hit?.text == kept)
        let others = [(query, "{}"), (query.merging(["accounts": "A2,A1"]) { $1 }, body), ([:], body)]
        for (query, body) in others {
            let other = try next.ask(.post, "proxy/item/view", query: query, body: body, harness).json
            #expect(other?.headers["X-Cache"] == "miss")
        }
        harness.clock.advance(by: .seconds(18))
        let late = try upstream().ask(.post, "proxy/item/view", query: query, body: body, harness).json
        #expect(late?.headers["X-Cache"] == "miss")
    }

    @Test func whatASessionKnew_isKnownAfterARestart_andEndsWithIt() throws {
        for usesSession in [true, false] {
            let settings = ["useSessionForTokenCache": SettingValue.bool(usesSession)]
            let upstream = try upstream(settings)
            let session = try StreamOneSamples.login(upstream, harness)
            serve()
            func ask(_ upstream: StreamOneUpstream) throws {
                try upstream.ask(.get, "roles", session: session, harness)
                try upstream.ask(.post, "proxy/item/view", session: session, harness)
            }
            #expect(try asked { try ask(upstream) } == 2)
            let next = try self.upstream(settings)
            #expect(try asked { try ask(next) } == 0)
            #expect(rows.count == 2)
            try next.ask(.delete, "sessions/\(session)", harness)
            #expect(rows.isEmpty, "nothing of a session is kept longer than the session")
        }
    }

    /// Of two sessions of a user, each may use what the other has received, as long as that one lives.
    @Test func responseOfASession_isNotServed_onceTheSessionHasEnded() throws {
        for place in ["memory", "store"] {
            let upstream = try upstream(["requestCache": .text(place)])
            let sessions = try ["S1", "S2"].map { try StreamOneSamples.login(upstream, harness, id: $0) }
            serve()
            func found() throws -> String? {
                try upstream.ask(.post, "proxy/item/view", session: sessions[1], harness).json?.headers["X-Cache"]
            }
            try upstream.ask(.post, "proxy/item/view", session: sessions[0], harness)
            #expect(try found() == "hit")
            try upstream.ask(.delete, "sessions/S1", harness)
            #expect(try found() == "miss", "\(place)")
            try upstream.ask(.delete, "sessions/S2", harness)
        }
    }

    @Test func responseOfASession_isKeptNoLongerThanTheSession() throws {
        let upstream = try upstream(["tokenCacheSeconds": .integer(86400)])
        let session = try StreamOneSamples.login(upstream, harness)
        transport.answerAll { _ in .status(200, StreamOneSamples.answer(timeout: 90, body: Self.role)) }
        try upstream.ask(.get, "roles", session: session, harness)
        let expiries = harness.expiries.withLock { $0 }
        #expect(rows.allSatisfy { expiries[$0] == harness.clock.now + .seconds(90) } && rows.count == 1)
    }

    // MARK: Protection

    @Test func stored_isNeitherReadable_norToBeFoundByAGuess() throws {
        let upstream = try upstream()
        let session = try StreamOneSamples.login(upstream, harness)
        serve()
        for session in [nil, session] {
            try upstream.ask(.post, "proxy/item/view", session: session, body: #"{"item":"canary-item"}"#, harness)
        }
        #expect(rows.count == 2)
        let stored = harness.state.values.map { Array($0.key.utf8) + $0.value }
        for text in ["canary", "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu", "SQKEyak6R2BcwH3qnTakY50SKeABxXcg", "getmyroles"] {
            #expect(!stored.contains { $0.contains(Array(text.utf8)) }, "\(text)")
        }
        // The same call with another key has another row.
        let former = rows
        try self.upstream(["psk": .text("other")]).ask(
            .post, "proxy/item/view", body: #"{"item":"canary-item"}"#, harness)
        #expect(rows.count == 1 && !former.contains(rows[0]))
    }

    /// What is in the store alone does not help.
    @Test func stored_cannotBeRead_withoutTheKeyOfItsSession() throws {
        let upstream = try upstream()
        let session = try StreamOneSamples.login(upstream, harness)
        serve()
        try upstream.ask(.post, "proxy/item/view", session: session, harness)
        let value = try #require(rows.first.flatMap { harness.state.values[$0] })
        let platform = StreamOnePlatform(
            base: BaseURL(known: "http://api.test"), actor: .init(kind: .application, id: "9yC-4pQxT_2a"),
            psk: "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu", defaultAccount: nil)
        func response(_ row: String, key: String?) -> StoredResponse? {
            CacheCipher(platform).response(in: row, value) { $0 == session ? key : nil }
        }
        #expect(response(rows[0], key: "SQKEyak6R2BcwH3qnTakY50SKeABxXcg")?.session == session)
        #expect(response(rows[0], key: "SQKEyak6R2BcwH3qnTakY50SKeABxXcG") == nil)
        #expect(response(rows[0], key: "") == nil)
        #expect(response(rows[0], key: nil) == nil)
        #expect(response("cache/item/other", key: "SQKEyak6R2BcwH3qnTakY50SKeABxXcg") == nil, "it is bound to its row")
    }

    @Test(arguments: [("psk", "another key"), ("id", "another-id"), ("apiUrl", "http://other.test")])
    func changedCredentials_dropWhatIsStored(setting: String, value: String) throws {
        serve()
        try upstream().ask(.get, "roles", harness)
        let former = rows
        let next = try upstream([setting: .text(value)])
        #expect(try asked { try next.ask(.get, "roles", harness) } == 1)
        #expect(former.count == 1 && rows.count == 1 && rows != former)
    }

    // MARK: Invalidation

    @Test func write_removesTheCopyToo() throws {
        serve()
        let first = try upstream()
        for account in ["A1", "A2"] {
            try first.ask(.post, "proxy/item/view", query: ["account": account], harness)
        }
        try first.ask(.post, "proxy/player/view", harness)
        try first.ask(.post, "proxy/item/edit", query: ["account": "A1"], harness)
        let next = try upstream()
        func found(_ path: String, _ account: String) throws -> String? {
            try next.ask(.post, "proxy/\(path)", query: ["account": account], harness).json?.headers["X-Cache"]
        }
        #expect(try found("item/view", "A1") == "miss")
        #expect(try found("item/view", "A2") == "hit")
        #expect(try next.ask(.post, "proxy/player/view", harness).json?.headers["X-Cache"] == "hit")
    }

    /// What a response to a queued write means.
    private func decision(_ status: Int = 0, by upstream: StreamOneUpstream) throws -> Decision {
        let message = Message(
            id: MessageID(sequence: 1, upstream: UpstreamNumber(rawValue: 1)), kind: "call", lane: .named("none"),
            acceptedAt: UpstreamFixture.now, payload: Array(#"{"command":"item","action":"edit"}"#.utf8))
        return upstream.judge(
            UpstreamResponse(status: 200, body: Array(StreamOneSamples.answer(status).utf8)),
            to: Batch(id: BatchID(rawValue: 1), messages: [message]),
            in: PlanContext(now: harness.clock.now, token: nil, state: harness.state))
    }

    private func settle(_ status: Int, by upstream: StreamOneUpstream) throws -> [StateChange] {
        let decision = try decision(status, by: upstream)
        let changes = decision.changes?(harness.state) ?? []
        harness.enqueue(changes)
        harness.enqueue(decision.afterwards?(changes) ?? [])
        return changes
    }

    /// The settlement itself removes the copies, so that no crash brings back what the write has changed.
    @Test func queuedWrite_removesTheCopies_inItsSettlement_evenBeforeTheyAreRead() throws {
        serve()
        let first = try upstream()
        try first.ask(.post, "proxy/item/view", harness)
        #expect(try settle(6, by: upstream()).isEmpty)
        #expect(rows.count == 1, "a refused write has changed nothing")
        #expect(try settle(0, by: upstream()).contains(.removeAll(below: "cache/item")))
        #expect(rows.isEmpty)
        #expect(try upstream().ask(.post, "proxy/item/view", harness).json?.headers["X-Cache"] == "miss")
    }

    /// The read was answered after the settlement was committed, but before the cache knew of it.
    @Test func copyThatIsWrittenJustBeforeTheCacheKnowsOfAWrite_isRemovedToo() throws {
        serve()
        let upstream = try upstream()
        try upstream.ask(.post, "proxy/player/view", harness)
        try upstream.ask(.post, "proxy/item/view", harness)
        #expect(rows.count == 2)
        harness.enqueue(try decision(by: upstream).afterwards?([]) ?? [])
        #expect(rows.count == 1)
    }

    @Test func writeThatEndsWhileTheCopiesAreRead_leavesNoneOfThem() throws {
        serve()
        try upstream().ask(.post, "proxy/item/view", harness)
        let next = try upstream()
        let decision = try decision(by: next)
        harness.whileReading.withLock {
            $0 = { harness in
                harness.whileReading.withLock { $0 = nil }
                _ = decision.afterwards?([])
            }
        }
        #expect(try next.ask(.post, "proxy/item/view", harness).json?.headers["X-Cache"] == "miss")
        #expect(rows.count == 1, "that of the new response")
    }

    @Test func deniedCall_dropsStoredRights() throws {
        serve()
        let upstream = try upstream()
        try upstream.ask(.get, "roles", harness)
        transport.expect(.status(200, StreamOneSamples.answer(4)))
        try upstream.ask(.post, "proxy/item/edit", harness)
        #expect(rows.isEmpty)
    }

    // MARK: Bounds and trouble

    @Test func store_holdsWhatMemoryHolds_andNoMore() throws {
        let upstream = try upstream(["requestCacheBytes": .integer(65536)])
        let answer = StreamOneSamples.answer(
            cacheable: true, body: "\"\(String(repeating: "x", count: 1000))\"")
        transport.answerAll { _ in .status(200, answer) }
        for number in 0..<200 {
            try upstream.ask(.post, "proxy/item/view", body: #"{"item":\#(number)}"#, harness)
            #expect(rows.reduce(0) { $0 + (harness.state.values[$1]?.count ?? 0) } < 65536)
        }
        #expect((20...60).contains(rows.count), "\(rows.count)")
        // A smaller memory after the restart.
        let next = try self.upstream(["requestCacheBytes": .integer(65536), "requestCacheSeconds": .integer(0)])
        try next.ask(.get, "roles", harness)
        #expect(rows.count <= 1, "what the settings no longer allow is removed: \(rows.count)")
    }

    @Test func largeResponse_isKeptInMemoryOnly() throws {
        let answer = StreamOneSamples.answer(
            cacheable: true, body: "\"\(String(repeating: "x", count: 1 << 20))\"")
        transport.answerAll { _ in .status(200, answer) }
        let upstream = try upstream()
        #expect(try asked { for _ in 0..<2 { try upstream.ask(.post, "proxy/item/view", harness) } } == 1)
        #expect(rows.isEmpty)
    }

    @Test func copies_areReadOnce_andCallsWaitForThem() throws {
        serve()
        try upstream().ask(.post, "proxy/item/view", harness)
        let next = try upstream()
        let replies = Mutex<[StreamOneReply]>([])
        let reads = Mutex(0)
        harness.whileReading.withLock {
            $0 = { harness in
                let isFirst = reads.withLock { reads in
                    reads += 1
                    return reads == 1
                }
                guard isFirst, let reply = try? next.ask(.post, "proxy/item/view", harness) else { return }
                #expect(reply.answer == nil, "it waits")
                replies.withLock { $0.append(reply) }
            }
        }
        #expect(try next.ask(.post, "proxy/item/view", harness).json?.headers["X-Cache"] == "hit")
        #expect(replies.withLock { $0.map { $0.json?.headers["X-Cache"] } } == ["hit"])
        #expect(transport.requests.count == 1)
        #expect(reads.withLock { $0 } == 1)
    }

    @Test func unreadableStore_failsNoCall_andIsReadLater() throws {
        serve()
        try upstream().ask(.post, "proxy/item/view", harness)
        let next = try upstream()
        harness.isUnreadable.withLock { $0 = true }
        #expect(try next.ask(.post, "proxy/player/view", harness).json?.headers["X-Cache"] == "miss")
        harness.isUnreadable.withLock { $0 = false }
        #expect(try next.ask(.post, "proxy/item/view", harness).json?.headers["X-Cache"] == "hit")
    }

    @Test func damagedOrFutureCopies_areNotUsed() throws {
        serve()
        try upstream().ask(.post, "proxy/item/view", harness)
        let row = try #require(rows.first)
        let value = try #require(harness.state.values[row])
        for damaged in [[], [0], [255], Array(value.dropLast()), value.map { $0 ^ 1 }] as [[UInt8]] {
            harness.enqueue([.set(key: row, value: damaged)])
            #expect(try asked { try upstream().ask(.post, "proxy/item/view", harness) } == 1)
        }
        // The clock was set back: how old the copy is cannot be known.
        harness.clock.setWallClock(back: .seconds(10))
        #expect(try asked { try upstream().ask(.post, "proxy/item/view", harness) } == 1)
    }
}
