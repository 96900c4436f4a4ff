import Foundation
import PosternTestKit
import Testing

/// What code, tests and pages cite of `docs/design.md` and of `docs/wire/` is there.
@Suite struct CitationTests {
    @Test func everyCitation_leadsToAPlace() throws {
        var pages: [String: Page] = [:]
        var count = 0
        for file in try Page.files(where: Self.isRead) {
            let wire = try Self.type(of: file).map { "docs/wire/\($0).md" }
            for (line, citation) in try Self.citations(in: file) {
                count += 1
                guard let path = citation.isOfDesign ? "docs/design.md" : wire else {
                    Issue.record("\(file):\(line): the specification of which type?")
                    continue
                }
                if pages[path] == nil { pages[path] = try Page(path) }
                #expect(
                    pages[path]?.has(citation.location) == true, "\(file):\(line): \(path) has no \(citation.location)")
            }
        }
        #expect(count > 100, "citations are no longer recognized")
    }

    @Test(arguments: [
        ("taking messages (design, section 3.1)", [Citation(isOfDesign: true, location: .section("3.1"))]),
        ("Promises 1 to 4, again", ["1", "4"].map { Citation(isOfDesign: true, location: .anchor("promise-\($0)")) }),
        (
            "(Assumptions A2 to A5)",
            ["a2", "a5"].map { Citation(isOfDesign: false, location: .anchor("assumption-\($0)")) }
        ),
        (
            "(specification, sections 4.0 and 10)",
            ["4.0", "10"].map { Citation(isOfDesign: false, location: .section($0)) }
        ),
        ("the specification's 5.4", [Citation(isOfDesign: false, location: .section("5.4"))]),
        ("the specification's \"Overview\"", [Citation(isOfDesign: false, location: .title("Overview"))]),
        ("(RFC 9112, sections 3.2, 6, and 9.3)", []),
    ]) func line_citesItsPlaces(line: String, citations: [Citation]) {
        #expect(CitationReader().citations(in: line) == citations)
    }

    @Test func citation_isReadAcrossTheEndOfALine() {
        let lines = Citation.lines(of: "/// Takes 50 ms (design,\n    /// section 3.6).\n/// No more.")
        #expect(lines.map(\.text) == ["Takes 50 ms (design, section 3.6).", "No more."])
        #expect(lines.map(\.number) == [1, 3])
    }

    private static func isRead(_ path: String) -> Bool {
        ["swift", "c", "h", "md", "yaml", "py", "sh"].contains { path.hasSuffix(".\($0)") }
            && !path.hasPrefix("Tests/PosternGatewayTests/Documents/Citation") && path != "CHANGELOG.md"
    }

    /// The type of upstream that a file is about, by its folder or its name.
    private static func type(of file: String) throws -> String? {
        let parts = file.split(separator: "/").map(String.init)
        return try Slice.all().first { slice in
            parts.contains(slice.folder) || parts.last?.hasPrefix(slice.folder) == true
                || file == "docs/wire/\(slice.type).md"
        }?.type
    }

    private static func citations(in file: String) throws -> [(line: Int, citation: Citation)] {
        let text = String(decoding: try Fixture.bytes(inPackage: file), as: UTF8.self)
        let reader = CitationReader()
        return Citation.lines(of: text).flatMap { line in reader.citations(in: line.text).map { (line.number, $0) } }
    }
}

extension Page {
    fileprivate func has(_ location: Citation.Location) -> Bool {
        switch location {
        case .section(let number): sections.contains(number)
        case .title(let title): headings.contains(title) || text.contains("\n**\(title)**")
        case .anchor(let anchor): anchors.contains(anchor)
        }
    }
}
