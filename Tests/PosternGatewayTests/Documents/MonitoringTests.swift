import Foundation
import PosternTestKit
import Testing

/// The dashboard and the alerts name metrics that exist, and every alert is explained to the operator.
@Suite struct MonitoringTests {
    private static let rules = "deploy/prometheus/alerts.yaml"
    private static let dashboard = "deploy/grafana/postern.json"
    private static let runbook = "docs/operations.md"

    private func text(_ path: String) throws -> String {
        String(decoding: try Fixture.bytes(inPackage: path), as: UTF8.self)
    }

    /// The metrics of the gateway, as its source names them.
    private func metrics() throws -> Set<String> {
        let sources = try Page.files { $0.hasPrefix("Sources/") && $0.hasSuffix(".swift") }.map(text)
        return Set(sources.flatMap { $0.matches(of: /"((?:postern|process)_\w+)"/).map { String($0.1) } })
    }

    /// The names in an expression, without the suffixes of a histogram's series.
    private func unknown(in text: String, of metrics: Set<String>) -> Set<String> {
        Set(
            text.matches(of: /\b(?:postern|process)_\w+/).map { String($0.output) }.filter { name in
                let family = name.replacing(/_(bucket|sum|count)$/, with: "")
                return !metrics.contains(name) && !metrics.contains(family)
            })
    }

    private func alerts() throws -> [String] {
        try text(Self.rules).matches(of: /- alert: (\w+)/).map { String($0.1) }
    }

    @Test(arguments: [rules, dashboard]) func everyMetricThatIsNamed_exists(path: String) throws {
        let metrics = try metrics()
        #expect(metrics.contains("postern_outbox_bytes") && metrics.contains("process_open_fds"))
        #expect(try unknown(in: text(path), of: metrics) == [])
        #expect(unknown(in: "rate(postern_outbox_bites[5m])", of: metrics) == ["postern_outbox_bites"])
    }

    @Test func everyAlert_hasItsRunbook_andNoOther() throws {
        let page = try text(Self.runbook)
        let alerts = try alerts()
        #expect(alerts.count == Set(alerts).count && alerts.count > 10)
        #expect(page.matches(of: /\n### (Postern\w+)\n/).map { String($0.1) }.sorted() == alerts.sorted())
    }

    @Test func everyMetricOfTheDesign_isOnTheDashboard() throws {
        let design = try text("docs/design.md")
        let section = try #require(design.split(separator: "## 7. Metrics").last?.split(separator: "\n## ").first)
        let dashboard = try text(Self.dashboard)
        // After that word, the design lists names that do not exist yet.
        let parts = section.components(separatedBy: "*(planned)*")
        func names(_ text: String) -> Set<String> { Set(text.matches(of: /`(postern_\w+)/).map { String($0.1) }) }
        let built = names(parts[0]).subtracting(parts.count > 1 ? names(parts[1]) : [])
        #expect(built.count > 20)
        #expect(built.filter { !dashboard.contains($0) } == [])
    }
}
