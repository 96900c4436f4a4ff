import CSQLite
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

/// What is kept in blocks, when messages get rows of their own, and what becomes of stores without blocks.
@Suite struct BlockTests {
    private let store: TestStore
    private let queue: UpstreamQueue

    init() throws {
        store = try TestStore()
        queue = try store.register()
    }

    private func rows() throws -> [Int] {
        try ["queue_1", "blocks_1", "delivered_1", "receipts_1", "ended_1"].map { try store.count($0) }
    }

    @Test func messages_thatAreDeliveredTogether_areOneRowEachTime() throws {
        try store.append(100, to: queue)
        #expect(try rows() == [0, 1, 0, 0, 0])
        let claim = try store.claim(queue)
        #expect(claim.messages.count == 100)
        try store.deliver(claim.messages, of: queue)
        #expect(try rows() == [0, 0, 0, 1, 0])
        #expect(try store.isBalanced())
    }

    @Test func fewMessages_andThoseThatAreMoreThanPlain_haveRows() throws {
        try store.append(3, to: queue)
        #expect(try rows() == [3, 0, 0, 0, 0])
        // Apart from those that are plain, of which four are together.
        let plain = (0..<7).map { _ in store.message(to: queue) }
        let later = store.message(to: queue, notBefore: store.time.now + .seconds(5))
        let large = store.message(String(repeating: "x", count: BlockDraft.maxPayload + 1), to: queue)
        try store.append(plain[..<3] + [later] + plain[3...] + [large])
        #expect(try rows() == [8, 1, 0, 0, 0])
    }

    @Test func block_hasNotMoreThanARequest() throws {
        queue.target.collect(upTo: BatchLimits(maxMessages: 30, maxBytes: 1 << 20), for: .zero, expireAfter: .zero)
        try store.append(70, to: queue)
        #expect(try store.count("blocks_1 WHERE count = 30") == 2)
        #expect(try store.count("blocks_1") == 3)
        // 1000 bytes and a comma each.
        queue.target.collect(upTo: BatchLimits(maxMessages: 500, maxBytes: 8007), for: .zero, expireAfter: .zero)
        let text = String(repeating: "x", count: 1000)
        try store.append((0..<20).map { _ in store.message(text, to: queue) })
        #expect(try store.count("blocks_1 WHERE bytes = 7000") + store.count("blocks_1 WHERE bytes = 8000") == 2)
    }

    @Test func claim_leavesABlockWhole_thatDoesNotFit() throws {
        let ids = try store.append(10, to: queue) + store.append(10, to: queue)
        #expect(try store.claim(queue, most: 15).messages.map(\.id) == Array(ids[..<10]))
        // One that fits into no request is divided.
        #expect(try store.claim(queue, most: 4).messages.map(\.id) == Array(ids[10..<14]))
        #expect(try store.claim(queue, most: 15).messages.map(\.id) == Array(ids[14...]))
        #expect(try rows() == [0, 2, 0, 0, 0])
    }

    @Test func whatHappensToOneMessage_givesAllRows() throws {
        let ids = try store.append(10, to: queue) + store.append(10, to: queue)
        #expect(try store.cancel(ids[3]))
        #expect(try rows() == [9, 1, 0, 0, 1])
        // The block behind them does not fit.
        try store.deliver(store.claim(queue, most: 14).messages, of: queue)
        #expect(try rows() == [0, 1, 9, 0, 1])
        // It fits into no request, and is delivered in part.
        try store.deliver(store.claim(queue, most: 3).messages, of: queue)
        #expect(try rows() == [7, 0, 12, 0, 1])
        #expect(try store.isBalanced())
    }

