import Foundation

/// A folder of its own for one test; gone when the test is.
public final class ScratchFolder: Sendable {
    public let path: String

    public init() {
        path = NSTemporaryDirectory() + "postern-test-" + UUID().uuidString
        try? FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    public func file(_ name: String) -> String { path + "/" + name }
}
