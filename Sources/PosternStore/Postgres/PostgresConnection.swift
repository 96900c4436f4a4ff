import CPostgres
import Glibc
import PosternCore
import PosternUpstream

/// A connection to PostgreSQL, by libpq. Not for two threads at once.
///
/// Statements that were prepared run in libpq's pipeline mode. `send` does not wait for a result; the next call that
/// waits sends a synchronization point and reads all results. If a statement fails, the server skips those after it, up
/// to that point, and the call throws the first error. Outside `BEGIN` and `COMMIT`, what is sent up to that point is
/// one transaction.
///
/// Once the connection is lost, each call throws an error with `isConnectionLost`, and a new connection is needed.
final class PostgresConnection {
    /// Nil once the connection is lost or closed.
    private var handle: OpaquePointer?
    private let mask: SecretMask
    /// What `send` has sent and no call has waited for.
    private var (unanswered, unansweredBytes) = (0, 0)

    /// The number of the server's process.
    let backendPID: Int32
    /// The version of the server, e.g. 150004 for 15.4.
    let serverVersion: Int
    /// The longest wait for an answer; nil: no limit. After it the connection is lost, although the server may still run
    /// the statement.
    var patience: Duration?
    /// Whether the server sent a warning during the latest call that waited, as it does if a `COMMIT` stops waiting for
    /// a standby: the transaction is committed, and may be missing after a failover.
    private(set) var warnedOfReplication = false

    /// The limits of what `send` leaves unanswered.
    private static let (maxUnanswered, maxUnansweredBytes) = (256, 1 << 20)

    /// Connects to the first host that is available and accepts writes, and sets what the store needs. Blocks.
    ///
    /// - Parameter connectTimeout: The limit for each host, without the time in which its name is looked up.
    init(_ options: PostgresOptions, connectTimeout: Duration = .seconds(5)) throws(PostgresError) {
        let parameters = try PostgresParameters(options)
        mask = SecretMask(parameters.secrets)
        var found: OpaquePointer?
        var failures: [String] = []
        for host in parameters.hosts where found == nil {
            do {
                found = try Self.connect(host, within: connectTimeout, masking: mask)
            } catch {
                failures.append(error.message)
            }
        }
        handle = found
        backendPID = PQbackendPID(found)
        serverVersion = Int(PQserverVersion(found))
        guard found != nil else {
            throw PostgresError(message: failures.joined(separator: "; "), isConnectionLost: true)
        }
        PQsetNoticeReceiver(found, noteNotice, Unmanaged.passUnretained(self).toOpaque())
        patience = connectTimeout
        // Every statement is meant to use an index. Without these two, one that was prepared while a table was small may read
        // all of it, however large it is by now.
        try execute(
            """
            SET enable_seqscan = off; SET jit = off;
            SET synchronous_commit = on; SET lock_timeout = '2s'; SET idle_in_transaction_session_timeout = '5s';
            SET statement_timeout = 0; SET search_path TO "\(options.schema.replacing("\"", with: "\"\""))"
            """)
        patience = nil
    }

    deinit { close() }

    /// Closes the connection. The server rolls back an open transaction.
    func close() {
        PQfinish(handle)
        handle = nil
    }

    /// Whether the connection is lost or closed.
    var isLost: Bool { handle == nil || PQstatus(handle) == CONNECTION_BAD }

    /// Whether a transaction has begun and not ended, including a failed one. Also true while statements are
    /// unanswered.
    var isInTransaction: Bool { ![PQTRANS_IDLE, PQTRANS_UNKNOWN].contains(PQtransactionStatus(handle)) }

    // MARK: Statements

    /// Prepares a statement, after waiting for what was sent.
    ///
    /// - Parameter types: The object identifiers of its parameters; see `PostgresValues.types`.
    func prepare(_ name: String, _ text: String, types: [UInt32]) throws(PostgresError) {
        try beginPipeline()
        guard PQsendPrepare(handle, name, text, Int32(types.count), types) == 1 else { throw lost() }
        _ = try endPipeline()
    }