    @Test func messagesThatAreDeliveredTogether_leaveRowsToThoseOfTheirBlockThatWait() throws {
        let first = try store.append(to: queue, lane: .digest(7))
        let earlier = try store.claim(queue).messages
        let ids = try store.append(
            (0..<10).map { n in
                store.message("{\"n\":\(n)}", to: queue, lane: .digest(n == 4 ? 7 : Int64(100 + n)), key: "k\(n)")
            }
        ).ids
        let claim = try store.claim(queue)
        #expect(claim.messages.map(\.id) == ids.filter { $0 != ids[4] })
        try store.deliver(claim.messages, of: queue)
        #expect(try rows() == [2, 0, 0, 1, 0])
        #expect(try store.record(ids[4])?.payload == Array("{\"n\":4}".utf8))
        #expect(try store.record(ids[5])?.key == "k5")
        #expect(try store.isBalanced())
        try store.deliver(earlier, of: queue)
        // What has waited is sent now. Its receipt is between those of its block.
        let waited = try store.claim(queue).messages
        #expect(waited.map(\.id) == [ids[4]])
        try store.deliver(waited, of: queue)
        #expect(try rows() == [0, 0, 2, 1, 0])
        #expect(try store.isBalanced())
        let listed = try store.outbox.messages(MessageFilter(state: .delivered), after: nil, limit: 100).messages
        #expect(listed.map(\.id) == [first] + ids)
        #expect(listed.map(\.key) == [nil] + (0..<10).map { "k\($0)" })
        try store.execute(
            "INSERT INTO delivered_1 SELECT id, kind, acceptedAtMs, settledAtMs, attempts, key, result, 0 FROM received_1 "
                + "WHERE id = \(ids[5].rawValue)")
        #expect(try !store.outbox.audit().isBalanced)
    }

    @Test func block_isReadOnceForThoseThatWaited() throws {
        let ids = try store.append(10, to: queue)
        var reads = 0
        let blocks = ReadBlocks()
        func block(of id: MessageID) -> ReadBlocks.Block? {
            blocks.block(of: id) { _ in
                reads += 1
                return ReadBlocks.Block(
                    first: ids[0], last: ids[8], acceptedAt: store.time.now, heads: [], payloads: [])
            }
        }
        #expect(ids.map { block(of: $0) != nil } == Array(repeating: true, count: 9) + [false])
        #expect(reads == 2)
    }

    @Test func damagedPayload_inABlock_isNotSent() throws {
        let ids = try store.append(5, to: queue)
        // The payloads are {"n":0} to {"n":4}.
        try store.execute(
            "UPDATE blocks_1 SET payloads = CAST(replace(CAST(payloads AS TEXT), '{\"n\":2}', '{\"n\":9}') AS BLOB)")
        let claim = try store.claim(queue)
        #expect(claim.messages.map(\.id) == [ids[0], ids[1], ids[3], ids[4]])
        #expect(claim.expired.map(\.id) == [ids[2]])
        try store.expire(claim.expired, of: queue)
        #expect(try store.record(ids[2])?.lastError?.errorClass == .damaged)
        try store.deliver(claim.messages, of: queue)
        #expect(try store.isBalanced())
    }

    @Test(arguments: [
        "UPDATE blocks_1 SET count = 4", "UPDATE blocks_1 SET bytes = bytes + 1",
        "UPDATE blocks_1 SET last = last + 256",
        "INSERT INTO receipts_1 SELECT first, last, count, acceptedAtMs, acceptedAtMs, NULL, heads FROM blocks_1",
        "INSERT INTO queue_1 (id, kind, lane, acceptedAtMs, checksum, payload) SELECT last, 1, 0, 0, 0, x'00' FROM blocks_1",
        "INSERT INTO delivered_1 SELECT first, 1, 0, 0, 1, NULL, NULL, 0 FROM blocks_1",
    ])
    func block_thatDoesNotHaveWhatItSays_isFound(damage: String) throws {
        try store.append(5, to: queue)
        #expect(try store.outbox.audit().isBalanced)
        try store.execute(damage)
        #expect(try !store.outbox.audit().isBalanced)
    }

