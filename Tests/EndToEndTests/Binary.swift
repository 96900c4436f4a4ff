import Foundation
import Glibc
import PosternCore
import PosternTestKit
import Synchronization

/// The built `postern`, run as a child process. Killed when it goes, if it still runs.
///
/// Waiting happens on threads of its own, so that a test that waits keeps no other from running.
final class Binary: Sendable {
    typealias Ended = ChildProcess.Ended
    typealias Failure = ChildProcess.Failure

    enum Stream: Sendable { case output, errors }

    /// `POSTERN_BINARY`, or the debug build.
    static var path: String {
        if let named = ProcessInfo.processInfo.environment["POSTERN_BINARY"], !named.isEmpty { return named }
        return URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: ".build/debug/postern").path(percentEncoded: false)
    }

    /// Whether it is a release build, by its path.
    static var isOptimized: Bool { path.contains("release") }
    /// Whether the thread sanitizer watches it with a thread of its own, by its path.
    static var hasThreadSanitizer: Bool { path.contains(".build/thread/") }
    /// Whether the address sanitizer does, which ends a process that it cannot search for leaks.
    static var hasAddressSanitizer: Bool { path.contains(".build/address/") }
    /// Whether a sanitizer does, which takes memory and time of its own.
    static var isSanitized: Bool { hasThreadSanitizer || hasAddressSanitizer }

    static let patience = Duration.seconds(30)

    let pid: pid_t
    private let watch = Watch()

    /// What is known of the process; the threads that read and wait hold it, not the `Binary`.
    private final class Watch: Sendable {
        let state = Mutex(State())
        /// Rung when the state has changed.
        let bell = Inbox<Void>()

        func change(_ body: (inout State) -> Void) {
            state.withLock { body(&$0) }
            bell.nudge()
        }
    }

    private struct State {
        var texts: [Stream: [UInt8]] = [.output: [], .errors: []]
        /// How far `line` has read.
        var places: [Stream: Int] = [.output: 0, .errors: 0]
        var openStreams = 2
        /// As `waitpid` gives it.
        var status: Int32?

        var isOver: Bool { status != nil && openStreams == 0 }
        func text(_ stream: Stream) -> String { String(decoding: texts[stream] ?? [], as: UTF8.self) }
    }

    /// Starts it with `arguments`, nothing on standard input, and the test's environment without the `POSTERN_`
    /// variables, plus `environment`. `program` is a command that is given all that to run, e.g. a shell with a limit.
    convenience init(
        _ arguments: [String], environment: [String: String] = [:], through program: [String] = []
    ) throws {
        try self.init(command: program + [Self.path] + arguments, environment: environment)
    }

    /// Starts any program the same way.
    init(command: [String], environment: [String: String] = [:]) throws {
        let child = try ChildProcess.start(command, environment: environment)
        pid = child.pid
        read(child.output, as: .output)
        read(child.errors, as: .errors)
        _ = DedicatedThread(name: "e2e-wait") { [watch] in
            // The process stays a zombie, and its number its own, until the state says that it is over.
            var information = siginfo_t()
            while waitid(P_PID, id_t(child.pid), &information, WEXITED | WNOWAIT) < 0, errno == EINTR {}
            watch.change { state in
                var status: Int32 = 0
                waitpid(child.pid, &status, 0)
                state.status = status
            }
        }
    }

    deinit {
        signal(SIGKILL)
    }

    private func read(_ descriptor: Int32, as stream: Stream) {
        _ = DedicatedThread(name: "e2e-read") { [watch] in
            var part = [UInt8](repeating: 0, count: 1 << 16)
            while true {
                let count = Glibc.read(descriptor, &part, part.count)
                if count < 0, errno == EINTR { continue }
                guard count > 0 else { break }
                watch.change { $0.texts[stream]?.append(contentsOf: part[..<count]) }
            }
            close(descriptor)
            watch.change { $0.openStreams -= 1 }
        }
    }

    /// Starts it and waits for its end.
    static func run(
        _ arguments: [String], environment: [String: String] = [:], within: Duration = patience
    ) async throws -> Ended {
        try await Binary(arguments, environment: environment).end(within: within)
    }

    static func run(command: [String], within: Duration = patience) async throws -> Ended {
        try await Binary(command: command).end(within: within)
    }

    /// Sends a signal, if it still runs.
    func signal(_ number: Int32) {
        watch.state.withLock { if $0.status == nil { kill(pid, number) } }
    }

    /// The next whole line of which `matches` is true; those before it are passed over.
    func line(
        of stream: Stream = .output, within: Duration = patience, where matches: @escaping @Sendable (String) -> Bool
    ) async throws -> String {
        try await wait(within, for: "line") { state in
            let text = state.texts[stream] ?? []
            while let end = text[(state.places[stream] ?? 0)...].firstIndex(of: UInt8(ascii: "\n")) {
                let line = String(decoding: text[(state.places[stream] ?? 0)..<end], as: UTF8.self)
                state.places[stream] = end + 1
                if matches(line) { return line }
            }
            return nil
        }
    }

    /// Waits until it has ended; when it does not in time, it is killed.
    func end(within: Duration = patience) async throws -> Ended {
        do {
            return try await wait(within, for: "end") { state in
                guard let status = state.status, state.openStreams == 0 else { return nil }
                return Ended(
                    status: status, output: state.texts[.output] ?? [], errors: state.texts[.errors] ?? [])
            }
        } catch {
            signal(SIGKILL)
            throw error
        }
    }

    private func wait<Found: Sendable>(
        _ within: Duration, for what: String, _ find: @escaping @Sendable (inout State) -> Found?
    ) async throws -> Found {
        let result: Result<Found, Failure> = await withCheckedContinuation { continuation in
            _ = DedicatedThread(name: "e2e-patience") { [self] in
                let deadline = SystemTime().instant + within
                var (isOver, found) = watch.state.withLock { ($0.isOver, find(&$0)) }
                while found == nil, !isOver, SystemTime().instant < deadline {
                    _ = watch.bell.takeAll(waitingUntil: deadline)
                    (isOver, found) = watch.state.withLock { ($0.isOver, find(&$0)) }
                }
                if let value = found { return continuation.resume(returning: .success(value)) }
                continuation.resume(returning: .failure(failure(what, within)))
            }
        }
        return try result.get()
    }

    private func failure(_ what: String, _ within: Duration) -> Failure {
        watch.state.withLock { state in
            Failure(
                description: """
                    no such \(what) \(state.isOver ? "before its end" : "within \(within)")
                    standard output: \(state.text(.output))
                    standard error: \(state.text(.errors))
                    """)
        }
    }
}
