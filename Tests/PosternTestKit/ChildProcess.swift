import Foundation
public import Glibc
import Synchronization

/// A program that was started. Killed when this goes, if it still runs.
///
/// What it writes goes into files, so that no thread has to read it. Foundation's `Process` does not do: it reads
/// directory entries beyond their end, and the address sanitizer stops it.
public final class ChildProcess: Sendable {
    public enum Stream: String, Sendable { case output, errors }

    /// How a process ended, and all its output.
    public struct Ended: Sendable {
        /// Nil when a signal ended it.
        public var exitCode: Int32?
        public var signal: Int32?
        /// Whether the kernel wrote a core dump.
        public var dumpedCore: Bool
        public var output: String
        public var errors: String

        /// - Parameter status: as `waitpid` gives it.
        public init(status: Int32, output: [UInt8], errors: [UInt8]) {
            let number = status & 0x7F
            exitCode = number == 0 ? status >> 8 & 0xFF : nil
            signal = number == 0 ? nil : number
            dumpedCore = status & 0x80 != 0
            self.output = String(decoding: output, as: UTF8.self)
            self.errors = String(decoding: errors, as: UTF8.self)
        }
    }

    public struct Failure: Error, CustomStringConvertible {
        public let description: String
        public init(description: String) { self.description = description }
    }

    public let pid: pid_t
    private let folder: ScratchFolder
    private let state = Mutex(State())

    private struct State {
        /// How far `line` has read.
        var positions: [Stream: Int] = [:]
        /// As `waitpid` gives it; nil until the process has ended and that was noticed.
        var status: Int32?
    }

    /// Starts a program with the test's environment without the `POSTERN_` variables, plus `environment`.
    ///
    /// - Parameters:
    ///   - input: what it reads from its standard input.
    ///   - descriptor: what is its descriptor 3, of this process; nil for none.
    ///   - folder: where the files are that are its standard streams.
    public init(
        _ command: [String], environment: [String: String] = [:], sending input: String = "",
        passing descriptor: Int32? = nil, in folder: ScratchFolder = ScratchFolder()
    ) throws {
        self.folder = folder
        try input.write(toFile: folder.file("input"), atomically: false, encoding: .utf8)
        pid = try spawn(command, environment: environment, in: folder, passing: descriptor)
    }

    deinit {
        signal(SIGKILL)
        state.withLock { if $0.status == nil { waitpid(pid, nil, 0) } }
    }

    /// Whether it has ended.
    public var hasEnded: Bool { status != nil }

    private var status: Int32? {
        state.withLock { state in
            var status: Int32 = 0
            // Until this call a process that has ended is a zombie, and its number its own.
            if state.status == nil, waitpid(pid, &status, WNOHANG) == pid { state.status = status }
            return state.status
        }
    }

    /// Nil while it runs.
    private var ended: Ended? {
        status.map { Ended(status: $0, output: bytes(of: .output), errors: bytes(of: .errors)) }
    }

    /// Its output without the first `count` bytes.
    private func bytes(of stream: Stream, from position: Int = 0) -> [UInt8] {
        let file = FileHandle(forReadingAtPath: folder.file(stream.rawValue))
        try? file?.seek(toOffset: UInt64(position))
        return Array((try? file?.readToEnd()) ?? Data())
    }

    /// Runs a program to its end. Blocks.
    public static func run(_ command: [String], sending input: String = "") throws -> Ended {
        let child = try ChildProcess(command, sending: input)
        _ = eventually { child.ended != nil }
        guard let ended = child.ended else { throw child.failure("end") }
        return ended
    }

    /// Whether a command succeeds on this machine. Blocks.
    public static func succeeds(_ command: [String]) -> Bool { (try? run(command))?.exitCode == 0 }

    /// Sends a signal, if it still runs.
    public func signal(_ number: Int32) {
        state.withLock { if $0.status == nil { kill(pid, number) } }
    }

