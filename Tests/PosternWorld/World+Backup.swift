import Glibc
import PosternCore
import PosternSimulatedDisk
import PosternScenarios
import PosternTestKit

@testable import PosternGateway
@testable import PosternStore

/// Copies of the store, as `postern outbox backup` and `restore` make them.
extension World {
    struct Backup {
        /// Of the messages that were answered before the copy began, by the number of their entries.
        let ids: [Int: [MessageID]]
        /// What an operator had been told is cancelled, or erased, before the copy began, by the same numbers.
        let cancelled: Set<Int>
        /// The first encryption key that a credential in it may need.
        let oldestKey: Int
        let bytes: Int
    }

    private var backupPath: String { disk.path("backup.sqlite") }

    /// How much the gateway's own files have on the disk.
    var storeBytes: Int { disk.usedBytes - (backup?.bytes ?? 0) }

    // MARK: Backup

    func takeBackup() {
        guard let run, !isDamaged else { return }
        let answered = expectations.entries.filter { !$0.isWaived && !$0.ids.isEmpty }
        let ids = Dictionary(uniqueKeysWithValues: answered.map { ($0.number, $0.ids) })
        let cancelled = Set(answered.lazy.filter(\.isCancelled).map(\.number))
        let key = oldestKey
        do {
            let verification = try StoreBackup(bytesPerSecond: 0, replacesFile: true).run(of: path, to: backupPath) {
                [unowned self] _, _ in goOn(with: run)
            }
            guard self.run === run else { return }
            backup = Backup(ids: ids, cancelled: cancelled, oldestKey: key, bytes: verification.bytes)
            history.record("a backup is made")
            promises.coverage.visit("store: backup made")
        } catch {
            noticeStop()
            history.record("no backup is made: \(disk.neutral("\(error)"))")
            guard self.run === run, !weather.isExcuse else { return }
            promises.fail("a backup is made next to a running gateway", disk.neutral("\(error)"))
        }
    }

    /// The gateway works while its store is copied.
    private func goOn(with run: Run) {
        for _ in 0..<5 where self.run === run && promises.broken == nil {
            step(until: time.instant + .milliseconds(20))
        }
    }

    // MARK: Restore

    func restoreBackup(_ random: SeededRandom) {
        guard let backup, !isDamaged else { return }
        if random.chance(0.5) { stop() } else { die() }
        // The disk may have lost something with that.
        guard self.backup != nil, !isDamaged, !hasLost else { return }
        restore(backup, random)
    }

    /// The machine may stop meanwhile; then it is done again.
    func restore(_ backup: Backup, _ random: SeededRandom) {
        history.record("the operator restores the backup")
        let isInterrupted = random.chance(0.3)
        weather.interrupted {
            if isInterrupted {
                death = random.chance(0.5) ? .kill : .powerCut
                disk.strike(.stop, on: nil, after: random.from(0...80))
            }
            for _ in 0..<2 {
                do {
                    let restored = try StoreRestore.run(backupPath, to: path, at: time.now)
                    guard !disk.hasStopped else { return endRestore() }
                    if let kept = restored.keptAs { for end in ["", "-wal", "-shm"] { unlink(kept + end) } }
                    return recordRestored(backup)
                } catch {
                    guard disk.hasStopped else {
                        return promises.fail("a backup can be restored", disk.neutral("\(error)"))
                    }
                    endRestore()
                    // The disk may have lost the copy with that.
                    guard self.backup != nil else { return }
                }
            }
        }
    }

    private func endRestore() {
        recordStop()
        disk.endStrikes()
        endLife(death)
    }

    private func recordRestored(_ backup: Backup) {
        promises.coverage.visit("store: open after a restore")
        restores += 1
        isRestored = true
        oldestKey = min(oldestKey, backup.oldestKey)
        // Not in it, or not certainly.
        for entry in expectations.entries where backup.ids[entry.number] != entry.ids { entry.isWaived = true }
        // What was cancelled or erased after the backup is in it again, and what is delivered there can be replayed.
        for entry in expectations.entries where !backup.cancelled.contains(entry.number) { entry.isCancelled = false }
        promises.wasRestored()
    }
}
