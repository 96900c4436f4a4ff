import Logging
import PosternCore
public import PosternGateway
import PosternMetrics
public import PosternStore
import PosternThreads

/// `postern keys rotate-encryption`: encrypts every stored credential with the current key. The gateway does the same
/// when it starts; this command is for a store that no gateway is using.
public enum KeyRotation {
    /// Throws if a gateway is using the store, or if the configuration has no current key.
    public static func run(_ loader: ConfigurationLoader) throws(CommandFailure) -> KeyRotationReport {
        let settings = try loader.outbox()
        guard settings.encryptionKeys.current != nil else {
            throw CommandFailure(
                CheckReport.configurationError,
                "outbox.encryptionKey is empty; put the new key there, and the old one under "
                    + "outbox.previousEncryptionKeys.")
        }
        guard settings.kind == .sqlite else {
            throw CommandFailure(
                CommandFailure.usage,
                "The store is in PostgreSQL. Restart its gateways with this configuration: they "
                    + "encrypt the credentials with the current key.")
        }
        try settings.requireFile()
        return try onStore { () throws(StoreError) in
            let outbox = try Outbox(
                settings, time: SystemTime(), threads: DedicatedThreads(), metrics: Metrics(),
                logger: Logger(label: "postern.keys"))
            defer { outbox.close() }
            return outbox.keyRotation
        }
    }

    /// The result as text for people.
    public static func text(_ result: KeyRotationReport) -> String {
        var lines = ["\(result.resealed) encrypted again, \(result.current) had the current key already"]
        if result.unreadable > 0 {
            lines.append(
                "\(result.unreadable) cannot be read with any configured key; their messages wait for new credentials")
        } else {
            lines.append("outbox.previousEncryptionKeys can be emptied now")
        }
        return lines.joined(separator: "\n")
    }

    /// The result as JSON for programs.
    public static func json(_ result: KeyRotationReport) -> String {
        JSONWriter.object { json in
            json.number("resealed", result.resealed)
            json.number("current", result.current)
            json.number("unreadable", result.unreadable)
        }
    }
}
