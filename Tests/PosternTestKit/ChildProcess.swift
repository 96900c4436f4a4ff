import Foundation
public import Glibc
import PosternCore
import Synchronization

/// A program that was started. Killed when this goes, if it still runs.
///
/// Foundation's `Process` does not do: it reads directory entries beyond their end, and the address sanitizer stops it.
public final class ChildProcess: Sendable {
    public enum Stream: Sendable { case output, errors }

    /// How a process ended, and all it wrote.
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

    public static let patience = Duration.seconds(30)

    public let pid: pid_t
    private let watch = Watch()

    /// What is known of the process; the threads that read and wait hold it, not the `ChildProcess`.
    private final class Watch: Sendable { let state = Mutex(State()) }

    private struct State {
        var texts: [Stream: [UInt8]] = [.output: [], .errors: []]
        /// How far `line` has read.
        var positions: [Stream: Int] = [.output: 0, .errors: 0]
        var openStreams = 2
        /// As `waitpid` gives it.
        var status: Int32?

        var ended: Ended? {
            guard openStreams == 0 else { return nil }
            return status.map { Ended(status: $0, output: texts[.output] ?? [], errors: texts[.errors] ?? []) }
        }
    }

    /// Starts a program with the test's environment without the `POSTERN_` variables, plus `environment`.
    ///
    /// - Parameter parts: written one after the other to its standard input, which ends with the process. Nothing is on
    ///   it if there are none.
    public init(_ command: [String], environment: [String: String] = [:], sending parts: [String] = []) throws {
        let input = parts.isEmpty ? nil : try Pipe()
        let (output, errors) = (try Pipe(), try Pipe())
        pid = try spawn(command, environment: environment, input: input, output: output, errors: errors)
        read(output.reading, as: .output)
        read(errors.reading, as: .errors)
        _ = DedicatedThread(name: "child-wait") { [watch, pid] in
            if let input { for part in parts { write(part, to: input.writing) } }
            // The process stays a zombie, and its number its own, until the state says that it is over.
            var information = siginfo_t()
            while waitid(P_PID, id_t(pid), &information, WEXITED | WNOWAIT) < 0, errno == EINTR {}
            if let input { close(input.writing) }
            watch.state.withLock { state in
                var status: Int32 = 0
                waitpid(pid, &status, 0)
                state.status = status
            }
        }
    }

    deinit { signal(SIGKILL) }

    private func read(_ descriptor: Int32, as stream: Stream) {
        _ = DedicatedThread(name: "child-read") { [watch] in
            var part = [UInt8](repeating: 0, count: 1 << 16)
            while true {
                let count = Glibc.read(descriptor, &part, part.count)
                if count < 0, errno == EINTR { continue }
                guard count > 0 else { break }
                watch.state.withLock { $0.texts[stream]?.append(contentsOf: part[..<count]) }
            }
            close(descriptor)
            watch.state.withLock { $0.openStreams -= 1 }
        }
    }

    /// Runs a program to its end. Blocks.
    public static func run(_ command: [String], sending parts: [String] = []) throws -> Ended {
        let child = try ChildProcess(command, sending: parts)
        _ = eventually(within: .seconds(120)) { child.watch.state.withLock { $0.ended != nil } }
        guard let ended = child.watch.state.withLock({ $0.ended }) else { throw child.failure("end") }
        return ended
    }

    /// Whether a command succeeds on this machine. Blocks.
    public static func succeeds(_ command: [String]) -> Bool { (try? run(command))?.exitCode == 0 }

    /// Sends a signal, if it still runs.
    public func signal(_ number: Int32) {
        watch.state.withLock { if $0.status == nil { kill(pid, number) } }
    }

    /// The next whole line of which `matches` is true; those before it are passed over.
    public func line(
        of stream: Stream = .output, within patience: Duration = patience,
        where matches: @escaping @Sendable (String) -> Bool
    ) async throws -> String {
        try await wait(patience, for: "line") { state in
            let text = state.texts[stream] ?? []
            while let end = text[(state.positions[stream] ?? 0)...].firstIndex(of: UInt8(ascii: "\n")) {
                let line = String(decoding: text[(state.positions[stream] ?? 0)..<end], as: UTF8.self)
                state.positions[stream] = end + 1
                if matches(line) { return line }
            }
            return nil
        }
    }

