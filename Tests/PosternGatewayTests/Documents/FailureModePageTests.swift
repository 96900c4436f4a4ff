import Foundation
import PosternTestKit
import Testing

/// `docs/failure-modes.md` claims nothing that it cannot show.
@Suite struct FailureModePageTests {
    private struct Row {
        let number: Int
        /// The last column: what shows that the one before is true.
        let evidence: String
        var names: [String] { evidence.matches(of: /`([^`]+)`/).map { String($0.1) } }
    }

    private static func text(_ file: String) throws -> String {
        String(decoding: try Fixture.bytes(inPackage: file), as: UTF8.self)
    }

    private static func rows() throws -> [Row] {
        try text("docs/failure-modes.md").split(separator: "\n").compactMap { line in
            let cells = line.components(separatedBy: " | ")
            guard let number = Int(cells[0].dropFirst(2)) else { return nil }
            try #require(cells.count == 4, "row \(number)")
            return Row(number: number, evidence: cells[3])
        }
    }

    /// Whether there is a script of that name, and in it the scenario that the name may add.
    private func isScript(_ name: String) throws -> Bool {
        let words = name.split(separator: " ")
        guard let script = try? Self.text(String(words[0])) else { return false }
        return words.count == 1 || script.contains("def \(words[1])(")
    }

    @Test func rows_areNumbered_withoutAGap() throws {
        #expect(try Self.rows().map(\.number) == Array(1...94))
    }

    @Test func everyRow_namesWhatShowsIt_orSaysWhyNothingDoes() throws {
        for row in try Self.rows() {
            let isExcused = row.evidence == "– |" || row.evidence.contains("**Not covered:**")
            #expect(!row.names.isEmpty || isExcused, "row \(row.number)")
        }
    }

    @Test func everyName_isATestOrAScenarioOrAFigure() throws {
        let functions = try TestNames.all()
        let figures = try Self.text("Benchmarks/RESULTS.md")
        for row in try Self.rows() {
            for name in row.names {
                let isThere =
                    if name.hasPrefix("scripts/") {
                        try isScript(name)
                    } else if name.hasPrefix("bench: ") {
                        figures.contains("\n| \(name.dropFirst(7)) ")
                    } else {
                        functions.contains(name)
                    }
                #expect(isThere, "row \(row.number): there is no \(name)")
            }
        }
    }
}
