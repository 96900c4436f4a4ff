import Foundation

/// A type of upstream as a folder: `Sources/Upstreams/<Folder>`, whose name in lower case is the type's.
public struct Slice: Sendable {
    public let folder: String

    public var type: String { folder.lowercased() }
    /// The page about it, seen from the top of the package.
    public var page: String { "Sources/Upstreams/\(folder)/\(type).md" }

    /// Those of the package, by name.
    public static func all() throws -> [Slice] {
        try FileManager.default.contentsOfDirectory(atPath: Fixture.top + "/Sources/Upstreams").sorted().map(Slice.init)
    }
}
