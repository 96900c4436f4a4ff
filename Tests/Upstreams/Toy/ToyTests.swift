import Foundation
import Testing

/// The example of CONTRIBUTING.md is this very code, so it compiles and conforms.
@Suite struct ToyTests {
    private func text(_ path: String) throws -> String {
        var top = URL(fileURLWithPath: #filePath)
        for _ in 0..<4 { top.deleteLastPathComponent() }
        return try String(contentsOf: top.appendingPathComponent(path), encoding: .utf8)
    }

    @Test(arguments: [
        "Tests/PosternUpstreamsTests/Toy/ToyUpstream.swift", "Tests/PosternUpstreamsTests/Toy/ToyFixture.swift",
        "Tests/PosternSimulatorsTests/Toy/ToySimulator.swift",
    ])
    func contributing_showsTheToy(file: String) throws {
        let code = try text(file).split(separator: "\n", omittingEmptySubsequences: false)
            .filter { !$0.hasPrefix("@testable ") || file.hasSuffix("Fixture.swift") }.joined(separator: "\n")
        #expect(try text("CONTRIBUTING.md").contains("```swift\n\(code)```\n"), "\(file) differs")
    }
}
