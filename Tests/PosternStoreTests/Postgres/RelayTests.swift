import PosternCore
import PosternTestKit
import PosternThreads
import Testing

@testable import PosternStore

/// Requests that a node passes to another one, and events that nodes tell each other.
@Suite struct RelayTests {
    private let shared: SharedStore
    private typealias Answer = Result<[UInt8], StoreError>

    init() throws { shared = try SharedStore() }

    private func open(
        key: UInt8? = nil, memberKey: UInt8? = nil, poll: Double = 0.01, through proxy: PostgresProxy? = nil
    ) throws -> (owner: TestStore, member: TestStore) {
        func options(_ node: String, poll: Double = 0.01, through proxy: PostgresProxy? = nil) -> PostgresOptions {
            var options = shared.options(node, through: proxy)
            options.pollSeconds = poll
            return options
        }
        func keys(_ key: UInt8?) -> EncryptionKeys {
            EncryptionKeys(current: key.map { [UInt8](repeating: $0, count: 32) })
        }
        let owner = try shared.open(options("a", poll: poll, through: proxy), keys: keys(key))
        _ = try owner.register()
        return (owner, try shared.join(options("b"), keys: keys(memberKey ?? key)).store)
    }

    private func relay(_ text: String, at member: TestStore) -> SharedValue<Answer?> {
        let answer = SharedValue<Answer?>(nil)
        member.outbox.relay(Array(text.utf8), to: nil) { answer.set($0) }
        return answer
    }

    private func rows() -> Int { (try? shared.run("SELECT count(*) FROM requests")) ?? -1 }

    @Test(arguments: [nil, 7] as [UInt8?]) func request_isAnswered_byTheOwner(key: UInt8?) throws {
        let (owner, member) = try open(key: key)
        defer { withExtendedLifetime((owner, member)) {} }
        let seen = SharedValue<[String]>([])
        owner.outbox.answerRelayed { request in
            let text = String(decoding: request.bytes ?? [], as: UTF8.self)
            seen.set(seen.value + [text])
            request.respond(Array("re: \(text)".utf8))
        }
        let answers = (0..<20).map { ($0, relay("request \($0)", at: member)) }
        for (number, answer) in answers {
            #expect(eventually { answer.value != nil })
            #expect(try answer.value?.get() == Array("re: request \(number)".utf8))
        }
        #expect(Set(seen.value).count == 20 && seen.value.count == 20)
        #expect(eventually { rows() == 0 } && owner.outbox.relayedRequests == 0)
    }

    /// A request may contain a password.
    @Test func request_isEncrypted_inTheDatabase() throws {
        let (owner, member) = try open(key: 7)
        defer { withExtendedLifetime((owner, member)) {} }
        let held = SharedValue<RelayedRequest?>(nil)
        owner.outbox.answerRelayed { held.set($0) }
        let answer = relay("password", at: member)
        #expect(eventually { held.value != nil })
        #expect(owner.outbox.relayedRequests == 1)
        #expect(try shared.run("SELECT position('password'::bytea IN request) FROM requests") == 0)
        held.value?.respond(Array("secret".utf8))
        #expect(eventually { answer.value != nil })
        #expect(try answer.value?.get() == Array("secret".utf8))
    }

