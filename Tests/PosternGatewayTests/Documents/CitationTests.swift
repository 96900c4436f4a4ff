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

/// What a line of code or prose cites: a place in `docs/design.md`, or in the specification of a type of upstream.
struct Citation: Equatable {
    enum Location: Equatable {
        /// A heading that begins with this number.
        case section(String)
        /// A heading, or the bold beginning of a paragraph, with this text.
        case title(String)
        case anchor(String)
    }

    /// Whether it cites the design, and not the specification of a type.
    let isOfDesign: Bool
    let location: Location

    /// The lines of `text`, numbered from 1, without the marks of comments. A line that ends inside a citation includes
    /// the next one.
    static func lines(of text: String) -> [(number: Int, text: String)] {
        var lines: [(number: Int, text: String)] = []
        for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
            let bare = String(line.drop { " \t/*#".contains($0) })
            if let last = lines.last, openEnds.contains(where: last.text.hasSuffix) {
                lines[lines.count - 1].text += " " + bare
            } else {
                lines.append((index + 1, bare))
            }
        }
        return lines
    }

    private static let openEnds = [
        "0,", "1,", "2,", "3,", "4,", "5,", "6,", "7,", "8,", "9,", "esign,", "esign's", "pecification,",
        "pecification's", "ection", "ections", "romise", "romises", "ssumption", "ssumptions",
    ]
}

/// Finds citations. Its patterns are not kept in a global: the leak sanitizer would not find what refers to them, since
/// Swift marks pointers to strings in their upper bits.
struct CitationReader {
    /// The citations in `line`.
    func citations(in line: String) -> [Citation] {
        guard Self.keywords.contains(where: line.contains) else { return [] }
        var text = line
        return forms.flatMap { form in
            let found = text.matches(of: form.pattern)
            let citations = found.flatMap { form.read($0.1) }
            // A later form does not read again what an earlier one has read.
            for range in found.map(\.range).reversed() {
                text.replaceSubrange(range, with: String(repeating: " ", count: text[range].count))
            }
            return citations
        }
    }

    private static let keywords = ["ection", "romise", "ssumption", "pecification"]

    private struct Form {
        let pattern: Regex<(Substring, Substring)>
        let read: (Substring) -> [Citation]

        init(_ pattern: Regex<(Substring, Substring)>, _ read: @escaping (Substring) -> [Citation]) {
            self.pattern = pattern
            self.read = read
        }

        /// Of a range such as `5.2 to 5.4` the ends are read, not what is between them.
        static func numbers(
            _ pattern: Regex<(Substring, Substring)>, isOfDesign: Bool = false,
            _ location: @escaping (String) -> Citation.Location
        ) -> Form {
            Form(pattern) { text in
                text.matches(of: #/A?\d+(?:\.\d+)?/#).map {
                    Citation(isOfDesign: isOfDesign, location: location($0.output.lowercased()))
                }
            }
        }
    }

    private let forms: [Form] = [
        // Other documents.
        Form(
            #/((?:RFC \d+|FIPS \d+-\d|CloudEvents [\d.]+|Trace Context|Fetch|html|HTML), sections? \d+(?:\.\d+)*(?:(?:,|,? and| to) \d+(?:\.\d+)*)*)/#
        ) { _ in [] },
        .numbers(
            #/[Dd]esign(?:\.md)?(?:,|'s) sections? (\d+(?:\.\d+)?(?:(?:,|,? and| to) \d+(?:\.\d+)?)*)/#,
            isOfDesign: true
        ) { .section($0) },
        .numbers(#/[Pp]romises? (\d(?:(?:,|,? and| to) \d)*)/#, isOfDesign: true) { .anchor("promise-\($0)") },
        .numbers(#/[Aa]ssumptions? (A?\d+(?:(?:,|,? and| to) A?\d+)*)/#) { .anchor("assumption-\($0)") },
        .numbers(#/[Ss]pecification's (A\d+)/#) { .anchor("assumption-\($0)") },
        .numbers(
            #/(?:[Ss]ections?|[Aa]ssumption of) (\d+(?:\.\d+)?(?:(?:,|,? and| to) \d+(?:\.\d+)?)*)/#
        ) { .section($0) },
        .numbers(
            #/[Ss]pecification(?:'s |, | \()(\d+(?:\.\d+)?(?:(?:,|,? and| to) \d+(?:\.\d+)?)*)/#
        ) { .section($0) },
        Form(#/[Ss]pecification(?:'s|, section) "([^"]+)"/#) {
            [Citation(isOfDesign: false, location: .title(String($0)))]
        },
    ]
}
