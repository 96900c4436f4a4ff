import Foundation
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI
@testable import PosternGateway

/// `openapi.yaml` has the routes and kinds that there are, with their queries and scopes.
@Suite struct OpenAPIRoutesTests {
    private let document: OpenAPIOutline

    init() throws {
        document = OpenAPIOutline(
            String(decoding: try Fixture.bytes(inPackage: "openapi/openapi.yaml"), as: UTF8.self))
    }

    private static func upstreams() throws -> [AnyUpstream] {
        try UpstreamRegistry.all.map { AnyUpstream(try $0.make(try #require(UpstreamName($0.name)))) }
    }

    /// GET includes HEAD, which the description says once for all.
    @Test func documentedOperations_areThoseOfTheRouteTable() throws {
        let documented = document.operations.filter {
            $0.kind == nil && !$0.path.hasPrefix("/sdk/")
                && (!$0.path.hasPrefix("/v1/{upstream}/") || $0.path == "/v1/{upstream}/{kind}")
        }
        let routes = Route.common.map { route in
            OpenAPIOutline.Operation(route.method.rawValue, route.template.text, query: route.query.map { Set($0) })
        }
        #expect(documented == routes.sorted())
    }

    @Test func documentedOperationsForSDKs_areThoseThatTheTypesServe() throws {
        let documented = document.operations.filter { $0.path.hasPrefix("/sdk/") }.map { "\($0.method) \($0.path)" }
        var served: [String] = []
        for type in UpstreamRegistry.all where type.settings.contains(where: { $0.name == "sdk.enabled" }) {
            let values = type.simulated(["sdk.enabled": .bool(true)], at: "http://localhost")
            let upstream = AnyUpstream(try type.make(try #require(UpstreamName(type.name)), values))
            let endpoints = try #require(upstream.sdk, "\(type.name)")
            #expect(Set(endpoints.routes.map(\.call)).count == endpoints.routes.count)
            for route in endpoints.routes {
                let name = "\(route.method.rawValue) \(endpoints.prefix)/\(route.template)"
                served.append(name)
                let expected = if case .key = route.access { "write" } else { "open" }
                #expect(document.access[name] == expected, "\(name)")
            }
        }
        #expect(documented.sorted() == served.sorted())
    }

    /// Under a key that another request has used, a request is rejected.
    @Test func examplesOfIdempotencyKeys_areDifferent_forEachOperation() throws {
        let text = String(decoding: try Fixture.bytes(inPackage: "openapi/openapi.yaml"), as: UTF8.self)
        let parameters = text.components(separatedBy: "- name: Idempotency-Key\n").dropFirst()
            .filter { $0.prefix(200).contains("schemas/IdempotencyKey") }
        let examples = parameters.compactMap { parameter in
            parameter.split(separator: "\n").prefix(4).first { $0.hasPrefix("          example: ") }
        }
        #expect(examples.count == parameters.count)
        #expect(Set(examples).count == examples.count)
        #expect(examples.count > Set(UpstreamRegistry.all.map(\.name)).count)
    }

    @Test func documentedScopes_areThoseOfTheRouteTable() throws {
        for route in Route.common {
            let expected =
                switch route.access {
                case .scope(let scope): scope.rawValue
                case .anyKey: ""
                case .open, .password, .platform: "open"
                }
            let name = "\(route.method.rawValue) \(route.template.text)"
            #expect(document.access[name] == expected, "\(name)")
        }
    }

    @Test func resources_areThoseThatTheAPIDescribes() throws {
        let known = try Self.upstreams().flatMap(\.traits.routes)
        // A resource that validates its query itself takes what its SDK sends, which is not listed.
        let unlisted = Set(known.filter { $0.query == nil }.map { "/v1/{upstream}/\($0.template)" })
        let described = document.operations
            .filter { $0.path.hasPrefix("/v1/{upstream}/") && $0.path != "/v1/{upstream}/{kind}" }
            .map { OpenAPIOutline.Operation($0.method, $0.path, query: unlisted.contains($0.path) ? nil : $0.query) }
        let resources = known.map { resource in
            OpenAPIOutline.Operation(
                resource.method.rawValue, "/v1/{upstream}/\(resource.template)", query: resource.query.map { Set($0) })
        }
        // Several types may have a resource of the same name.
        #expect(described == Set(resources).sorted())
    }

    /// If the store fails, a read is answered with 500, and a change with 503 or 507.
    @Test func documentedStatuses_includeThoseOfAStoreThatFails() throws {
        var expected: [String: Set<Int>] = [
            "GET /v1/messages": [500], "GET /v1/upstreams": [500], "GET /v1/upstreams/{name}": [500],
            "POST /v1/messages/retry": [503, 507], "POST /v1/messages/cancel": [503, 507],
            "POST /v1/messages/purge": [503, 507], "POST /v1/messages/erase": [503, 507],
        ]
        for route in Route.common {
            let name = "\(route.method.rawValue) \(route.template.text)"
            switch route.action {
            case .message, .backlog, .batch:
                let statuses: Set<Int> = route.method == .get ? [500] : [500, 503, 507]
                expected[name] = statuses
            case .payloads: expected[name] = [503, 507]
            case .plain, .operation, .upstream, .upstreamRoute, .sdk, .console: continue
            }
        }
        for resource in try Self.upstreams().flatMap(\.traits.routes) {
            let name = "\(resource.method.rawValue) /v1/{upstream}/\(resource.template)"
            switch resource.response {
            case .read: expected[name] = [500]
            case .change: expected[name] = [503, 507]
            case .perform: continue
            }
        }
        for (name, statuses) in expected {
            #expect(document.statuses[name]?.isSuperset(of: statuses) == true, "\(name)")
        }
    }

    /// The paths of kinds, under the usual name of an upstream, are those of `/v1/{upstream}/{kind}`.
    @Test func describedKinds_exist_andRequireTheScopeWrite() throws {
        let known = try Self.upstreams().flatMap { upstream in upstream.kinds.map { "\(upstream.name)/\($0)" } }
        let described = document.operations.filter { $0.kind != nil }
        #expect(described.count > 20)
        for operation in described {
            let (upstream, kind) = try #require(operation.kind)
            #expect(known.contains("\(upstream)/\(kind)"), "\(operation.path)")
            #expect(document.access["POST \(operation.path)"] == "write", "\(operation.path)")
        }
    }

    /// Design, section 3.5: a caller that may only read changes nothing and calls nothing.
    @Test func resources_requireTheScopeOfWhatTheyDo() throws {
        for resource in try Self.upstreams().flatMap(\.traits.routes) {
            let expected: RouteAccess =
                switch (resource.method, resource.template) {
                case (_, "api/{command}/{action}"): .open
                case (.get, _), (_, "notifications/parse"): .scope(.read)
                default: .scope(.write)
                }
            #expect(resource.access == expected, "\(resource.template)")
            let documented = document.access["\(resource.method.rawValue) /v1/{upstream}/\(resource.template)"]
            if case .scope(let scope) = expected {
                #expect(documented == scope.rawValue)
            } else {
                #expect(documented == "open")
            }
        }
    }
}

/// The operations that an OpenAPI document lists, and the query parameters of each.
///
/// Reads only as much YAML as `openapi/openapi.yaml` requires: block style, two spaces per level.
struct OpenAPIOutline {
    struct Operation: Hashable, Comparable, CustomStringConvertible {
        let method: String
        let path: String
        /// Nil if the operation validates its query itself.
        let query: Set<String>?

        init(_ method: String, _ path: String, query: Set<String>?) {
            self.method = method
            self.path = path
            self.query = query
        }

        /// The upstream and kind, if the path is that of one kind: an instance of `/v1/{upstream}/{kind}`.
        var kind: (upstream: String, kind: String)? {
            let segments = path.split(separator: "/").map(String.init)
            guard method == "POST", segments.count == 3, segments[0] == "v1", !path.contains("{"),
                !UpstreamName.reserved.contains(segments[1])
            else { return nil }
            return (segments[1], segments[2])
        }

        var description: String {
            "\(method) \(path)?\(query.map { $0.sorted().joined(separator: "&") } ?? "*")"
        }
        static func < (left: Self, right: Self) -> Bool { left.description < right.description }
    }

    let operations: [Operation]
    /// By "GET /path": the scopes that the operation requires, joined by a comma; "open" if it requires no key.
    let access: [String: String]
    /// By "GET /path": the statuses of its responses, unless these are those of another operation.
    let statuses: [String: Set<Int>]

    init(_ yaml: String) {
        let lines = yaml.split(separator: "\n").map(Line.init)
        let shared = Self.sharedQueryParameters(lines)
        var operations: [Operation] = []
        var access: [String: String] = [:]
        var statuses: [String: Set<Int>] = [:]
        var (section, path, method) = ("", "", "")
        var query: Set<String> = []
        func finishOperation() {
            if !method.isEmpty { operations.append(Operation(method, path, query: query)) }
            (method, query) = ("", [])
        }
        for (index, line) in lines.enumerated() {
            if line.indent <= 4 { finishOperation() }
            switch line.indent {
            case 0: section = line.key
            case 2 where section == "paths": path = line.key
            case 4 where section == "paths" && line.key != "parameters": method = line.key.uppercased()
            case 6 where line.text == "security: []": access["\(method) \(path)"] = "open"
            case 8 where line.text.hasPrefix("- key: [") && section == "paths":
                access["\(method) \(path)"] = String(line.text.dropFirst(8).dropLast())
            case 8 where line.text.hasPrefix("\"") && section == "paths":
                let status = Int(line.text.dropFirst().prefix { $0 != "\"" })
                if let status { statuses["\(method) \(path)", default: []].insert(status) }
            case 8 where line.text.hasPrefix("- $ref: \"#/components/parameters/"):
                let name = line.text.split(separator: "/").last?.dropLast() ?? ""
                if let name = shared[String(name)] { query.insert(name) }
            case 8 where line.text.hasPrefix("- name: "):
                if lines[index + 1].text == "in: query" { query.insert(String(line.text.dropFirst(8))) }
            default: continue
            }
        }
        finishOperation()
        self.operations = operations.sorted()
        self.access = access
        self.statuses = statuses
    }

    private struct Line {
        let indent: Int
        let text: Substring
        /// The text without the colon at its end.
        var key: String { String(text.hasSuffix(":") ? text.dropLast() : text) }

        init(_ line: Substring) {
            indent = line.prefix { $0 == " " }.count
            text = line.dropFirst(indent)
        }
    }

    /// The names of the parameters under `components` that belong to a query, by their keys there.
    private static func sharedQueryParameters(_ lines: [Line]) -> [String: String] {
        var names: [String: String] = [:]
        var (section, part, key, name) = ("", "", "", "")
        for line in lines {
            switch line.indent {
            case 0: section = line.key
            case 2: part = line.key
            case 4: key = line.key
            case 6 where line.text.hasPrefix("name: "): name = String(line.text.dropFirst(6))
            case 6 where line.text == "in: query" && section == "components" && part == "parameters": names[key] = name
            default: continue
            }
        }
        return names
    }
}
