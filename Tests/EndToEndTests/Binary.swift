import Foundation
import PosternTestKit

/// The built `postern`.
enum Binary {
    /// `POSTERN_BINARY`, or the debug build.
    static var path: String {
        if let named = ProcessInfo.processInfo.environment["POSTERN_BINARY"], !named.isEmpty { return named }
        return Fixture.top + "/.build/debug/postern"
    }

    /// Whether it is a release build, by its path.
    static var isOptimized: Bool { path.contains("release") }
    /// Whether it is built with the thread sanitizer, which runs a thread of its own, by its path.
    static var hasThreadSanitizer: Bool { path.contains(".build/thread/") }
    /// Whether it is built with the address sanitizer, which ends a process that it cannot search for leaks.
    static var hasAddressSanitizer: Bool { path.contains(".build/address/") }
    /// Whether it is built with either sanitizer, which takes memory and time of its own.
    static var isSanitized: Bool { hasThreadSanitizer || hasAddressSanitizer }

    /// Starts it with `arguments`. `program` is a command that is given all that to run, e.g. a shell with a limit.
    static func start(
        _ arguments: [String], environment: [String: String] = [:], through program: [String] = []
    ) throws -> ChildProcess {
        try ChildProcess(program + [path] + arguments, environment: environment)
    }

    /// Starts it and waits until it exits.
    static func run(
        _ arguments: [String], environment: [String: String] = [:]
    ) async throws -> ChildProcess.Ended {
        try await start(arguments, environment: environment).end()
    }
}
