public import PosternStore

/// Why a command did not do what it was asked: a sentence for people, and an exit code of sysexits.h for scripts.
public struct CommandFailure: Error, Sendable, Equatable, CustomStringConvertible {
    public let exitCode: Int32
    public let description: String

    /// The answer is no: not found, refused, not ready, not balanced.
    public static let no: Int32 = 1
    /// A port is taken, or not ours to take, or a program is missing (`EX_UNAVAILABLE`).
    public static let unavailable: Int32 = 69
    /// The store cannot be opened (`EX_CANTCREAT`).
    public static let noStore: Int32 = 73
    /// Another process works on the store (`EX_TEMPFAIL`).
    public static let running: Int32 = 75

    public init(_ exitCode: Int32, _ description: String) {
        self.exitCode = exitCode
        self.description = description
    }

    public init(_ error: StoreError) {
        if case .alreadyRunning = error {
            self.init(Self.running, "\(error).")
        } else {
            self.init(Self.noStore, "\(error).")
        }
    }
}
