import Foundation
import PosternTestKit
import Testing

/// What people read.
@Suite struct PageTests {
    private static func pages() throws -> [String] {
        let folders = try [".", "docs"] + Slice.all().map { "Sources/Upstreams/\($0.folder)" }
        return try folders.flatMap { folder in
            try FileManager.default.contentsOfDirectory(atPath: "\(Fixture.top)/\(folder)")
                .filter { $0.hasSuffix(".md") }.map { "\(folder)/\($0)" }
        }
    }

    @Test(arguments: try pages()) func linksToFiles_leadToOnes(page: String) throws {
        let text = String(decoding: try Fixture.bytes(inPackage: page), as: UTF8.self)
        let folder = URL(filePath: "\(Fixture.top)/\(page)").deletingLastPathComponent()
        for link in text.matches(of: #/\]\(([^)#:\s]+)(?:#[^)]*)?\)/#) {
            let file = folder.appending(path: String(link.1)).standardizedFileURL.path(percentEncoded: false)
            #expect(FileManager.default.fileExists(atPath: file), "\(page) links to \(link.1)")
        }
    }
}
