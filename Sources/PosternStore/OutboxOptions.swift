import Foundation
import PosternCore
public import PosternUpstream

/// The settings of the store: the configuration's `outbox`.
public struct OutboxOptions: Sendable, Equatable {
    /// The values of the setting `engine`.
    public enum Kind: String, Sendable, CaseIterable { case sqlite, postgres }

    /// The database, for the engine `postgres`: the configuration's `outbox.postgres`.
    public var postgres = PostgresOptions() {
        didSet { if kind == .postgres { engine = .postgres(postgres) } }
    }
    /// What the store is kept in.
    public var kind: Kind {
        get { if case .postgres = engine { .postgres } else { .sqlite } }
        set { engine = newValue == .postgres ? .postgres(postgres) : .sqlite }
    }
    /// Relative to the working directory, or absolute.
    public var path = "data/postern.sqlite"
    /// The limit of the payload bytes of all queued messages; 0 means none.
    public var maxBytes = 0
    /// How long the receipt of a delivered message is kept; zero means not at all.
    public var deliveredRetention = Duration.seconds(86_400)
    /// How long the payload of a delivered message is kept, at most as long as its receipt; zero means not at all.
    public var deliveredPayloadRetention = Duration.zero
    /// How long failed, cancelled, dropped and expired messages are kept.
    public var failedRetention = Duration.seconds(2_592_000)
    /// How long a repeat of a request gets the first response.
    public var idempotencyRetention = Duration.seconds(86_400)
    /// The keys that encrypt the credentials that callers hand in.
    public var encryptionKeys = EncryptionKeys()
    /// How far the write-ahead log may grow while a reader keeps it from being reset.
    var maxLogBytes = 1 << 30
    var engine = StoreEngineKind.sqlite
    /// Whether messages that are accepted together may share a row; see `BlockDraft`. Not for an engine without blocks.
    var storesBlocks = true

    public init() {}

    public init(path: String) { self.path = path }

    /// The absolute path, so that an error message does not depend on the working directory.
    public var absolutePath: String { URL(filePath: path).standardizedFileURL.path(percentEncoded: false) }

    /// These options with `absolutePath` as the path, and the name of the node.
    public var located: Self {
        var options = self
        options.path = absolutePath
        options.postgres.node = postgres.nodeName
        return options
    }
}

extension OutboxOptions: SettingsSection {
    public static let fields: [SettingField<Self>] = [
        .choice("engine", \.kind, "What the store is kept in: a file of this machine, or a PostgreSQL database."),
        .text(
            "path", \.path, rule: .nonEmpty,
            "The SQLite file, from the working directory; its directory is created. Not used with `postgres`."),
        .integer("maxBytes", 0...(1 << 50), \.maxBytes, "Size at which writes get 503; 0: no cap."),
        .seconds(
            "deliveredRetentionSeconds", 0...315_360_000, \.deliveredRetention, "How long delivered messages are kept."),
        .seconds(
            "deliveredPayloadSeconds", 0...315_360_000, \.deliveredPayloadRetention,
            "How long the payloads of delivered messages are kept, so that they can be replayed; 0: not at all. Not above "
                + "`deliveredRetentionSeconds`."),
        .seconds(
            "failedRetentionSeconds", 0...315_360_000, \.failedRetention,
            "How long messages that ended in any other way are kept."),
        .seconds(
            "idempotencyRetentionSeconds", 0...315_360_000, \.idempotencyRetention,
            "How long an `Idempotency-Key` is remembered."),
        .key(
            "encryptionKey", \.encryptionKeys.current,
            "64 hexadecimal digits (`openssl rand -hex 32`), the key that encrypts credentials of callers; types that store "
                + "such credentials require it."),
        .keys(
            "previousEncryptionKeys", \.encryptionKeys.previous,
            "Former values of `encryptionKey`, as long as something may be encrypted with them: until the next start, "
                + "or `postern keys rotate-encryption`."),
    ]
}
