import PosternTestKit
import Testing

/// The example of CONTRIBUTING.md is this very code, so it compiles and conforms.
@Suite struct ToyTests {
    private func text(_ path: String) throws -> String {
        String(decoding: try Fixture.bytes(inPackage: path), as: UTF8.self)
    }

    @Test(arguments: [
        "Adapter/ToyUpstream.swift", "Adapter/ToyFixture.swift", "Simulator/ToySimulator.swift",
        "Scenarios/ToyScenarios.swift",
    ])
    func contributing_showsTheToy(file: String) throws {
        let code = try text("Tests/Upstreams/Toy/\(file)")
        #expect(try text("CONTRIBUTING.md").contains("```swift\n\(code)```\n"), "\(file) differs")
    }
}
