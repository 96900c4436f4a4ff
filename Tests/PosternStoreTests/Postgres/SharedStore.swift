import Foundation
import Logging
import PosternTestKit
import PosternThreads
import Testing

@testable import PosternStore

/// A schema of the test server, and the nodes that share it.
struct SharedStore: Sendable {
    let server: PostgresServer
    let schema: String

    init() throws {
        server = try PostgresServer.shared()
        schema = server.schema()
    }

    func options(
        _ node: String = "a", lease: Double = 60, timeout: Double = 5, through proxy: PostgresProxy? = nil
    ) -> PostgresOptions {
        // Other tests use the server, too.
        var options = PostgresOptions(url: "\(proxy?.url ?? server.url)&application_name=\(schema)")
        (options.schema, options.node, options.leaseSeconds, options.commitTimeoutSeconds) = (
            schema, node, lease, timeout
        )
        options.acceptsUnsafeServer = true
        return options
    }

    /// Opens the store as the node that keeps it, once no other one does.
    func open(_ options: PostgresOptions, keys: EncryptionKeys = EncryptionKeys()) throws -> TestStore {
        try TestStore { ($0.engine, $0.encryptionKeys) = (.postgres(options), keys) }
    }

    /// Joins the nodes of the store, and opens it.
    func join(
        _ options: PostgresOptions, keys: EncryptionKeys = EncryptionKeys()
    ) throws -> (store: TestStore, lease: StoreLease) {
        var outbox = OutboxOptions()
        outbox.engine = .postgres(options)
        let joined = try StoreLease.join(
            outbox, threads: DedicatedThreads(), logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        guard let joined, eventually({ joined.hasJoined }) else { throw StoreError.closed }
        let store = try TestStore(lease: joined) { ($0.engine, $0.encryptionKeys) = (.postgres(options), keys) }
        return (store, joined)
    }

    /// Joins the nodes of the store, and waits until this one keeps it.
    func wait(
        _ options: PostgresOptions, isCancelled: () -> Bool = { false }, onWaiting: (String?) -> Void = { _ in }
    ) throws -> StoreLease? {
        var outbox = OutboxOptions()
        outbox.engine = .postgres(options)
        return try StoreLease.wait(
            outbox, threads: DedicatedThreads(), logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
            isCancelled: isCancelled, onWaiting: onWaiting)
    }

    /// A connection past the nodes, which may hold a transaction open.
    func connect() throws -> SQL {
        let connection = try PostgresConnection(options())
        try connection.execute("SET idle_in_transaction_session_timeout = 0")
        return SQL(postgres: connection)
    }

    /// Runs statements past the nodes. Returns the number in the first column of the first row.
    @discardableResult func run(_ text: String) throws -> Int {
        let connection = try PostgresConnection(options())
        defer { connection.close() }
        let result = try connection.execute(text)
        return result.rowCount > 0 ? Int(String(decoding: result.bytes(0, 0), as: UTF8.self)) ?? -1 : -1
    }

    /// How many statements wait for a lock.
    var blocked: Int {
        let blocked =
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = '\(schema)' AND wait_event_type = 'Lock'"
        return (try? run(blocked)) ?? 0
    }

    var isBlocked: Bool { blocked > 0 }

    /// Ends the sessions whose last statement was a commit.
    func terminateSessions() throws {
        try run(
            """
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE application_name = '\(schema)' AND query = 'COMMIT' AND pid <> pg_backend_pid()
            """)
    }
}

/// Runs `body` on another thread.
func inBackground<Value: Sendable>(_ body: @escaping @Sendable () throws -> Value) -> SharedValue<
    Result<Value, any Error>?
> {
    let result = SharedValue<Result<Value, any Error>?>(nil)
    Thread.detachNewThread { result.set(Result { try body() }) }
    return result
}

/// What another thread hands over, which it may do after what it did is seen elsewhere.
func awaited<Value, Failure: Error>(_ result: SharedValue<Result<Value, Failure>?>) throws -> Value {
    _ = eventually { result.value != nil }
    return try #require(result.value).get()
}
