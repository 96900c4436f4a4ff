import Foundation
import PosternHTTP
import Testing

@testable import PosternServer

@Suite struct OpenAPITests {
    private static var file: String {
        get throws {
            let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
                .deletingLastPathComponent()
            return try String(contentsOf: root.appending(path: "openapi/openapi.yaml"), encoding: .utf8)
        }
    }

    @Test func servedText_isTheFile() throws {
        #expect(
            OpenAPIDocument.text == (try Self.file), "run scripts/embed-openapi.sh, or make openapi, after a change")
    }

    @Test func documentedOperations_areThoseTheRouterTakes() throws {
        // Every path that takes GET takes HEAD, which the description says once for all.
        let routed = Set(
            RouteTemplate.allCases.filter { $0 != .resource }.flatMap { template in
                template.methods.filter { $0 != "HEAD" }.map { "\($0) \(template.text)" }
            })
        // What only some types have is compared with those types, where they are tested.
        let documented = try Self.operations(in: Self.file).filter {
            !$0.contains(" /v1/{upstream}/") || $0.hasSuffix("{kind}")
        }
        #expect(documented == routed)
    }

    @Test(arguments: Problem.Slug.allCases)
    func problem_isDocumented(slug: Problem.Slug) throws {
        #expect(try Self.file.contains("- urn:postern:problem:\(slug.rawValue)\n"))
    }

    /// `GET /v1/messages` and so on: the keys at the first two levels below `paths`.
    private static func operations(in yaml: String) -> Set<String> {
        var operations: Set<String> = []
        var path = ""
        var isInPaths = false
        for line in yaml.split(separator: "\n") {
            let indent = line.prefix { $0 == " " }.count
            guard line.hasSuffix(":") || indent == 0 else { continue }
            let key = line.dropFirst(indent).dropLast()
            switch indent {
            case 0: isInPaths = key == "paths"
            case 2 where isInPaths: path = String(key)
            case 4 where isInPaths && key != "parameters": operations.insert("\(key.uppercased()) \(path)")
            default: continue
            }
        }
        return operations
    }
}