    /// Runs a prepared statement, and waits for it and for what was sent.
    func run(_ name: String, _ values: borrowing PostgresValues) throws(PostgresError) -> PostgresResult {
        try begin(name, values)
        return try endPipeline()
    }

    /// Runs a prepared statement without waiting for it, unless much is unanswered: 256 statements, or 1 MiB of values.
    /// Its error is thrown by the next call that waits.
    func send(_ name: String, _ values: borrowing PostgresValues) throws(PostgresError) {
        try begin(name, values)
        try didSend(values)
    }

    private func didSend(_ values: borrowing PostgresValues) throws(PostgresError) {
        unanswered += 1
        unansweredBytes += values.size
        if unanswered >= Self.maxUnanswered || unansweredBytes >= Self.maxUnansweredBytes { try flush() }
    }

    /// Whether the server has said something since the last answer: that it ends the connection.
    var isStale: Bool { isLost || Self.wait(for: POLLIN, on: PQsocket(handle), until: .distantPast) }

    /// Has the server begin what was sent, without waiting for it.
    func push() throws(PostgresError) {
        if handle == nil || PQflush(handle) < 0 { throw lost() }
    }

    /// Waits for what was sent.
    func flush() throws(PostgresError) {
        if unanswered > 0 { _ = try endPipeline() }
    }

    /// Runs statements without parameters, separated by semicolons, after waiting for what was sent. Returns the result
    /// of the last one, with all values as text.
    @discardableResult func execute(_ text: String) throws(PostgresError) -> PostgresResult {
        try flush()
        guard handle != nil, PQsendQuery(handle, text) == 1 else { throw lost() }
        return try results(upToSynchronization: false)
    }

    /// Runs a statement that is not prepared, and waits for it and for what was sent.
    func query(_ text: String, _ values: borrowing PostgresValues) throws(PostgresError) -> PostgresResult {
        try begin(text: text, values)
        return try endPipeline()
    }

    /// As `send`, for a statement that is not prepared.
    func sendQuery(_ text: String, _ values: borrowing PostgresValues) throws(PostgresError) {
        try begin(text: text, values)
        try didSend(values)
    }

    /// Runs a `COPY … FROM STDIN`, waits for it and for what was sent, and returns how many rows were stored.
    ///
    /// - Parameter body: Passes the bytes of the rows to its parameter, in parts of any size. If it throws, nothing is stored.
    func copy(_ text: String, _ body: (_ send: ([UInt8]) throws -> Void) throws -> Void) throws -> Int {
        try flush()
        guard handle != nil, PQsendQuery(handle, text) == 1 else { throw lost() }
        try waitForResult(until: .distantFuture)
        guard let begun = PQgetResult(handle) else { throw lost() }
        let failure =
            PQresultStatus(begun) == PGRES_COPY_IN ? nil : PostgresError(result: begun, masking: mask)
        PQclear(begun)
        if let failure {
            // What follows the error is of no interest.
            _ = try? results(upToSynchronization: false)
            throw failure
        }
        do {
            try body(sendCopy)
        } catch {
            if handle != nil, PQputCopyEnd(handle, "the sender has failed") == 1 {
                _ = try? results(upToSynchronization: false)
            }
            throw error
        }
        guard PQputCopyEnd(handle, nil) == 1 else { throw lost() }
        return try results(upToSynchronization: false).changedRows
    }

    private func sendCopy(_ bytes: [UInt8]) throws(PostgresError) {
        let isTaken = bytes.withUnsafeBytes { bytes in
            PQputCopyData(handle, bytes.bindMemory(to: CChar.self).baseAddress, Int32(bytes.count)) == 1
        }
        // The server has ended it, and said why.
        if !isTaken, handle != nil { _ = try results(upToSynchronization: false) }
        guard isTaken else { throw lost() }
        while true {
            let unsent = PQflush(handle)
            if unsent == 0 { return }
            if unsent < 0 { throw lost() }
            _ = Self.wait(for: POLLIN | POLLOUT, on: PQsocket(handle), until: .distantFuture)
            if PQconsumeInput(handle) == 0 { throw lost() }
        }
    }