    @Test func request_isNotCarriedOut_ifTheOwnerHasAnotherKey() throws {
        let (owner, member) = try open(key: 7, memberKey: 8)
        defer { withExtendedLifetime((owner, member)) {} }
        owner.outbox.answerRelayed { $0.respond($0.bytes == nil ? nil : []) }
        let answer = relay("request", at: member)
        #expect(eventually { answer.value != nil })
        #expect(throws: StoreError.failed(detail: "the gateway that answers has another encryption key or version")) {
            try answer.value?.get()
        }
    }

    @Test func request_isGivenUp_ifNoOwnerTakesIt() throws {
        let (owner, member) = try open()
        defer { withExtendedLifetime((owner, member)) {} }
        let answer = relay("request", at: member)
        #expect(eventually { answer.value != nil })
        #expect(throws: StoreError.notOwner) { try answer.value?.get() }
        #expect(rows() == 0)
        // Nor is one taken that has waited for too long.
        try shared.run("INSERT INTO requests (asker, askedAt, request) VALUES (1, 0, '\\x00')")
        let taken = SharedValue(0)
        owner.outbox.answerRelayed { _ in taken.set(taken.value + 1) }
        let next = relay("next", at: member)
        #expect(eventually { taken.value >= 1 })
        #expect(try shared.run("SELECT count(*) FROM requests WHERE owner IS NULL") == 1 && next.value == nil)
    }

    /// Its node has seen it without an owner a moment ago.
    @Test func request_thatAnOwnerHasTakenMeanwhile_isNotGivenUp() throws {
        let (owner, member) = try open()
        defer { withExtendedLifetime((owner, member)) {} }
        let held = SharedValue<RelayedRequest?>(nil)
        owner.outbox.answerRelayed { held.set($0) }
        let answer = relay("request", at: member)
        #expect(eventually { held.value != nil })
        let follow = try member.threads.result { [outbox = member.outbox] completion in
            outbox.writer.change(inTime: true) { transaction in
                try transaction.removeRequests([], outbox.relays.numbers)
            } completion: {
                completion($0)
            }
        }
        follow()
        #expect(answer.value == nil && rows() == 1)
        held.value?.respond(Array("done".utf8))
        #expect(eventually { answer.value != nil })
        #expect(try answer.value?.get() == Array("done".utf8))
    }

    /// The owner has begun to stop since it took the request.
    @Test func request_isGivenBack_ifItsOwnerStops() throws {
        let (owner, member) = try open(poll: 60)
        defer { withExtendedLifetime((owner, member)) {} }
        let answer = relay("request", at: member)
        #expect(eventually { rows() == 1 })
        owner.outbox.answerRelayed { $0.respond([]) }
        let follow = try owner.threads.result { [outbox = owner.outbox] completion in
            outbox.writer.change {
                try $0.takeRelayed()
            } completion: {
                completion($0)
            }
        }
        #expect(try shared.run("SELECT count(*) FROM requests WHERE owner IS NULL") == 0)
        owner.outbox.answerRelayed(nil)
        follow()
        #expect(eventually { (try? shared.run("SELECT count(*) FROM requests WHERE owner IS NULL")) == 1 })
        #expect(owner.outbox.relayedRequests == 0 && answer.value == nil)
    }

    @Test func response_isPassedOn_ifTheDatabaseWasAwayWhenItWasMade() throws {
        let proxy = try shared.server.proxy()
        let (owner, member) = try open(through: proxy)
        defer { withExtendedLifetime((owner, member)) {} }
        let held = SharedValue<RelayedRequest?>(nil)
        owner.outbox.answerRelayed { held.set($0) }
        let answer = relay("request", at: member)
        #expect(eventually { held.value != nil })
        proxy.isRefusing = true
        proxy.cutAll()
        #expect(eventually { owner.outbox.failure != nil })
        held.value?.respond(Array("done".utf8))
        proxy.heal()
        #expect(eventually { answer.value != nil })
        #expect(try answer.value?.get() == Array("done".utf8))
        #expect(eventually { rows() == 0 })
    }

    @Test func outcome_isUnknown_ifTheOwnerIsLost_afterItHasTakenTheRequest() throws {
        let (owner, member) = try open()
        defer { withExtendedLifetime((owner, member)) {} }
        owner.outbox.answerRelayed { _ in }
        let answer = relay("request", at: member)
        #expect(eventually { owner.outbox.relayedRequests == 1 })
        #expect(answer.value == nil)
        try shared.run("UPDATE nodes SET state = 3 WHERE name = 'a'")
        #expect(eventually { answer.value != nil })
        #expect(throws: StoreError.unresolved(detail: "the gateway that was to answer was lost")) {
            try answer.value?.get()
        }
        #expect(eventually { rows() == 0 })
    }

    /// A crash of the server empties a table that is not logged.
    @Test func outcome_isUnknown_ifTheDatabaseHasLostTheRequest() throws {
        let (owner, member) = try open()
        defer { withExtendedLifetime((owner, member)) {} }
        owner.outbox.answerRelayed { _ in }
        let answer = relay("request", at: member)
        #expect(eventually { owner.outbox.relayedRequests == 1 })
        try shared.run("TRUNCATE requests")
        #expect(eventually { answer.value != nil })
        #expect(throws: StoreError.unresolved(detail: "the database has lost the request")) { try answer.value?.get() }
    }

    @Test func request_thatNoOwnerHasTaken_isWithdrawn_ifItsNodeStops() throws {
        let (owner, member) = try open()
        defer { withExtendedLifetime((owner, member)) {} }
        let answer = relay("request", at: member)
        #expect(eventually { rows() == 1 })
        member.outbox.close()
        #expect(throws: StoreError.notOwner) { try answer.value?.get() }
        #expect(rows() == 0)
    }

    // MARK: Events

    @Test func events_areToldToNodesWithListeners_inTheirOrder() throws {
        let (owner, member) = try open()
        defer { withExtendedLifetime((owner, member)) {} }
        let (received, isHeard) = (SharedValue<[SharedEvent]>([]), SharedValue(false))
        member.outbox.exchangeEvents(isListenedTo: { _ in }, receive: { received.set(received.value + $0) })
        owner.outbox.exchangeEvents(isListenedTo: { isHeard.set($0) }, receive: { _ in })
        let events = (0..<50).map { index in
            SharedEvent(
                type: "t", upstream: index.isMultiple(of: 2) ? UpstreamName("one") : nil, data: "{\"n\":\(index)}")
        }
        owner.outbox.publish([events[0]])
        #expect(eventually { (try? shared.run("SELECT count(*) FROM events")) == 1 })
        #expect(!isHeard.value)
        member.outbox.listen(true)
        #expect(eventually { isHeard.value })
        for event in events.dropFirst() { owner.outbox.publish([event]) }
        #expect(eventually { received.value.count == 49 })
        // What had happened before it listened is not told.
        #expect(received.value == Array(events.dropFirst()))
        member.outbox.listen(false)
        #expect(eventually { !isHeard.value })
        #expect(received.value.count == 49)
    }

    /// A store is open before there is an API.
    @Test func listeners_areKnown_ifTheyCameBeforeThisNodeCanTell() throws {
        let (owner, member) = try open()
        defer { withExtendedLifetime((owner, member)) {} }
        member.outbox.exchangeEvents(isListenedTo: { _ in }, receive: { _ in })
        member.outbox.listen(true)
        #expect(eventually { (try? shared.run("SELECT count(*) FROM nodes WHERE isListening::INTEGER = 1")) == 1 })
        // The owner looks for listeners after it has looked for requests.
        owner.outbox.answerRelayed { $0.respond([]) }
        for _ in 0..<2 {
            let answer = relay("request", at: member)
            #expect(eventually { answer.value != nil })
        }
        let isHeard = SharedValue(false)
        owner.outbox.exchangeEvents(isListenedTo: { isHeard.set($0) }, receive: { _ in })
        #expect(eventually { isHeard.value })
    }

    @Test func nodes_areListed_withTheQueuesOnWhichTheyWork() throws {
        let (owner, member) = try open()
        defer { withExtendedLifetime((owner, member)) {} }
        for store in [owner, member] {
            #expect(
                eventually {
                    let nodes = (try? store.outbox.nodes()) ?? []
                    return nodes.map(\.name) == ["a", "b"]
                        && nodes.map { $0.queues.map(\.description) } == [["plain"], []]
                        && nodes.allSatisfy { $0.version == PosternVersion.current }
                })
        }
        let number = UpstreamNumber(rawValue: 1)
        #expect(eventually { owner.outbox.ownerName(of: number) == "a" && member.outbox.ownerName(of: number) == "a" })
        #expect(
            eventually {
                let offset = try? owner.outbox.nodes()[0].clockOffset
                return offset.map { abs($0.inSeconds) < 5 } ?? false
            })
    }
}
