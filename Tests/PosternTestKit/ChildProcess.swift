import Foundation
public import Glibc
import PosternCore
import Synchronization

/// A program that was started, and our ends of its pipes, which the caller closes.
///
/// Foundation's `Process` does not do: it reads directory entries beyond their end, and the address sanitizer stops it.
public struct ChildProcess: Sendable {
    public let pid: pid_t
    /// Nil if nothing is on its standard input.
    public let input: Int32?
    public let output: Int32
    public let errors: Int32

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

    /// Runs a program to its end. Blocks.
    ///
    /// - Parameter parts: written one after the other to its standard input, which ends with the process. Nothing is on
    ///   it if there are none.
    public static func run(_ command: [String], sending parts: [String] = []) throws -> Ended {
        let child = try start(command, hasInput: !parts.isEmpty)
        let errors = SharedValue<[UInt8]>([])
        // On threads of their own: the program may write before it has read everything, and to both pipes.
        var threads = [DedicatedThread(name: "child-errors") { errors.set(readToEnd(child.errors)) }]
        if let input = child.input {
            threads.append(DedicatedThread(name: "child-input") { for part in parts { write(part, to: input) } })
        }
        let output = readToEnd(child.output)
        let status = child.wait()
        for thread in threads { thread.join() }
        for descriptor in [child.input, child.output, child.errors].compactMap(\.self) { close(descriptor) }
        return Ended(status: status, output: output, errors: errors.value)
    }

    /// Whether a command succeeds on this machine. Blocks.
    public static func succeeds(_ command: [String]) -> Bool { (try? run(command))?.exitCode == 0 }

    /// Waits until the process has ended, and returns what `waitpid` gives. Call once.
    public func wait() -> Int32 {
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0, errno == EINTR {}
        return status
    }

    /// One at a time: a child started while another's pipes are made would inherit them and keep them open.
    private static let starting = Mutex(())

    /// Starts a program with the test's environment without the `POSTERN_` variables, plus `environment`.
    public static func start(
        _ command: [String], environment: [String: String] = [:], hasInput: Bool = false
    ) throws -> ChildProcess {
        try starting.withLock { _ in
            let input = hasInput ? try Pipe() : nil
            let (output, errors) = (try Pipe(), try Pipe())
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
                throw Failure(description: "\(command[0]) cannot be started: \(String(cString: strerror(code)))")
            }
            return ChildProcess(pid: pid, input: input?.writing, output: output.reading, errors: errors.reading)
        }
    }

    /// Closes every descriptor but the standard ones in the child. Not every library sets `O_CLOEXEC`, and a connection
    /// that a child holds as well does not end when its client closes it.
    private static func closeOthers(_ actions: inout posix_spawn_file_actions_t) {
        typealias Function = @convention(c) (UnsafeMutablePointer<posix_spawn_file_actions_t>, Int32) -> Int32
        // Looked up by name: glibc 2.34 has it, but declares it only with `_GNU_SOURCE`.
        let symbol = dlsym(nil, "posix_spawn_file_actions_addclosefrom_np")
        precondition(symbol != nil, "glibc is older than 2.34")
        _ = unsafeBitCast(symbol, to: Function.self)(&actions, STDERR_FILENO + 1)
    }
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

private func readToEnd(_ descriptor: Int32) -> [UInt8] {
    var (bytes, part) = ([UInt8](), [UInt8](repeating: 0, count: 1 << 16))
    while true {
        let count = read(descriptor, &part, part.count)
        if count < 0, errno == EINTR { continue }
        guard count > 0 else { return bytes }
        bytes += part[..<count]
    }
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
