import Glibc

/// Files below `Tests/Fixtures`.
public enum Fixture {
    /// The bytes of `path`, e.g. `samsara/one-event.http`. A missing file fails the test that wants it.
    public static func bytes(_ path: String, here: StaticString = #filePath) throws -> [UInt8] {
        let tests = here.description.split(separator: "/", omittingEmptySubsequences: false).dropLast(2)
        let full = (tests + ["Fixtures"]).joined(separator: "/") + "/" + path
        guard let file = fopen(full, "r") else { throw Missing(path: full) }
        defer { fclose(file) }
        var bytes: [UInt8] = []
        var part = [UInt8](repeating: 0, count: 65536)
        while case let count = fread(&part, 1, part.count, file), count > 0 { bytes += part.prefix(count) }
        return bytes
    }

    public struct Missing: Error { let path: String }
}
