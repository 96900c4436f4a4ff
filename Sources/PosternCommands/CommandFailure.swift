import PosternCore
import PosternStore
import PosternThreads

/// Why a command failed: a sentence for people, and an exit code of sysexits.h for scripts.
public struct CommandFailure: Error, Sendable, Equatable, CustomStringConvertible {
    /// One of the constants below.
    public let exitCode: Int32
    /// One sentence for standard error, without the program's name.
    public let description: String

    /// A negative result: not found, rejected, not ready, not balanced. Also, that the result cannot be written.
    public static let no: Int32 = 1
    /// The command does not fit the store (`EX_USAGE`).
    static let usage: Int32 = 64
    /// A port is in use or not permitted, or a program is missing (`EX_UNAVAILABLE`).
    public static let unavailable: Int32 = 69
    /// The store cannot be opened (`EX_CANTCREAT`).
    static let noStore: Int32 = 73
    /// Another process is using the store (`EX_TEMPFAIL`).
    static let running: Int32 = 75

    public init(_ exitCode: Int32, _ description: String) {
        self.exitCode = exitCode
        self.description = description
    }

    init(_ error: StoreError) {
        let exitCode =
            switch error {
            case .alreadyRunning, .nodeRunning, .inUse: Self.running
            case .sealed: CheckReport.configurationError
            case .systemLimit: SystemLimitError.exitCode
            default: Self.noStore
            }
        self.init(exitCode, "\(error).")
    }
}

/// Works on a store; its error becomes that of the command.
func onStore<T>(_ work: () throws(StoreError) -> T) throws(CommandFailure) -> T {
    do throws(StoreError) { return try work() } catch { throw CommandFailure(error) }
}
