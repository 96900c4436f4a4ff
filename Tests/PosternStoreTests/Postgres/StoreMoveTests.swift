import Foundation
import Logging
import PosternCore
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternStore

/// A store with something in every table, moved from a file to PostgreSQL.
@Suite struct StoreMoveTests {
    private static let key = [UInt8](repeating: 7, count: 32)
    private static let otherKey = [UInt8](repeating: 9, count: 32)
    private let old: TestStore
    private let mixed: UpstreamQueue
    private let owned: UpstreamQueue
    private let shared: SharedStore

    init() throws {
        old = try TestStore {
            ($0.deliveredPayloadRetention, $0.encryptionKeys) = (.seconds(1_000_000), EncryptionKeys(current: Self.key))
        }
        mixed = try old.register(PlainUpstream())
        owned = try old.register(OwnedUpstream())
        shared = try SharedStore()
        try fill()
    }

    private struct OwnedUpstream: PlainAtHeart {
        let plain = PlainUpstream("owned", laneRule: .perLane)
        func plan(for messages: [Message], in context: PlanContext) -> Plan { .park }
    }

    // MARK: Filling

    /// Leaves rows in each table, of each state, and each kind of wait.
    private func fill() throws {
        // In blocks, in receipts of blocks, and in rows.
        try old.append((0..<30).map { old.message("{}", to: mixed, lane: .digest(5), isFromSDK: $0 < 7) })
        try old.append(to: mixed, key: "a\0b\u{10FFFF}")
        try old.drain(mixed)
        try old.outbox.share(mixed.target, by: Fairness(by: .caller))
        let replay = Replay(
            id: "again", Replay.Request(upstream: mixed.target.name, to: mixed.target.name), by: nil,
            newest: MessageID(rawValue: Int64(old.outbox.ledger(of: mixed.number).lastID)), at: old.time.now)
        _ = try old.threads.result { old.outbox.begin(replay, completion: $0) }
        let page = try old.outbox.page(of: replay, after: replay.cursor, limit: 1, maxBytes: 1 << 20)
        var step = Replay.Step(from: replay.cursor, next: page.next)
        step.messages = page.messages.map { ($0.record.id, old.message("{}", to: mixed)) }
        let made = step
        _ = try old.threads.result { old.outbox.advance("again", made, into: mixed.target, completion: $0) }
        try old.fail(try old.claim(mixed, most: 1).messages, of: mixed)
        try old.append([old.message(to: mixed, isFromSDK: true, failure: "it is not valid")])
        _ = try old.cancel(try old.append(to: mixed, lane: .digest(9)))
        try old.append(to: mixed, notBefore: old.time.now + .seconds(3600))
        try old.append(to: mixed, expiresAt: old.time.now + .seconds(1_000_000))
        try old.append(to: mixed, lane: .digest(-8))
        try old.append(to: mixed, lane: .digest(-8))
        try old.sendLater(try old.claim(mixed, most: 2).messages, of: mixed, at: old.time.now + .seconds(60))
        let turn = Fairness.turn(ofCaller: "few")
        try old.append(
            (0..<20).map {
                NewMessage(
                    queue: mixed.target, kind: "thing", lane: .none, acceptedAt: old.time.now, bytes: Array("{}".utf8),
                    turn: turn, isFromSDK: $0 % 2 == 0)
            })

        for _ in 0..<3 { try post("u2/a", "T1") }
        try park("u2")
        for lane in ["u1/a", "u1/b", "u3/a"] { for _ in 0..<3 { try post(lane, "T1 of \(lane)") } }
        try post("u1/a", "T2")
        try old.deliver(try old.claim(owned, most: 1).messages, of: owned)
        try old.sendLater(try old.claim(owned, most: 1).messages, of: owned, at: old.time.now + .seconds(60))
        try old.change([.set(key: "a/b\0", value: [1, 0, 2])], of: owned)
        let record = ResponseRecord(key: [4], fingerprint: [5]) { _ in [6] }
        _ = try old.threads.result {
            old.outbox.append([old.message(to: mixed)], recording: .response(record), completion: $0)
        }
        // The process ends while this is sent.
        try old.openAttempt(try old.claim(mixed, most: 3).messages, of: mixed)
        #expect(try old.isBalanced())
    }

    private func post(_ lane: String, _ token: String) throws {
        let owner = String(lane.prefix(2))
        try old.append([
            NewMessage(
                queue: owned.target, kind: "thing", lane: .named(lane, group: owner), acceptedAt: old.time.now,
                bytes: Array("{}".utf8), credential: Credential(owner: owner, value: Array(token.utf8), isKept: true))
        ])
    }

