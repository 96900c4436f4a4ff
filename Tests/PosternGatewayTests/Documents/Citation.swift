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
            #/((?:RFC \d+|FIPS \d+-\d|CloudEvents [\d.]+|Fetch|html|HTML), sections? \d+(?:\.\d+)*(?:(?:,|,? and| to) \d+(?:\.\d+)*)*)/#
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
