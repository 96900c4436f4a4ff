public import PosternCore
public import PosternStore

/// `postern outbox backup`, `restore`, and `verify`.
public enum OutboxBackup {
    /// Copies the store to `file`, and verifies the copy.
    public static func run(
        _ location: StoreLocation, to file: String, with backup: StoreBackup, progress: @escaping (Int, Int) -> Void
    ) throws(CommandFailure) -> BackupReport {
        let path = try location.file()
        return try onStore { () throws(StoreError) in
            BackupReport("backup", file: file, try backup.run(of: path, to: file, progress: progress))
        }
    }

    /// Replaces the store by a backup. Fails while a gateway runs on the store.
    public static func restore(
        _ location: StoreLocation, from file: String, at now: Timestamp, progress: @escaping (Int, Int) -> Void
    ) throws(CommandFailure) -> BackupReport {
        let path = try location.file()
        let restored = try onStore { () throws(StoreError) in
            try StoreRestore.run(file, to: path, at: now, progress: progress)
        }
        var report = BackupReport("restored", file: path, restored.verification)
        report.keptAs = restored.keptAs
        return report
    }

    /// Reads the whole store.
    public static func verify(_ location: StoreLocation) throws(CommandFailure) -> BackupReport {
        let path = try location.file()
        do throws(StoreError) {
            return BackupReport("verified", file: path, try StoreVerification.run(path))
        } catch .corrupt(let path, let detail), .logDamaged(let path, let detail) {
            throw CommandFailure(CommandFailure.no, "\(path) is damaged: \(detail).")
        } catch {
            throw CommandFailure(error)
        }
    }
}

/// What was copied or checked, and whether it is sound.
public struct BackupReport: Sendable {
    private let action: String
    private let file: String
    private let verification: StoreVerification
    /// Where a store is now that was replaced.
    var keptAs: String?

    init(_ action: String, file: String, _ verification: StoreVerification) {
        (self.action, self.file, self.verification) = (action, file, verification)
    }

    /// 1 if something is wrong.
    public var exitCode: Int32 { verification.isSound ? 0 : CommandFailure.no }

    private var accepted: Int { verification.audit.accounts.reduce(0) { $0 + $1.ledger.accepted } }
    private var queued: Int { verification.audit.accounts.reduce(0) { $0 + $1.ledger.queued } }

    /// The result as text for people.
    public var text: String {
        let size = "\((verification.bytes + (1 << 20) - 1) >> 20) MiB"
        let summary =
            "\(action) \(file): \(size), \(accepted) messages accepted, \(queued) queued, "
            + (verification.isSound ? "sound" : "NOT SOUND")
        return ([summary] + verification.findings + (keptAs.map { ["The former store is kept as \($0)"] } ?? []))
            .joined(separator: "\n")
    }

    /// The result as JSON for programs.
    public var json: String {
        JSONWriter.object { json in
            json.string("file", file)
            json.flag("sound", verification.isSound)
            json.number("bytes", verification.bytes)
            json.number("accepted", accepted)
            json.number("queued", queued)
            json.number("payloads", verification.payloads)
            json.raw("findings", JSONWriter.array(verification.findings.map(JSONEscapes.quoted)))
            if let keptAs { json.string("keptAs", keptAs) }
        }
    }
}