    /// As a worker does when the upstream has rejected the credential.
    private func park(_ owner: String) throws {
        let version = try #require(try credential(of: owner, in: old.outbox)).version
        let claim = try old.claim(owned, most: 1)
        var settlement = old.settlement(.parked)
        settlement.parked = claim.messages
        try old.settle(settlement, of: owned, changes: [.refuse(credentialOf: owner, version: version)])
        owned.giveBack(claim, now: old.time.now)
    }

    private func credential(of owner: String, in outbox: Outbox) throws -> HeldCredential? {
        try outbox.withState(of: owned.number) { $0.credential(of: owner) }
    }

    // MARK: Moving

    @discardableResult private func move(
        _ path: String? = nil, to options: PostgresOptions? = nil, keys: EncryptionKeys = EncryptionKeys(current: key)
    ) throws -> StoreMove {
        old.close()
        var (source, target) = (old.options, OutboxOptions())
        source.path = path ?? old.path
        (target.engine, target.encryptionKeys) = (.postgres(options ?? shared.options()), keys)
        return try StoreMove.run(
            source, to: target, threads: DedicatedThreads(),
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    }

    /// Whether the body is refused, because the file was moved to the schema.
    private func isMoved(_ body: () throws -> some Any) -> Bool {
        do {
            _ = try body()
            return false
        } catch {
            guard case StoreError.moved(_, let place) = error else { return false }
            return place.contains("schema \(shared.schema) (store ")
        }
    }

    /// What the file is now, as a store of its own.
    private func copy() throws -> TestStore {
        let copy = old.folder.file("copy.sqlite")
        try old.copyFiles(to: copy)
        return try TestStore {
            ($0.path, $0.deliveredPayloadRetention, $0.encryptionKeys) = (
                copy, .seconds(1_000_000), EncryptionKeys(current: Self.key)
            )
        }
    }

    private func tables() throws -> [String] {
        try old.outbox.read { sql in
            try sql.all("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'") {
                $0[0] as String
            }
        }
    }

    /// Without the number of an upstream.
    private static func kind(of table: String) -> String { String(table.prefix { $0 != "_" }) }

    private func count(_ rows: String) throws -> Int { try shared.run("SELECT count(*) FROM \(shared.schema).\(rows)") }

    private func open(_ options: PostgresOptions? = nil) throws -> TestStore {
        try shared.open(options ?? shared.options(), keys: EncryptionKeys(current: Self.key))
    }

    /// The messages of both stores, and the attempts that carried them.
    private func messages(of view: StoreView) throws -> [MessageRecord] {
        try view.messages(MessageFilter(), after: nil, limit: 10_000, payload: true).messages.map { record in
            var record = record
            // Numbers of named lanes are the only ones that change.
            if record.laneName != nil { record.lane = 0 }
            return record
        }
    }

    private func lanes(of view: StoreView, _ number: UpstreamNumber) throws -> [String] {
        let found = try view.lanes(of: number, in: nil, after: nil, limit: 1000, waits: { _ in nil }, { $0 }).lanes
        return found.map { lane in
            "\(lane.key ?? "") \(lane.digest ?? 0) \(lane.state) \(lane.waitsFor?.rawValue ?? "") \(lane.queued)"
        }.sorted()
    }

    private func view(_ options: PostgresOptions? = nil) throws -> StoreView {
        var target = OutboxOptions()
        target.engine = .postgres(options ?? shared.options())
        return try StoreView(target, now: old.time.now)
    }

    // MARK: What is moved

    @Test func everyTable_isCopied_withAllOfItsRows() throws {
        let tables = try tables()
        let filled = Set(try tables.filter { try old.count($0) > 0 }.map(Self.kind))
        #expect(filled == Set(tables.map(Self.kind)), "the test needs rows in each kind of table")
        var expected: [String: Int] = [:]
        for table in tables where !["grdb_migrations", "store", "reserve"].contains(table) {
            expected[table] = try old.count(table)
        }
        for number in [1, 2] {
            // A row for each message.
            expected["queue_\(number)"] = try old.count("queued_\(number)")
            expected["delivered_\(number)"] = try old.count("received_\(number)")
            (expected["blocks_\(number)"], expected["receipts_\(number)"]) = (0, 0)
        }
        let move = try move()
        for (table, rows) in expected { #expect(try count(table) == rows, "\(table)") }
        #expect(move.rows == expected.filter { !$0.key.hasPrefix("blocks_") && !$0.key.hasPrefix("receipts_") })
        #expect(move.audit.isBalanced)
        #expect(try view().audit() == move.audit)
    }

    @Test func messagesAttemptsAndLanes_areThose_ofTheFile() throws {
        let now = old.time.now
        let file = try StoreView(path: old.path, now: now)
        let records = try messages(of: file)
        let attempts = try records.map { try file.attempts(of: $0.id) }
        let lanes = try [mixed, owned].map { try self.lanes(of: file, $0.number) }
        #expect(Set(records.map(\.state)) == [.queued, .delivered, .failed, .cancelled])
        #expect(records.contains { $0.key == "a\0b\u{10FFFF}" } && records.contains { $0.replayOf != nil })
        #expect(["parked", "backingOff", "ready"].allSatisfy { state in lanes[1].contains { $0.contains(state) } })
        try move()
        let view = try view()
        let moved = try messages(of: view)
        #expect(moved.count == records.count)
        for (moved, record) in zip(moved, records) { #expect(moved == record) }
        #expect(try moved.map { try view.attempts(of: $0.id) } == attempts)
        #expect(try [mixed, owned].map { try self.lanes(of: view, $0.number) } == lanes)
    }

    @Test func queues_areDelivered_asTheFileWouldHaveBeen() throws {
        let reference = try copy()
        try move()
        let new = try open()
        var sent: [[[String]]] = []
        for store in [reference, new] {
            let queues = [try store.register(PlainUpstream()), try store.register(OwnedUpstream())]
            // It joins its lane, behind the messages that were moved.
            let later = try store.append(to: queues[1], lane: .named("u3/a", group: "u3"))
            store.time.advance(by: .seconds(10_000))
            #expect(try store.isBalanced())
            sent.append(
                try queues.map { queue in
                    var sent: [String: [MessageID]] = [:]
                    while true {
                        let claim = try store.claim(queue, most: 1)
                        guard let message = claim.messages.first else { break }
                        let id = message.id == later ? MessageID(rawValue: 0) : message.id
                        sent[message.lane.stored, default: []].append(id)
                        try store.deliver(claim.messages, of: queue)
                    }
                    // Messages without a lane have no order among each other.
                    sent["0"]?.sort()
                    return sent.map { "\($0.key): \($0.value)" }.sorted()
                })
            #expect(try store.isBalanced())
            #expect(try store.kept(.queued) == 3, "those of the owner without a credential")
        }
        #expect(sent[0] == sent[1] && sent[0].map(\.count) == [2, 3], "\(sent)")
    }

    @Test func credentials_canBeUsed_andAParkedLaneContinuesWithANewOne() throws {
        let latest = try #require(try credential(of: "u1", in: old.outbox))
        let queued = old.outbox.ledger(of: owned.number).queued
        try move()
        let new = try open()
        let queue = try new.register(OwnedUpstream())
        #expect(try credential(of: "u1", in: new.outbox) == latest)
        #expect(try credential(of: "u2", in: new.outbox)?.isRefused == true)
        try new.change([.hold(Credential(owner: "u2", value: [1], isKept: true))], of: queue)
        let version = try #require(try credential(of: "u2", in: new.outbox)).version
        #expect(version > latest.version)
        new.time.advance(by: .seconds(10_000))
        #expect(try new.drain(queue, most: 1).count == queued)
    }

    @Test func requests_areRepeated_andNumbersContinue() throws {
        let newest = try old.outbox.read { try AssignedNumbers($0) }
        try move()
        let new = try open()
        let queue = try new.register(PlainUpstream())
        #expect(try new.outbox.storedResponse([4])?.bytes == [6])
        let id = try new.append(to: queue)
        #expect(id.sequence > newest.sequence)
        #expect(new.outbox.nextBatch().rawValue > newest.batch)
        let later = try new.register(PlainUpstream("later", kinds: ["new"]))
        #expect(later.number.rawValue == 3)
        #expect(try new.record(try new.append(to: later))?.kind == "new")
        #expect(try new.isBalanced())
    }

    // MARK: What is refused

    @Test func movedFile_isRefused_withThePlaceOfTheStore() throws {
        try move()
        #expect(isMoved { try TestStore.open(old.options) })
        #expect(isMoved { try TestStore.open(old.options, startFresh: true) })
        #expect(isMoved { try StoreView(path: old.path) })
        #expect(isMoved { try move() })
        let other = try SharedStore()
        #expect(isMoved { try move(to: other.options()) })
    }

    @Test func fileOfARunningGateway_isNotMoved() throws {
        let running = try copy()
        #expect(throws: StoreError.alreadyRunning(path: running.path)) { try move(running.path) }
        #expect(try shared.run("SELECT count(*) FROM pg_namespace WHERE nspname = '\(shared.schema)'") == 0)
    }

    @Test func store_isNotMoved_toOneThatExists_orThatANodeUses() throws {
        let node = try open()
        #expect(throws: StoreError.inUse(place: shared.options().place, by: "node a")) { try move() }
        _ = try node.register()
        node.close()
        #expect(throws: StoreError.occupied(place: shared.options().place)) { try move() }
        try TestStore.open(old.options).close()
    }

    @Test func store_isNotMoved_ifAKeyOfTheNewConfigurationDoesNotOpenItsCredentials() throws {
        let error = StoreError.sealed(credentials: 2, configuration: "new")
        #expect(throws: error) { try move(keys: EncryptionKeys(current: Self.otherKey)) }
        #expect(throws: error) { try move(keys: EncryptionKeys()) }
        try move(keys: EncryptionKeys(current: Self.otherKey, previous: [Self.key]))
        let new = try shared.open(
            shared.options(), keys: EncryptionKeys(current: Self.otherKey, previous: [Self.key]))
        #expect(new.outbox.keyRotation.resealed == 2)
    }

    @Test func unsoundFile_isNotMoved() throws {
        try old.execute("UPDATE upstreams SET accepted = accepted + 1 WHERE number = 2")
        let error = #expect(throws: StoreError.self) { try move() }
        #expect(error?.description.contains("owned: accepted is") == true)
        _ = try open()
    }

    // MARK: Interruptions

    /// A file like the one that is to be moved, in place of an earlier one.
    private func replica() throws -> String {
        let path = old.folder.file("replica.sqlite")
        old.close()
        for tail in StoreFile.tails {
            try? FileManager.default.removeItem(atPath: path + tail)
            try? FileManager.default.copyItem(atPath: old.path + tail, toPath: path + tail)
        }
        return path
    }

    /// The connection is lost after each of fifty numbers of bytes: the database is left as by a process that is killed.
    @Test func interruptedMove_isAcceptedByNoGateway_andCompletedByTheNext() throws {
        let audit = try old.outbox.audit()
        let server = try PostgresServer.shared()
        let whole = try server.proxy()
        try move(try replica(), to: try SharedStore().options(through: whole))
        let (sent, received) = (whole.forwarded(.toServer), whole.forwarded(.toClient))
        var (interrupted, incomplete) = (0, 0)
        for number in 0..<50 {
            let (path, store, proxy) = (try replica(), try SharedStore(), try server.proxy())
            let (size, direction): (Int, PostgresProxy.Direction) =
                number % 2 == 0 ? (sent, .toServer) : (received, .toClient)
            proxy.strike(.cut, after: size * (number + 1) / 51, direction)
            do {
                try move(path, to: store.options(through: proxy))
            } catch {
                interrupted += 1
                let tables =
                    "SELECT count(*) FROM pg_tables WHERE tablename = 'store' AND schemaname = '\(store.schema)'"
                if try store.run(tables) == 1,
                    try store.run("SELECT count(*) FROM store WHERE movingFrom IS NOT NULL") == 1
                {
                    incomplete += 1
                    #expect(throws: StoreError.moving(place: store.options().place, from: path)) {
                        try store.open(store.options())
                    }
                }
                // The session of the lost connection may have to be noticed first.
                let isDone = eventually { (try? move(path, to: store.options())) != nil }
                try #require(isDone, "after \(number)")
            }
            #expect(throws: StoreError.self) { try StoreView(path: path) }
            #expect(try view(store.options()).audit() == audit)
            try open(store.options()).close()
        }
        #expect(interrupted > 45 && incomplete > 20, "\(interrupted), \(incomplete)")
    }

    /// Nothing but the last step is left, whatever the file has had since.
    @Test func moveThatEndedBeforeItsLastStep_isCompleted_butNoOtherStore() throws {
        let audit = try old.outbox.audit()
        try move()
        try shared.run("UPDATE store SET movingFrom = '\(old.path)'")
        let other = try SharedStore()
        try PostgresSchema.prepare(SQL(postgres: try PostgresConnection(other.options())), other.options())
        try other.run("UPDATE store SET movingFrom = '\(old.path)'")
        #expect(isMoved { try move(to: other.options()) })
        let completed = try move()
        #expect(completed.rows.isEmpty && completed.audit == audit)
        #expect(try open().isBalanced())
    }

    /// A gateway may have used the file between the two.
    @Test func repeatedMove_copiesWhatTheFileHasThen() throws {
        let path = try replica()
        try move(path)
        try shared.run("UPDATE store SET movingFrom = '\(path)'")
        _ = try replica()
        let file = try TestStore { ($0.path, $0.encryptionKeys) = (path, EncryptionKeys(current: Self.key)) }
        try file.append(7, to: try file.register())
        let audit = try file.outbox.audit()
        file.close()
        #expect(try move(path).audit == audit)
        #expect(try view().audit() == audit)
    }
}
