import PosternCore
import PosternSimulatedDisk
import PosternTestKit
import Testing

@testable import PosternStore

/// Checkpoints on a disk whose syncs fail.
@Suite struct CheckpointTests {
    /// A checkpoint that a reader holds up counts its pages as written, and does not sync the database file. If the sync
    /// of a later checkpoint fails, the disk may lack those pages, too.
    @Test(arguments: 1...20, [false, true])
    func pagesOfAPartialCheckpoint_areNotLost_whenALaterSyncFails(seed: Int, closing: Bool) throws {
        let store = DiskStore(seed: seed)
        let disk = store.disk
        let answered = try store.run(closing: closing) { process in
            var answered: Set<MessageID> = []
            for _ in 0..<5 { answered.insert(try process.append(length: 60_000)) }
            try process.outbox.read { sql in
                _ = try sql.value("SELECT count(*) FROM store", as: Int.self)
                let writes = disk.counts(of: "store.sqlite").writes
                let syncs = disk.counts(of: "store.sqlite").syncs
                while disk.counts(of: "store.sqlite").writes == writes {
                    answered.insert(try process.append(length: 2000))
                }
                #expect(disk.counts(of: "store.sqlite").syncs == syncs)
            }
            disk.strike(.ioError, on: .sync, of: "store.sqlite")
            guard !closing else { return answered }
            while disk.strikesLeft > 0 { answered.insert(try process.append(length: 2000)) }
            #expect(process.outbox.failure != nil)
            process.threads.advance(by: .seconds(5))
            #expect(process.outbox.failure == nil)
            return answered
        }
        #expect(disk.strikesLeft == 0)
        disk.powerCut()
        let found = try store.contents()
        #expect(found.ids == answered)
        #expect(found.findings == [])
    }
}
