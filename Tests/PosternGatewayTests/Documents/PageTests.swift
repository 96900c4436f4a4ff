import Foundation
import PosternTestKit
import Testing

/// The pages of the documentation.
@Suite struct PageTests {
    @Test(arguments: try Page.all().map(\.path)) func links_leadToFiles_andToTheirAnchors(path: String) throws {
        let page = try Page(path)
        let folder = URL(filePath: "\(Fixture.top)/\(path)").deletingLastPathComponent()
        for link in page.prose.joined(separator: "\n").matches(of: #/\]\(([^)#:\s]*)(?:#([^)\s]*))?\)/#) {
            let target = link.1.isEmpty ? path : Self.path(of: folder.appending(path: String(link.1)))
            #expect(FileManager.default.fileExists(atPath: "\(Fixture.top)/\(target)"), "\(path) links to \(link.1)")
            guard let anchor = link.2 else { continue }
            #expect(try Page(target).anchors.contains(String(anchor)), "\(path) links to \(link.1)#\(anchor)")
        }
    }

    /// The page of a type and the specification of its wire format lead to each other.
    @Test(arguments: try Slice.all().map(\.type).filter { $0 != "toy" }) func type_hasAWireSpecification(type: String)
        throws
    {
        let slice = try #require(try Slice.all().first { $0.type == type })
        #expect(try Page(slice.page).text.contains("(../../../docs/wire/\(type).md)"))
        #expect(try Page("docs/wire/\(type).md").text.contains("(../../\(slice.page))"))
    }

    /// What these pages teach exists: types, members and files in backticks.
    @Test func names_areDeclared() throws {
        let files = try Page.files { $0.hasSuffix(".swift") || !$0.contains("/") }
        let declared = try Self.declared(in: files.filter { $0.hasSuffix(".swift") })
        let internals = ["store", "delivery", "http", "events"].map { "docs/internals/\($0).md" }
        for path in ["ARCHITECTURE.md", "CONTRIBUTING.md"] + internals {
            for match in try Page(path).text.matches(of: #/`([A-Z][a-z]\w*)(?:\.(\w+))?(?:\([^`]*\))?`/#) {
                if files.contains(where: { "/\($0)".hasSuffix("/\(match.0.dropFirst().dropLast())") }) { continue }
                for name in [match.1, match.2].compactMap(\.self) {
                    #expect(declared.contains(String(name)), "\(path) names \(match.0)")
                }
            }
        }
    }

    /// The map says about how large each module is, so that a reader knows what to expect.
    @Test func sizes_areAboutRight_onTheMap() throws {
        let rows = try Page("ARCHITECTURE.md").text.matches(of: #/\| `(Postern\w+)` \| (\d+) \|/#)
        #expect(rows.count > 8)
        for row in rows {
            let files = try Page.files { $0.hasPrefix("Sources/\(row.1)/") && $0.hasSuffix(".swift") }
            let lines = try files.map { try Fixture.bytes(inPackage: $0).count { $0 == UInt8(ascii: "\n") } }
            let size = Double(lines.reduce(0, +))
            let shown = try #require(Double(row.2))
            #expect((0.8...1.25).contains(shown / size), "\(row.1) has \(Int(size)) lines, not \(row.2)")
        }
    }

    private static func declared(in files: [String]) throws -> Set<String> {
        let texts = try files.map { String(decoding: try Fixture.bytes(inPackage: $0), as: UTF8.self) }
        let all = texts.joined(separator: "\n")
        var names = Set(files.flatMap { $0.split(separator: "/").map(String.init) })
        for keyword in ["struct ", "class ", "enum ", "protocol ", "typealias ", "func ", "case ", "let ", "var "] {
            for part in all.components(separatedBy: keyword).dropFirst() {
                names.insert(String(part.prefix { $0.isLetter || $0.isNumber || $0 == "_" }))
            }
        }
        return names
    }

    private static func path(of file: URL) -> String {
        String(file.standardizedFileURL.path(percentEncoded: false).dropFirst(Fixture.top.count + 1))
    }
}