    /// Waits until it has ended; when it does not in time, it is killed.
    public func end(within patience: Duration = patience) async throws -> Ended {
        do {
            return try await wait(patience, for: "end") { $0.ended }
        } catch {
            signal(SIGKILL)
            throw error
        }
    }

    /// Polls as `eventually` does, and keeps no other test from running meanwhile.
    private func wait<Found: Sendable>(
        _ patience: Duration, for what: String, _ find: @Sendable (inout State) -> Found?
    ) async throws -> Found {
        let end = ContinuousClock.now + patience
        while true {
            let (isOver, found) = watch.state.withLock { ($0.ended != nil, find(&$0)) }
            if let found { return found }
            guard !isOver, ContinuousClock.now < end else { throw failure(what) }
            try await Task.sleep(for: .milliseconds(5))
        }
    }

    private func failure(_ what: String) -> Failure {
        watch.state.withLock { state in
            Failure(
                description: """
                    no such \(what) \(state.ended == nil ? "in time" : "before its end")
                    standard output: \(String(decoding: state.texts[.output] ?? [], as: UTF8.self))
                    standard error: \(String(decoding: state.texts[.errors] ?? [], as: UTF8.self))
                    """)
        }
    }
}

/// Starts a program, closes the program's ends of the pipes here, and returns its number.
private func spawn(
    _ command: [String], environment: [String: String], input: Pipe?, output: Pipe, errors: Pipe
) throws -> pid_t {
    defer { for end in [input?.reading, output.writing, errors.writing].compactMap(\.self) { close(end) } }
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    if let input {
        posix_spawn_file_actions_adddup2(&actions, input.reading, STDIN_FILENO)
    } else {
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
    }
    posix_spawn_file_actions_adddup2(&actions, output.writing, STDOUT_FILENO)
    posix_spawn_file_actions_adddup2(&actions, errors.writing, STDERR_FILENO)
    closeOthers(&actions)
    // The signals that this thread blocks or this process ignores are none of the child's business.
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
        for end in [input?.writing, output.reading, errors.reading].compactMap(\.self) { close(end) }
        throw ChildProcess.Failure(description: "\(command[0]) cannot be started: \(String(cString: strerror(code)))")
    }
    return pid
}

/// Closes every descriptor but the standard ones in the child. Not every library sets `O_CLOEXEC`, and a connection
/// that a child holds as well does not end when its client closes it.
private func closeOthers(_ actions: inout posix_spawn_file_actions_t) {
    typealias Function = @convention(c) (UnsafeMutablePointer<posix_spawn_file_actions_t>, Int32) -> Int32
    // Looked up by name: glibc 2.34 has it, but declares it only with `_GNU_SOURCE`.
    let symbol = dlsym(nil, "posix_spawn_file_actions_addclosefrom_np")
    precondition(symbol != nil, "glibc is older than 2.34")
    _ = unsafeBitCast(symbol, to: Function.self)(&actions, STDERR_FILENO + 1)
}

private struct Pipe {
    let reading: Int32
    let writing: Int32

    init() throws {
        var ends: [Int32] = [0, 0]
        guard pipe(&ends) == 0 else {
            throw ChildProcess.Failure(description: "no pipe: \(String(cString: strerror(errno)))")
        }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        (reading, writing) = (ends[0], ends[1])
    }
}

/// An array of C strings, ended by nil, for the length of the call.
private func withTexts<R>(_ texts: [String], _ body: ([UnsafeMutablePointer<CChar>?]) -> R) -> R {
    let copies = texts.map { strdup($0) }
    defer { for copy in copies { free(copy) } }
    return body(copies + [nil])
}

/// Gives up when the program reads no more. For a thread of its own, which blocks SIGPIPE.
private func write(_ text: String, to descriptor: Int32) {
    var rest = Array(text.utf8)[...]
    while !rest.isEmpty {
        let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
        if count < 0, errno == EINTR { continue }
        guard count > 0 else { return }
        rest = rest.dropFirst(count)
    }
}
