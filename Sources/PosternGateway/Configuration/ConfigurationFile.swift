import Glibc

/// The JSON file as it was given. What is in a pipe or comes from a device can be read only once, so it is kept.
public struct ConfigurationFile: Sendable {
    let path: String
    /// Nil for a file that is read each time.
    private let kept: Result<[UInt8], FileFailure>?

    static let largestFile = 1 << 20

    /// Reads a pipe or a device to its end. Anything else is not read yet.
    public init(_ path: String) {
        self.path = path
        kept = Self.canBeReadAgain(path) ? nil : readFile(path, atMost: Self.largestFile, orPipe: true)
    }

    func contents() -> Result<[UInt8], FileFailure> { kept ?? readFile(path, atMost: Self.largestFile) }

    /// Why a reload would not find anything new; nil if it may.
    var problemOfReload: ConfigurationProblem? {
        guard kept != nil else { return nil }
        return ConfigurationProblem(
            path, "is not a file that can be read again; restart the gateway to change its configuration")
    }

    /// What does not exist may exist later.
    private static func canBeReadAgain(_ path: String) -> Bool {
        var status = stat()
        return stat(path, &status) != 0 || [S_IFREG, S_IFDIR].contains(status.st_mode & S_IFMT)
    }
}
