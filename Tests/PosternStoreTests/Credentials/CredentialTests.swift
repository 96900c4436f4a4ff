import Foundation
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

/// Separate lanes, each in the group that is named before the slash.
private struct OwnedUpstream: PlainAtHeart {
    let plain = PlainUpstream("owned", laneRule: .perLane)

    func plan(for messages: [Message], in context: PlanContext) -> Plan { .park }
    let traits = Traits { traits in
        traits.laneRule = .perLane
        traits.exclusion = { lane in String(lane.split(separator: "/")[1]) }
    }
}

@Suite(.eachEngine) struct CredentialTests {
    private static let key = [UInt8](repeating: 7, count: 32)
    private static let newKey = [UInt8](repeating: 9, count: 32)
    private let store: TestStore
    private let queue: UpstreamQueue

    init() throws {
        store = try TestStore { $0.encryptionKeys = EncryptionKeys(current: Self.key) }
        queue = try store.register(OwnedUpstream())
    }

    // MARK: Helpers

    @discardableResult
    private func post(
        _ lane: String, _ token: String?, expiresAt: Timestamp? = nil, isKept: Bool = false, in store: TestStore? = nil,
        _ queue: UpstreamQueue? = nil
    ) throws -> AppendReceipt {
        let store = store ?? self.store
        let owner = String(lane.split(separator: "/")[0])
        let credential = token.map {
            Credential(owner: owner, value: Array($0.utf8), note: "pi", expiresAt: expiresAt, isKept: isKept)
        }
        return try store.append([
            NewMessage(
                queue: (queue ?? self.queue).target, kind: "thing", lane: .named(lane, group: owner),
                acceptedAt: store.time.now, bytes: Array("{}".utf8), credential: credential)
        ])
    }

    private func held(_ owner: String, _ queue: UpstreamQueue? = nil) throws -> HeldCredential? {
        try store.outbox.withState(of: (queue ?? self.queue).number) { $0.credential(of: owner) }
    }

    private func token(_ owner: String, _ queue: UpstreamQueue? = nil) throws -> String? {
        try held(owner, queue).map { String(decoding: $0.value, as: UTF8.self) }
    }

    private func change(_ changes: StateChange...) throws {
        try store.change(changes, of: queue)
    }

    private func hold(_ token: String, of owner: String, isKept: Bool = false) throws {
        try change(.hold(Credential(owner: owner, value: Array(token.utf8), isKept: isKept)))
    }

    /// As a worker does when its upstream has rejected the token.
    private func refuse(_ claim: Claim, version: Int64) throws {
        guard case .named(_, let group?) = claim.messages[0].lane else { return }
        var settlement = store.settlement(.parked)
        settlement.parked = claim.messages
        try store.settle(settlement, of: queue, changes: [.refuse(credentialOf: group, version: version)])
        queue.giveBack(claim, now: store.time.now)
    }

    // MARK: Holding

    @Test func credential_isHeldWithItsMessage_andGoesWithTheLastOne() throws {
        try post("u1/d1", "T1")
        try post("u1/d2", "T1")
        let held = try #require(try held("u1"))
        #expect(held.value == Array("T1".utf8))
        #expect(held.note == "pi")
        try store.deliver(try store.claim(queue, most: 1).messages, of: queue)
        #expect(try token("u1") == "T1")
        try store.deliver(try store.claim(queue, most: 1).messages, of: queue)
        #expect(try token("u1") == nil)
        #expect(try store.count("credentials") == 0)
        #expect(try store.count("formerCredentials") == 0, "nothing to remember")
    }

    @Test func credential_goes_whenItsLastMessageIsCancelled() throws {
        let id = try post("u1/d1", "T1").ids[0]
        #expect(try store.cancel(id))
        #expect(try held("u1") == nil)
    }

    @Test func credential_isNotHeld_whenNothingNeedsIt() throws {
        try hold("T1", of: "u1")
        #expect(try held("u1") == nil)
    }

    @Test func keptCredential_outlivesMessages_untilItExpiresOrIsDropped() throws {
        try post("u1/d1", "T1", expiresAt: store.time.now + .seconds(60), isKept: true)
        try hold("T2", of: "u2", isKept: true)
        try store.deliver(try store.claim(queue, most: 1).messages, of: queue)
        #expect(try token("u1") == "T1")
        store.time.advance(by: .seconds(61))
        try store.runMaintenance()
        #expect(try held("u1") == nil)
        #expect(try token("u2") == "T2")
        try change(.drop(credentialOf: "u2"))
        #expect(try held("u2") == nil)
    }

    @Test func newest_replacesTheFormer_andOwnersAreApart() throws {
        try post("u1/d1", "T1")
        try post("u2/d1", "S1")
        let first = try #require(try held("u1"))
        try post("u1/d1", "T2")
        let second = try #require(try held("u1"))
        #expect(second.version != first.version)
        #expect(try token("u1") == "T2")
        #expect(try token("u2") == "S1")
        #expect(try held("u3") == nil)
    }