    private func begin(text: String, _ values: borrowing PostgresValues) throws(PostgresError) {
        try beginPipeline()
        let isSent = values.withPointers { PQsendQueryParams(handle, text, $0, values.types, $1, $2, $3, 1) == 1 }
        if !isSent { throw lost() }
    }

    private func begin(_ name: String, _ values: borrowing PostgresValues) throws(PostgresError) {
        try beginPipeline()
        let isSent = values.withPointers { PQsendQueryPrepared(handle, name, $0, $1, $2, $3, 1) == 1 }
        if !isSent { throw lost() }
    }

    private func beginPipeline() throws(PostgresError) {
        guard handle != nil, PQenterPipelineMode(handle) == 1 else { throw lost() }
    }

    private func endPipeline() throws(PostgresError) -> PostgresResult {
        (unanswered, unansweredBytes) = (0, 0)
        guard PQpipelineSync(handle) == 1 else { throw lost() }
        defer { if handle != nil, PQexitPipelineMode(handle) == 0 { close() } }
        return try results(upToSynchronization: true)
    }

    // MARK: Results

    /// Reads all results. Returns the last one.
    private func results(upToSynchronization isPipeline: Bool) throws(PostgresError) -> PostgresResult {
        warnedOfReplication = false
        let deadline = patience.map { SystemTime().instant + $0 } ?? .distantFuture
        var last: PostgresResult?
        var failure: PostgresError?
        do throws(PostgresError) {
            var (found, former) = (Found.result, Found.result)
            while found != (isPipeline ? .synchronization : .nothing) {
                (former, found) = (found, try read(until: deadline, &last, &failure))
                if former == .nothing, found == .nothing { throw lost("the server sent no more results") }
            }
        } catch {
            // The server may have said why it ends the connection.
            failure = failure ?? error
        }
        if PQstatus(handle) == CONNECTION_BAD {
            close()
            failure?.isConnectionLost = true
        }
        if let failure { throw failure }
        guard let last else { throw lost("the server returned no result") }
        return last
    }

    private enum Found { case result, nothing, synchronization }

    /// Reads a result; `nothing` comes after the last one of a statement.
    private func read(
        until deadline: MonotonicInstant, _ last: inout PostgresResult?, _ failure: inout PostgresError?
    ) throws(PostgresError) -> Found {
        try waitForResult(until: deadline)
        guard let result = PQgetResult(handle) else {
            // After a loss, nothing comes any more.
            if PQstatus(handle) == CONNECTION_BAD { throw lost() }
            return .nothing
        }
        let status = PQresultStatus(result)
        switch status {
        case PGRES_COMMAND_OK, PGRES_TUPLES_OK, PGRES_EMPTY_QUERY:
            last = PostgresResult(result)
            return .result
        case PGRES_FATAL_ERROR: failure = failure ?? PostgresError(result: result, masking: mask)
        case PGRES_PIPELINE_ABORTED, PGRES_PIPELINE_SYNC: break
        default: throw lost("the server answered with \(String(cString: PQresStatus(status)))")
        }
        PQclear(result)
        return status == PGRES_PIPELINE_SYNC ? .synchronization : .result
    }

    /// Sends what is left to send, and waits until there is a result.
    private func waitForResult(until deadline: MonotonicInstant) throws(PostgresError) {
        while true {
            let unsent = PQflush(handle)
            if unsent < 0 { throw lost() }
            if PQisBusy(handle) == 0 { return }
            // libpq 15 may have decrypted bytes that a poll does not show.
            let turn = PQsslInUse(handle) == 1 ? min(deadline, SystemTime().instant + .milliseconds(20)) : deadline
            let isReady = Self.wait(for: unsent == 0 ? POLLIN : POLLIN | POLLOUT, on: PQsocket(handle), until: turn)
            if !isReady, turn == deadline { throw lost("no answer within \(patience ?? .zero)") }
            if PQconsumeInput(handle) == 0 { throw lost() }
        }
    }

