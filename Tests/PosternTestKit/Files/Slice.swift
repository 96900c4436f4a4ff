import Foundation

/// The folder of an upstream type: `Sources/Upstreams/<Folder>`. Its lower-case name is the name of the type.
public struct Slice: Sendable {
    public let folder: String

    public var type: String { folder.lowercased() }
    /// The page about it, seen from the top of the package.
    public var page: String { "Sources/Upstreams/\(folder)/\(type).md" }

    /// All types of the package, sorted by name.
    public static func all() throws -> [Slice] {
        try FileManager.default.contentsOfDirectory(atPath: Fixture.top + "/Sources/Upstreams").sorted().map(Slice.init)
    }
}
