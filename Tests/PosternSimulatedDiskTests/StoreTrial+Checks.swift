import PosternCore
import PosternSimulatedDisk

@testable import PosternStore

/// What a trial compares after each start, and which errors of a start it expects.
extension StoreTrial {
    /// Whether the trial ends with this error of a start; throws if it must not be.
    func isExplained(_ error: StoreError, attempt: Int) throws -> Bool {
        story.append("cannot start: \(disk.neutral("\(error)"))")
        if disk.hasStopped { return false }
        if disk.isLossAllowed { return true }
        switch error {
        case .corrupt, .logDamaged, .foreign, .newer:
            guard disk.isDamageMarked else { throw error }
            isDamageReported = true
            return true
        default:
            guard attempt < 5 else { throw error }
            return false
        }
    }

    /// Compares what is stored with what was promised. Reads may fail as the disk does.
    func compare(isDurable: Bool) throws {
        guard let outbox, let queue, !disk.isLossAllowed else { return }
        let faults = disk.faults
        disk.faults = DiskFaults()
        defer { disk.faults = faults }
        do {
            var findings = try book.findings(in: outbox, of: queue.number, isDurable: isDurable)
            findings += try outbox.audit().accounts.flatMap(\.findings)
            let integrity = try outbox.read { try $0.value("PRAGMA integrity_check(1)", as: String.self) }
            if integrity != "ok" { findings.append(integrity ?? "no integrity_check") }
            guard !findings.isEmpty else { return }
            // The audit, `integrity_check` and the checksum that a claim compares report the damage, too.
            if disk.isDamageMarked, try integrity != "ok" || !outbox.audit().isBalanced || hasDamagedPayload() {
                isDamageReported = true
                return
            }
            throw Breach(description: findings.joined(separator: "\n"))
        } catch let error as StoreError where disk.isDamageMarked {
            story.append("damage is reported: \(disk.neutral("\(error)"))")
            isDamageReported = true
        }
    }

    func hasDamagedPayload() throws -> Bool {
        guard let outbox, let queue else { return false }
        return try outbox.read { sql in
            try sql.all("SELECT checksum, payload FROM queue_#", of: queue.number) {
                $0.isWhole(payload: 1, checksum: 0)
            }.contains(false)
        }
    }
}
