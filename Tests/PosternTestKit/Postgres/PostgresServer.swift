import Foundation
import Glibc
import Synchronization

/// A PostgreSQL server in a folder of its own, with a socket in that folder and no port. It is ended, and its folder
/// removed, with the last reference or with this process, even if that is killed.
///
/// It needs Debian's package postgresql-15 or a later one. If this process is root's, the server is the user postgres.
/// Nothing of it is synced to the disk.
public final class PostgresServer: Sendable {
    public struct Failure: Error, CustomStringConvertible {
        public let description: String
    }

    /// The server for all tests of this process that need no other settings. The first call starts it, and blocks
    /// meanwhile.
    public static func shared() throws -> PostgresServer { try started.get() }
    private static let started = Result { try PostgresServer() }

    /// A user who has to give a password. A test creates it.
    public static let userWithPassword = "checked"

    public let folder: String
    /// The database, for the superuser postgres.
    public var url: String { Self.url(host: "", parameter: "host=\(folder)") }
    public var socket: String { "\(folder)/.s.PGSQL.5432" }

    private let process: ChildProcess
    /// The server runs as long as this process has this end of a connection open.
    private let lifeline: Int32
    private let schemas = Atomic(0)

    /// Starts a server. Blocks.
    ///
    /// - Parameters:
    ///   - settings: Such as `max_wal_senders=1`, in addition to those that all tests use.
    ///   - certificate: If not nil, the server also accepts connections by TLS, on the loopback address `address`.
    public init(settings: [String] = [], certificate: TestCertificate? = nil) throws {
        let folder = try Self.makeFolder()
        self.folder = folder
        let bin = try Self.findPrograms()
        let isRoot = geteuid() == 0
        let user = isRoot ? ["--reuid=postgres", "--regid=postgres", "--clear-groups"] : []
        let made = try ChildProcess.run(
            Self.inFolder(folder, ["/usr/bin/setpriv"] + user + ["--no-new-privs", "\(bin)/initdb"])
                + ["-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"])
        guard made.exitCode == 0 else { throw Failure(description: "initdb failed: \(made.errors)\(made.output)") }
        try "local all \(Self.userWithPassword) scram-sha-256\nlocal all all trust\nhostssl all all 127.0.0.0/8 trust\n"
            .write(toFile: "\(folder)/data/pg_hba.conf", atomically: false, encoding: .utf8)
        let tls = try certificate.map { try Self.listen(with: $0, in: folder) } ?? []

        var ends: [Int32] = [0, 0]
        socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0, &ends)
        lifeline = ends[0]
        defer { close(ends[1]) }
        let options = (Self.settings + ["unix_socket_directories=\(folder)"] + tls + settings).flatMap { ["-c", $0] }
        let streams = ScratchFolder()
        process = try ChildProcess(
            ["/bin/sh", "-c", Self.script, streams.path, folder, "/usr/bin/setpriv"] + user
                + ["--pdeathsig=QUIT", "\(bin)/postgres", "-D", "data", "-p", "5432"] + options,
            passing: ends[1], in: streams)
        let state = { (try? String(contentsOfFile: "\(folder)/data/postmaster.pid", encoding: .utf8)) ?? "" }
        let isReady = eventually { process.hasEnded || state().contains("ready") }
        guard isReady, !process.hasEnded else {
            let log = try? String(contentsOfFile: streams.file("errors"), encoding: .utf8)
            throw Failure(description: "PostgreSQL does not start: \(log ?? "")")
        }
    }

    deinit {
        close(lifeline)
        _ = eventually { process.hasEnded }
    }

    /// Where a server with a certificate listens, on PostgreSQL's port. No other process uses it.
    public static let address = "127.\(64 + getpid() >> 16 & 63).\(getpid() >> 8 & 255).\(getpid() & 255)"

    /// The settings for that.
    private static func listen(with certificate: TestCertificate, in folder: String) throws -> [String] {
        let copies = [("\(folder)/server.crt", certificate.certificate), ("\(folder)/server.key", certificate.key)]
        for (copy, file) in copies {
            try FileManager.default.copyItem(atPath: file, toPath: copy)
            // The server refuses a key that other users could read.
            chmod(copy, 0o600)
            if geteuid() == 0, let user = getpwnam("postgres") { chown(copy, user.pointee.pw_uid, user.pointee.pw_gid) }
        }
        return ["listen_addresses=\(address)", "ssl=on"]
            + zip(["ssl_cert_file", "ssl_key_file"], copies).map { "\($0)=\($1.0)" }
    }

    /// The name of a schema that no other test uses. It does not exist yet.
    public func schema() -> String { "test\(schemas.add(1, ordering: .relaxed).newValue)" }

    /// Accepts connections at a port of the loopback address, and may disturb them.
    public func proxy() throws -> PostgresProxy { try PostgresProxy(to: socket) }

    static func url(host: String, parameter: String) -> String {
        "postgresql://postgres@\(host)/postgres?\(parameter)"
    }

    private static let settings = [
        "listen_addresses=", "max_connections=200", "shared_buffers=32MB", "fsync=off", "full_page_writes=off",
        "wal_level=minimal", "max_wal_senders=0", "autovacuum=off", "jit=off", "timezone=UTC",
    ]

    /// Runs the server until the other end of descriptor 3 is closed, and removes its folder. If the shell is killed,
    /// the server is ended by the signal that `setpriv` has set.
    private static let script = """
        trap '' INT TERM
        streams=$0 folder=$1; shift
        cd "$folder" || exit 1
        "$@" >log 2>&1 3<&- &
        server=$!
        # At first the server ignores the signal, as what a shell starts in the background does.
        { read -r _ <&3; : >released; while kill -QUIT $server; do sleep 0.1; done; } 2>/dev/null &
        wait $server
        cat log >&2
        [ ! -e released ] || rm -rf "$streams"
        rm -rf "$folder"
        """

    private static func inFolder(_ folder: String, _ command: [String]) -> [String] {
        ["/bin/sh", "-c", "cd \"$0\" && exec \"$@\"", folder] + command
    }

    /// Short, because the path of a socket may have 107 bytes, and readable for the user postgres.
    private static func makeFolder() throws -> String {
        var path = Array("/tmp/postern-postgres-XXXXXX".utf8CString)
        guard mkdtemp(&path) != nil else { throw Failure(description: "there is no folder /tmp that can be written") }
        let folder = String(decoding: path.dropLast().map(UInt8.init(bitPattern:)), as: UTF8.self)
        guard geteuid() == 0 else { return folder }
        guard let user = getpwnam("postgres") else { throw missing }
        chown(folder, user.pointee.pw_uid, user.pointee.pw_gid)
        return folder
    }

    private static func findPrograms() throws -> String {
        let folder = "/usr/lib/postgresql"
        let versions = (try? FileManager.default.contentsOfDirectory(atPath: folder))?.compactMap(Int.init) ?? []
        guard let newest = versions.max(), access("\(folder)/\(newest)/bin/postgres", X_OK) == 0 else { throw missing }
        return "\(folder)/\(newest)/bin"
    }

    private static let missing = Failure(
        description: "there is no PostgreSQL server; install postgresql-15, or run "
            + "scripts/install-dependencies.sh --postgres")
}
