import Foundation
import Logging
import PosternCore
import PosternSimulatorKit
import PosternSimulators
import PosternTestKit
import Testing

@testable import PosternGateway

/// What goes with every type of upstream.
@Suite struct UpstreamRegistryTests {
    private let top = URL(fileURLWithPath: Fixture.top)

    private func upstreams() throws -> [RegisteredUpstream] {
        try UpstreamRegistry.all.map { RegisteredUpstream(try $0.make(try #require(UpstreamName($0.name)))) }
    }

    @Test func everyType_hasASimulator_itsName_aPageAndAConformanceSuite() throws {
        let folder = top.appendingPathComponent("Tests/Upstreams")
        let files = try FileManager.default.subpathsOfDirectory(atPath: folder.path).filter { $0.hasSuffix(".swift") }
        let tests = try files.map { try String(contentsOf: folder.appendingPathComponent($0), encoding: .utf8) }
        let slices = try Slice.all()
        #expect(slices.map(\.type).sorted() == UpstreamRegistry.all.map(\.name).sorted())
        #expect(SimulatorRegistry.all.map(\.name) == UpstreamRegistry.all.map(\.name))
        for type in UpstreamRegistry.all {
            #expect(UpstreamName(type.name) != nil)
            #expect(tests.contains { $0.contains("try rule.check(.\(type.name))") }, "\(type.name) has no suite")
            let slice = try #require(slices.first { $0.type == type.name }, "\(type.name) has no folder")
            let page = top.appendingPathComponent(slice.page).path
            #expect(FileManager.default.fileExists(atPath: page), "\(type.name) has no page")
        }
        #expect(Set(UpstreamRegistry.all.map(\.name)).count == UpstreamRegistry.all.count)
    }

    @Test func simulators_haveThePortsBehindTheFirst_inTheRegistrysOrder() throws {
        for first in stride(from: 23_000 as UInt16, to: 25_000, by: 50) {
            let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
            guard let host = try? SimulatorHost.start(SimulatorRegistry.all, port: first, logger: logger) else {
                continue
            }
            host.stop()
            for (index, type) in UpstreamRegistry.all.enumerated() {
                #expect(host.urls[type.name] == "http://127.0.0.1:\(Int(first) + index)")
            }
            return
        }
        Issue.record("no free ports")
    }

    /// The routes that are the same for all types are compared in `OpenAPITests`.
    @Test func resources_areThoseThatTheAPIDescribes() throws {
        let document = OpenAPIOutline(
            String(decoding: try Fixture.bytes(inPackage: "openapi/openapi.yaml"), as: UTF8.self))
        let known = try upstreams().flatMap(\.resources)
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

    /// The paths of kinds, under the usual name of an upstream, are those of `/v1/{upstream}/{kind}`.
    @Test func describedKinds_exist_andRequireTheScopeWrite() throws {
        let document = OpenAPIOutline(
            String(decoding: try Fixture.bytes(inPackage: "openapi/openapi.yaml"), as: UTF8.self))
        let known = try upstreams().flatMap { upstream in upstream.kinds.map { "\(upstream.name)/\($0)" } }
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
        let document = OpenAPIOutline(
            String(decoding: try Fixture.bytes(inPackage: "openapi/openapi.yaml"), as: UTF8.self))
        for resource in try upstreams().flatMap(\.resources) {
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