    @Test func refusedRequest_leavesNoCredential() throws {
        let receipt = try? store.append([])
        #expect(receipt?.ids == [])
        #expect(throws: (any Error).self) {
            try store.transact { [queue] transaction in
                try transaction.change([.hold(Credential(owner: "u1", value: [1], isKept: true))], of: queue.target)
                throw StoreError.failed(detail: "as the test wants it")
            }
        }
        #expect(try held("u1") == nil)
    }

    // MARK: Refusing and parking

    @Test func refusedCredential_isGone_andNotTakenAgain() throws {
        try post("u1/d1", "T1")
        let version = try #require(try held("u1")).version
        try refuse(try store.claim(queue, most: 1), version: version)
        let held = try #require(try held("u1"))
        #expect(held.isRefused && held.value.isEmpty)
        #expect(try store.count("credentials WHERE sealed IS NOT NULL") == 0)
        #expect(try post("u1/d2", "T1").needsCredential)
        #expect(try store.claim(queue, most: 1).messages.isEmpty, "the rejected token releases no lane")
        #expect(!(try post("u1/d2", "T2").needsCredential))
        #expect(try store.drain(queue, most: 1).count == 3)
        // Nothing is queued any more, but a refusal is remembered.
        #expect(try post("u1/d1", "T1").needsCredential)
        #expect(try token("u1") == nil)
    }

    @Test func newCredential_releasesTheOwnersLanes_andNoOthers() throws {
        for owner in ["u1", "u2"] {
            try post("\(owner)/d\(owner)", "\(owner)-T1")
            let claim = try store.claim(queue, most: 1)
            try refuse(claim, version: try #require(try held(owner)).version)
        }
        #expect(try store.claim(queue, most: 1).messages.isEmpty)
        try hold("u2-T2", of: "u2")
        let claim = try store.claim(queue, most: 1)
        #expect(claim.messages.map(\.lane) == [.named("u2/du2", group: "u2")])
        queue.giveBack(claim, now: store.time.now)
        #expect(try store.drain(queue, most: 1).count == 1)
    }

    @Test func lateRefusalOfAFormerCredential_doesNotParkAndIsRemembered() throws {
        try post("u1/d1", "T1")
        let first = try #require(try held("u1")).version
        let claim = try store.claim(queue, most: 1)
        try hold("T2", of: "u1")
        try refuse(claim, version: first)
        #expect(try token("u1") == "T2")
        #expect(try store.claim(queue, most: 1).messages.count == 1, "there is a good one: nothing is parked")
        let state = try store.outbox.withState(of: queue.number) {
            $0.wasRefused(Credential(owner: "u1", value: Array("T1".utf8)))
        }
        #expect(state)
        #expect(try post("u1/d1", "T1").needsCredential)
        #expect(try token("u1") == "T2")
    }

    @Test func planThatParks_parksTheGroup_unlessACredentialHasCome() throws {
        try post("u1/d1", nil)
        try post("u1/d2", nil)
        queue.park(try store.claim(queue, most: 1))
        try store.settleDown()
        #expect(try store.claim(queue, most: 1).messages.isEmpty)
        #expect(try store.count("lanes WHERE isParked") == 2)
        let id = try post("u1/d3", nil).ids[0]
        #expect(try store.record(id)?.facts.isParked == true)
        try post("u1/d3", "T1")
        let claim = try store.claim(queue, most: 1)
        #expect(claim.messages.count == 1)
        queue.park(claim)
        try store.settleDown()
        #expect(try store.drain(queue, most: 1).count == 4, "T1 is good")
    }

    @Test func announcedExpiry_countsAsRefusal() throws {
        try post("u1/d1", "T1", expiresAt: store.time.now + .seconds(60))
        #expect(try #require(try held("u1")).isUsable(at: store.time.now))
        store.time.advance(by: .seconds(60))
        #expect(!(try #require(try held("u1")).isUsable(at: store.time.now)))
        #expect(try post("u1/d1", "T1").needsCredential)
        try store.runMaintenance()
        #expect(try #require(try held("u1")).isRefused)
        #expect(try store.count("credentials WHERE sealed IS NOT NULL") == 0)
    }

    /// An app that posts late what it has recorded with its former token.
    @Test func expiredCredential_replacesNone_thatMayBeSent_andIsNotTakenLater() throws {
        try hold("T2", of: "u1", isKept: true)
        let past = store.time.now + .seconds(-1)
        #expect(try post("u1/d1", "T1", expiresAt: past).needsCredential)
        #expect(try token("u1") == "T2")
        #expect(try store.claim(queue, most: 1).messages.count == 1)
        #expect(try post("u1/d2", "T1").needsCredential, "it is remembered")
        #expect(try token("u1") == "T2")
    }

    @Test func expiredCredential_isReportedWithItsFirstMessage() throws {
        let past = store.time.now + .seconds(-1)
        #expect(try post("u1/d1", "T1", expiresAt: past).needsCredential)
        #expect(try post("u1/d1", "T2", expiresAt: past).needsCredential)
        #expect(!(try post("u1/d1", "T3", expiresAt: store.time.now + .seconds(60)).needsCredential))
        #expect(try post("u1/d1", "T3", expiresAt: past).needsCredential, "its end was announced again")
    }

    // MARK: Exclusion

    @Test func lanesOfOneExclusion_areNotInFlightSideBySide() throws {
        try post("u1/d1", "T1")
        try post("u2/d1", "S1")
        try post("u3/d2", "R1")
        let first = try store.claim(queue, most: 1)
        let second = try store.claim(queue, most: 1)
        #expect(first.messages[0].lane == .named("u1/d1", group: "u1"))
        #expect(second.messages[0].lane == .named("u3/d2", group: "u3"))
        #expect(try store.claim(queue, most: 1).messages.isEmpty)
        try store.deliver(first.messages, of: queue)
        #expect(try store.claim(queue, most: 1).messages[0].lane == .named("u2/d1", group: "u2"))
    }

    // MARK: Restarts and keys

    private func reopen(_ keys: EncryptionKeys) throws -> UpstreamQueue {
        store.options.encryptionKeys = keys
        try store.reopen()
        return try store.register(OwnedUpstream())
    }

    @Test func credential_outlivesARestart() throws {
        try post("u1/d1", "T1")
        let again = try reopen(EncryptionKeys(current: Self.key))
        #expect(try token("u1", again) == "T1")
    }

    /// Earlier versions kept credentials in memory if there was no key.
    @Test func credentialOfAnEarlierVersionWithoutAKey_isMissing_andItsMessagesAreKept() throws {
        let store = try TestStore()
        var queue = try store.register(OwnedUpstream())
        try post("u1/d1", "T1", in: store, queue)
        #expect(try store.count("credentials") == 1)
        store.options.encryptionKeys = EncryptionKeys(current: Self.key)
        try store.reopen()
        queue = try store.register(OwnedUpstream())
        #expect(try store.outbox.withState(of: queue.number) { $0.credential(of: "u1") } == nil)
        #expect(try store.count("credentials") == 0)
        #expect(try store.claim(queue, most: 1).messages.count == 1, "it is there, to be parked by its plan")
        try post("u1/d1", "T1", in: store, queue)
        #expect(try store.outbox.withState(of: queue.number) { $0.credential(of: "u1") } != nil)
    }

    @Test func rotation_sealsWithTheNewKey_andTheOldOneIsNeededNoMore() throws {
        try post("u1/d1", "T1")
        try post("u2/d2", "T2")
        let refused = try #require(try held("u2")).version
        try change(.refuse(credentialOf: "u2", version: refused))
        var queue = try reopen(EncryptionKeys(current: Self.newKey, previous: [Self.key]))
        #expect(store.outbox.keyRotation == .init(resealed: 1, current: 0, unreadable: 0))
        #expect(try token("u1", queue) == "T1")
        queue = try reopen(EncryptionKeys(current: Self.newKey))
        #expect(store.outbox.keyRotation == .init(resealed: 0, current: 1, unreadable: 0))
        #expect(try token("u1", queue) == "T1")
    }

    @Test func credentialOfAnUnknownKey_isNotRead_untilTheKeyIsBack() throws {
        try post("u1/d1", "T1")
        var queue = try reopen(EncryptionKeys(current: Self.newKey))
        #expect(store.outbox.keyRotation == .init(resealed: 0, current: 0, unreadable: 1))
        #expect(try held("u1", queue) == nil)
        queue.park(try store.claim(queue, most: 1))
        try store.settleDown()
        #expect(try store.claim(queue, most: 1).messages.isEmpty)
        queue = try reopen(EncryptionKeys(current: Self.key))
        #expect(try token("u1", queue) == "T1")
        #expect(try store.claim(queue, most: 1).messages.count == 1, "its lane was released at the start")
    }

    @Test func canaryToken_isInNoFile() throws {
        guard !store.options.engine.isPostgres else { return }
        for number in 0..<50 { try post("u\(number)/d\(number)", "canary-\(number)-token", in: store, queue) }
        try store.change([.hold(Credential(owner: "u1", value: Array("canary-again".utf8)))], of: queue)
        func grep() throws {
            let files = try FileManager.default.contentsOfDirectory(atPath: store.folder.path)
            #expect(files.contains("store.sqlite-wal"))
            for file in files {
                let bytes = try #require(FileManager.default.contents(atPath: store.folder.file(file)))
                #expect(bytes.range(of: Data("canary".utf8)) == nil, "\(file)")
            }
        }
        try grep()
        _ = try store.drain(queue, most: 1)
        try grep()
        #expect(try store.isBalanced())
    }
}