    /// Closes the connection and returns the error.
    private func lost(_ message: String? = nil) -> PostgresError {
        defer { close() }
        if let message { return PostgresError(message: message, isConnectionLost: true) }
        if handle == nil { return PostgresError(message: "the connection is closed", isConnectionLost: true) }
        return PostgresError(connection: handle, masking: mask)
    }

    fileprivate func noteWarning() { warnedOfReplication = true }

    // MARK: Connecting

    private static func connect(
        _ values: [String: String], within timeout: Duration, masking mask: SecretMask
    ) throws(PostgresError) -> OpaquePointer {
        let handle = withTexts(Array(values.keys)) { keywords in
            withTexts(Array(values.values)) { PQconnectStartParams(keywords, $0, 0) }
        }
        // Until there is a receiver, libpq writes notices to the standard error.
        PQsetNoticeReceiver(handle, { _, _ in }, nil)
        var error: PostgresError?
        do throws(PostgresError) { try finishConnecting(handle, within: timeout) } catch let failure { error = failure }
        guard let handle, error == nil, PQstatus(handle) == CONNECTION_OK, PQsetnonblocking(handle, 1) == 0 else {
            defer { PQfinish(handle) }
            throw error ?? PostgresError(connection: handle, masking: mask)
        }
        return handle
    }

    /// Returns when the connection is made or has failed.
    private static func finishConnecting(_ handle: OpaquePointer?, within timeout: Duration) throws(PostgresError) {
        let deadline = SystemTime().instant + timeout
        var state = PGRES_POLLING_WRITING
        while PQstatus(handle) != CONNECTION_BAD, state == PGRES_POLLING_WRITING || state == PGRES_POLLING_READING {
            let events = state == PGRES_POLLING_WRITING ? POLLOUT : POLLIN
            guard wait(for: events, on: PQsocket(handle), until: deadline) else {
                let host = String(cString: PQhost(handle))
                throw PostgresError(message: "no connection to \(host) within \(timeout)", isConnectionLost: true)
            }
            state = PQconnectPoll(handle)
        }
    }

    /// Waits until the socket is ready. Returns false at the deadline.
    private static func wait(for events: Int32, on socket: Int32, until deadline: MonotonicInstant) -> Bool {
        while true {
            var ready = pollfd(fd: socket, events: Int16(events), revents: 0)
            let left = deadline == .distantFuture ? -1 : (deadline - SystemTime().instant).pollMilliseconds
            let count = poll(&ready, 1, left)
            if count >= 0 || errno != EINTR { return count != 0 }
        }
    }
}

/// Notes a warning that concerns the durability of a commit; other notices are ignored. Such a warning has the code
/// 01000 if the wait was cancelled, and 57P01 if the session is being ended.
private func noteNotice(_ context: UnsafeMutableRawPointer?, _ result: OpaquePointer?) {
    guard let context, let severity = PQresultErrorField(result, POSTERN_PG_SEVERITY),
        let state = PQresultErrorField(result, POSTERN_PG_STATE), String(cString: severity) == "WARNING",
        ["01000", "57P01"].contains(String(cString: state))
    else { return }
    Unmanaged<PostgresConnection>.fromOpaque(context).takeUnretainedValue().noteWarning()
}

/// An array of C strings, ended by nil, for the length of the call.
private func withTexts<R>(_ texts: [String], _ body: ([UnsafePointer<CChar>?]) -> R) -> R {
    let copies = texts.map { strdup($0) }
    defer { for copy in copies { free(copy) } }
    return body(copies.map { UnsafePointer($0) } + [nil])
}