    @Test func heads_thatAreCut_areDamage() throws {
        try store.append(5, to: queue)
        try store.execute("UPDATE blocks_1 SET heads = substr(heads, 1, length(heads) - 1)")
        #expect(throws: (any Error).self) { try store.claim(queue) }
        let error = #expect(throws: StoreError.self) { try store.outbox.audit() }
        guard case .corrupt = error else { return #expect(Bool(false), "\(String(describing: error))") }
    }

    @Test func head_isReadAsItWasWritten() {
        var (former, written) = (postern_head(), postern_head())
        (former.id, former.lane, former.acceptedAtMs, former.offset, former.size) = (0x501, 7, 1_700_000_000_000, 3, 9)
        (written.id, written.kind, written.lane) = (Int64.max - 0xFE, 300, .min)
        (written.acceptedAtMs, written.size, written.checksum, written.tried) = (-1, 16_384, 0xFFFF_FFFF, 63)
        var bytes = [UInt8](repeating: 0, count: Int(POSTERN_HEAD_BYTES))
        let key = [CChar](repeating: 0x61, count: 255)
        key.withUnsafeBufferPointer { key in
            (written.key, written.keySize) = (key.baseAddress, 255)
            let count = postern_put_head(&bytes, &former, &written)
            bytes.withUnsafeBufferPointer { bytes in
                guard let start = bytes.baseAddress else { return }
                for short in 0..<count {
                    var head = former
                    #expect(postern_next_head(&head, start, start + short) == nil)
                }
                var head = former
                #expect(postern_next_head(&head, start, start + count) == start + count)
                #expect(head.id == written.id && head.kind == 300 && head.lane == .min && head.acceptedAtMs == -1)
                #expect(head.size == 16_384 && head.checksum == 0xFFFF_FFFF && head.offset == 12 && head.keySize == 255)
                #expect(head.tried == 63)
            }
        }
    }

    @Test func receipts_ofManyBlocks_areRemovedInFewTurns() throws {
        let store = try TestStore { $0.deliveredRetention = .seconds(10) }
        let queue = try store.register()
        for _ in 0..<20 { try store.append(1000, to: queue) }
        try store.drain(queue)
        store.time.advance(by: .seconds(11))
        let maintenance = Maintenance(outbox: store.outbox)
        let hasMore = SharedValue(true)
        try store.transact { hasMore.set(try maintenance.run(in: $0)) }
        #expect(try store.count("receipts_1") == 0)
        #expect(store.outbox.ledger(of: queue.number).purged.delivered == 20_000)
        #expect(try store.isBalanced())
    }

    /// A store as the release before blocks has left it.
    private func formerStore() throws -> (TestStore, [MessageID]) {
        let store = try TestStore { $0.storesBlocks = false }
        let queue = try store.register()
        let ids = try store.append(60, to: queue)
        let claim = try store.claim(queue, most: 40).messages
        try store.deliver(Array(claim[..<10]), of: queue)
        try store.fail(Array(claim[10..<20]), of: queue)
        try store.sendLater(Array(claim[20..<30]), of: queue, at: store.time.now + .seconds(5))
        try store.openAttempt(Array(claim[30...]), of: queue)
        for id in ids[50...] { #expect(try store.cancel(id)) }
        try store.append("{}", to: queue, notBefore: store.time.now + .seconds(5))
        try store.execute(
            """
            DROP VIEW queued_1; DROP VIEW received_1; DROP TABLE blocks_1; DROP TABLE receipts_1;
            ALTER TABLE queue_1 DROP COLUMN turn; ALTER TABLE lanes DROP COLUMN turn;
            DELETE FROM grdb_migrations WHERE identifier IN ('7 blocks', '8 turns')
            """)
        return (store, ids)
    }

    @Test func storeWithoutBlocks_isReadAndBackedUp_beforeItIsOpened() throws {
        let (store, ids) = try formerStore()
        store.outbox.close()
        let view = try StoreView(path: store.path)
        #expect(try view.message(ids[0], payload: true)?.state == .delivered)
        #expect(
            try view.messages(MessageFilter(state: .queued), after: nil, limit: 100, payload: true).messages.count == 31
        )
        #expect(try StoreVerification.run(store.path).isSound)
        #expect(try view.summaries().first?.ledger.queued == 31)
        let copy = store.folder.file("backup.sqlite")
        let backup = try StoreBackup(bytesPerSecond: 0).run(of: store.path, to: copy) { _, _ in }
        #expect(backup.isSound)
        #expect(backup.payloads == 51, "31 queued, 10 failed, and 10 cancelled")
    }

    @Test func storeWithoutBlocks_isOpened_drained_andRetried() throws {
        let (store, ids) = try formerStore()
        try store.reopen()
        store.options.storesBlocks = true
        try store.reopen()
        let queue = try store.register()
        #expect(try store.isBalanced())
        #expect(try store.requeue(Array(ids[10..<20])).count == 10)
        try store.append(50, to: queue)
        #expect(try store.count("blocks_1") == 1)
        store.time.advance(by: .seconds(6))
        #expect(try store.drain(queue).count == 91)
        #expect(store.outbox.ledger(of: queue.number).delivered == 101)
        #expect(try store.isBalanced())
    }
}
