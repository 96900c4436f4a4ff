import Foundation
import Testing

/// A temporary folder for one test, removed with the last reference.
public final class ScratchFolder: Sendable {
    public let path: String

    public init() {
        path = NSTemporaryDirectory() + "postern-test-" + UUID().uuidString
        try? FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    public func file(_ name: String) -> String { path + "/" + name }

    /// The files of a folder in this one that contain `text`. Fails the test if it has no files.
    public func files(in folder: String = "", with text: String) throws -> [String] {
        let names = try FileManager.default.contentsOfDirectory(atPath: file(folder))
        #expect(!names.isEmpty)
        // `FileManager` would leak what it reads an empty file into.
        return try names.filter {
            try FileHandle(forReadingAtPath: file("\(folder)/\($0)"))?.readToEnd()?.range(of: Data(text.utf8)) != nil
        }
    }
}
