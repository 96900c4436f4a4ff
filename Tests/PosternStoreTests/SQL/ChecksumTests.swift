import CPosternChecksum
import PosternCore
import PosternTestKit
import Testing

@testable import PosternStore

/// About SQLite: a payload that changed on the disk.
@Suite struct ChecksumTests {
    @Test func checksum_isThatOfTheStandard() {
        // RFC 3720, appendix B.4, and the usual check value.
        for (bytes, expected) in [
            (Array("123456789".utf8), 0xE306_9283), ([UInt8](repeating: 0, count: 32), 0x8A91_36AA),
            ([UInt8](repeating: 0xFF, count: 32), 0x62A8_AB43), (Array(0..<32), 0x46DD_794E),
        ] as [([UInt8], Int64)] {
            #expect(bytes.withUnsafeBytes { Checksum.of($0) } == expected)
        }
    }

    @Test func instructionAndTable_agree_atEveryLength() {
        let bytes = (0..<300).map { UInt8(truncatingIfNeeded: $0 &* 37) }
        for count in 0..<bytes.count {
            #expect(postern_crc32c(bytes, count) == postern_crc32c_by_table(bytes, count))
        }
    }

    @Test func damagedPayload_fails_andItsNeighborsAreSent() throws {
        let store = try TestStore()
        let queue = try store.register()
        let ids = try store.append(3, to: queue)
        let damaged = ids[1]
        try store.execute("UPDATE queue_1 SET payload = CAST('{\"n\":9}' AS BLOB) WHERE id = \(damaged.rawValue)")
        let claim = try store.claim(queue)
        #expect(claim.messages.map(\.id) == [ids[0], ids[2]])
        #expect(claim.expired.map(\.id) == [damaged])
        var settlement = store.settlement()
        settlement.delivered = claim.messages
        settlement.ended = claim.expired.map { .init($0, as: .expired, error: nil) }
        try store.settle(settlement, of: queue)
        let record = try #require(try store.record(damaged))
        #expect(record.state == .failed)
        #expect(record.lastError?.errorClass == .damaged)
        #expect(try store.isBalanced())
    }

    @Test func payload_isStillWhole_afterARetryOfADeadLetter() throws {
        let store = try TestStore()
        let queue = try store.register()
        let id = try store.append("{\"a\":1}", to: queue)
        try store.fail(store.claim(queue).messages, of: queue)
        #expect(try store.requeue([id]) == [id])
        #expect(try store.claim(queue).messages.map(\.payload) == [Array("{\"a\":1}".utf8)])
    }
}
