import Foundation
import Logging
import PosternCore
import PosternSimulatorKit
import PosternSimulators
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternGateway

/// The files and tests that every type of upstream has.
@Suite struct UpstreamRegistryTests {
    private let top = URL(fileURLWithPath: Fixture.top)

    @Test func everyType_hasASimulator_itsName_aPageAndAConformanceSuite() throws {
        let folder = top.appendingPathComponent("Tests/Upstreams")
        let files = try FileManager.default.subpathsOfDirectory(atPath: folder.path).filter { $0.hasSuffix(".swift") }
        let tests = try files.map { try String(contentsOf: folder.appendingPathComponent($0), encoding: .utf8) }
        let slices = try Slice.all()
        #expect(slices.map(\.type).sorted() == UpstreamRegistry.all.map(\.name).sorted())
        #expect(SimulatorRegistry.all.map(\.name) == UpstreamRegistry.all.map(\.name))
        for type in UpstreamRegistry.all {
            #expect(UpstreamName(type.name) != nil)
            #expect(tests.contains { $0.contains("try await rule.check(.\(type.name))") }, "\(type.name) has no suite")
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
}
