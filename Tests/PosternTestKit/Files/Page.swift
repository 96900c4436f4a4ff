import Foundation

/// A Markdown file of the package, with the places in it that a link or a citation can name.
public struct Page: Sendable {
    /// From the top of the package.
    public let path: String
    public let text: String

    public init(_ path: String) throws {
        self.path = path
        text = String(decoding: try Fixture.bytes(inPackage: path), as: UTF8.self)
    }

    /// Every Markdown file of the package.
    public static func all() throws -> [Page] { try files(where: { $0.hasSuffix(".md") }).map(Page.init) }

    /// The paths of all files of the package that are not generated, by a condition.
    public static func files(where isWanted: (String) -> Bool) throws -> [String] {
        let top = try FileManager.default.contentsOfDirectory(atPath: Fixture.top)
        return top.filter { !$0.hasPrefix(".") }.flatMap { name in
            let inside = FileManager.default.enumerator(atPath: "\(Fixture.top)/\(name)")
            return [name] + (inside?.compactMap { $0 as? String } ?? []).map { "\(name)/\($0)" }
        }.filter(isWanted).sorted()
    }

    /// The lines outside of fenced blocks.
    public var prose: [Substring] {
        var isCode = false
        return text.split(separator: "\n", omittingEmptySubsequences: false).filter { line in
            if line.hasPrefix("```") { isCode.toggle() }
            return !isCode && !line.hasPrefix("```")
        }
    }

    public var headings: [String] {
        prose.filter { $0.hasPrefix("#") }.map { String($0.drop { $0 == "#" }.drop { $0 == " " }) }
    }

    /// The fragments that a link to the page may have: those that GitHub derives from headings, and explicit ones.
    public var anchors: Set<String> {
        let explicit = text.matches(of: /<a id="([^"]+)"><\/a>/).map { String($0.1) }
        return Set(explicit + headings.map(Self.fragment))
    }

    /// The numbers of the sections that are numbered: `3.4` of "3.4 What 401 means".
    public var sections: Set<String> {
        Set(headings.compactMap { $0.prefixMatch(of: /\d+(?:\.\d+)?/).map { String($0.output) } })
    }

    private static func fragment(of heading: String) -> String {
        String(
            heading.lowercased().compactMap {
                $0 == " " ? "-" : $0.isLetter || $0.isNumber || "-_".contains($0) ? $0 : nil
            })
    }
}