    /// The next whole line of which `matches` is true; those before it are passed over.
    public func line(
        of stream: Stream = .output, where matches: @escaping @Sendable (String) -> Bool
    ) async throws -> String {
        try await wait(for: "line") {
            state.withLock { state in
                let position = state.positions[stream] ?? 0
                var rest = bytes(of: stream, from: position)[...]
                while let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
                    let line = String(decoding: rest[..<end], as: UTF8.self)
                    rest = rest[(end + 1)...]
                    state.positions[stream] = position + rest.startIndex
                    if matches(line) { return line }
                }
                return nil
            }
        }
    }

    /// Waits until it has ended; when it does not in time, it is killed.
    public func end() async throws -> Ended {
        do {
            return try await wait(for: "end") { ended }
        } catch {
            signal(SIGKILL)
            throw error
        }
    }

    /// Polls as `eventually` does, and keeps no other test from running meanwhile.
    private func wait<Found: Sendable>(for what: String, _ find: () -> Found?) async throws -> Found {
        let end = ContinuousClock.now + longestWait
        while true {
            let isOver = ended != nil
            if let found = find() { return found }
            guard !isOver, ContinuousClock.now < end else { throw failure(what) }
            try await Task.sleep(for: .milliseconds(5))
        }
    }

    private func failure(_ what: String) -> Failure {
        Failure(
            description: """
                no such \(what) \(ended == nil ? "in time" : "before its end")
                standard output: \(String(decoding: bytes(of: .output), as: UTF8.self))
                standard error: \(String(decoding: bytes(of: .errors), as: UTF8.self))
                """)
    }
}

/// Starts a program whose standard streams are files of `folder`, and returns its number.
private func spawn(
    _ command: [String], environment: [String: String], in folder: ScratchFolder, passing descriptor: Int32?
) throws -> pid_t {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, folder.file("input"), O_RDONLY, 0)
    for (descriptor, stream) in [(STDOUT_FILENO, ChildProcess.Stream.output), (STDERR_FILENO, .errors)] {
        let file = folder.file(stream.rawValue)
        posix_spawn_file_actions_addopen(&actions, descriptor, file, O_WRONLY | O_CREAT | O_APPEND, 0o600)
    }
    let next = STDERR_FILENO + 1
    if let descriptor { posix_spawn_file_actions_adddup2(&actions, descriptor, next) }
    close(&actions, from: descriptor == nil ? next : next + 1)
    // The child must not inherit the signals that this thread blocks or this process ignores.
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    var signals = sigset_t()
    sigemptyset(&signals)
    posix_spawnattr_setsigmask(&attributes, &signals)
    sigaddset(&signals, SIGPIPE)
    posix_spawnattr_setsigdefault(&attributes, &signals)
    posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF))

    let inherited = ProcessInfo.processInfo.environment.filter { !$0.key.hasPrefix("POSTERN_") }
    let variables = inherited.merging(environment) { $1 }.map { "\($0.key)=\($0.value)" }
    var pid: pid_t = 0
    let code = withTexts(command) { arguments in
        withTexts(variables) { posix_spawn(&pid, command[0], &actions, &attributes, arguments, $0) }
    }
    guard code == 0 else {
        throw ChildProcess.Failure(description: "\(command[0]) cannot be started: \(String(cString: strerror(code)))")
    }
    return pid
}

/// Closes every descriptor from that one on in the child. Not every library sets `O_CLOEXEC`, and a connection
/// that a child holds as well does not end when its client closes it.
private func close(_ actions: inout posix_spawn_file_actions_t, from first: Int32) {
    typealias Function = @convention(c) (UnsafeMutablePointer<posix_spawn_file_actions_t>, Int32) -> Int32
    // Looked up by name: glibc 2.34 has it, but declares it only with `_GNU_SOURCE`.
    let symbol = dlsym(nil, "posix_spawn_file_actions_addclosefrom_np")
    precondition(symbol != nil, "glibc is older than 2.34")
    _ = unsafeBitCast(symbol, to: Function.self)(&actions, first)
}

/// An array of C strings, ended by nil, for the length of the call.
private func withTexts<R>(_ texts: [String], _ body: ([UnsafeMutablePointer<CChar>?]) -> R) -> R {
    let copies = texts.map { strdup($0) }
    defer { for copy in copies { free(copy) } }
    return body(copies + [nil])
}
