import Foundation

/// Files that tests read.
public enum Fixture {
    /// The bytes of a file in the folder `Fixtures` of a type of upstream. A missing one fails the test that wants it.
    ///
    /// - Parameter source: A source file in a folder next to `Fixtures`.
    public static func bytes(_ name: String, of source: StaticString = #filePath) throws -> [UInt8] {
        let folder = source.description.split(separator: "/", omittingEmptySubsequences: false).dropLast(2)
        return try read(folder.joined(separator: "/") + "/Fixtures/" + name)
    }

    /// The value in a JSON file of that folder.
    public static func value<Value: Decodable>(_ name: String, of source: StaticString = #filePath) throws -> Value {
        try JSONDecoder().decode(Value.self, from: Data(bytes(name, of: source)))
    }

    /// The bytes of a file of the package, e.g. `openapi/openapi.yaml`.
    public static func bytes(inPackage path: String) throws -> [UInt8] {
        try read(top + "/" + path)
    }

    /// The root folder of the package.
    public static let top = #filePath.components(separatedBy: "/Tests/PosternTestKit/")[0]

    private static func read(_ path: String) throws -> [UInt8] {
        Array(try Data(contentsOf: URL(fileURLWithPath: path)))
    }
}
