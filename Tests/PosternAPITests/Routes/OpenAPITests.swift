import Foundation
import PosternCore
import PosternDelivery
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI

@Suite struct OpenAPITests {
    private static var file: String {
        get throws { String(decoding: try Fixture.bytes(inPackage: "openapi/openapi.yaml"), as: UTF8.self) }
    }

    @Test func servedText_isTheFile() throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.get("/openapi.yaml")
            #expect(answer.header("Content-Type") == "application/yaml")
            #expect(answer.text == (try Self.file))
        }
    }

    /// The names in `attemptLog` and in the metrics' label are a contract.
    @Test func outcomesOfAttempts_areTheDocumented() throws {
        let text = try Self.file
        let start = try #require(text.range(of: "    AttemptOutcome:\n      type: string\n      enum:\n"))
        let names = text[start.upperBound...].split(separator: "\n").prefix { $0.hasPrefix("        - ") }
        #expect(names.map { String($0.dropFirst(10)) } == Settlement.Outcome.allCases.map(\.rawValue))
    }

    @Test func healthOfUpstreams_isDocumented() throws {
        let names = UpstreamSnapshot.Health.allCases.map(\.rawValue).joined(separator: ", ")
        #expect(try Self.file.contains("enum: [\(names)]"))
    }

    @Test func everyRequestBody_hasAnExample() throws {
        func indent(_ line: Substring) -> Int { line.prefix { $0 == " " }.count }
        let lines = try Self.file.split(separator: "\n")
        let bodies = lines.indices.filter { lines[$0].hasSuffix(" requestBody:") }
        #expect(bodies.count >= 9)
        for start in bodies {
            let body = lines[(start + 1)...].prefix { indent($0) > indent(lines[start]) }
            #expect(body.contains { $0.contains("example") }, "\(body.joined(separator: "\n"))")
        }
    }

    @Test func version_isThatOfTheProduct() throws {
        #expect(try Self.file.contains("\n  version: \(PosternVersion.current)\n"))
    }

    @Test(arguments: ProblemSlug.allCases)
    func problem_isDocumented(slug: ProblemSlug) throws {
        #expect(try Self.file.contains("- urn:postern:problem:\(slug.rawValue)\n"))
    }
}
