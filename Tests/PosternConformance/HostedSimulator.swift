import Logging
import PosternCore
package import PosternSimulatorKit
package import PosternTestKit
import PosternTransport
package import PosternUpstream
import Testing

/// A simulator with its server, and the gateway's transport as its client. It outlives gateways that are killed.
package final class HostedSimulator: Sendable {
    package let host: SimulatorHost
    package let url: String
    package let port: UInt16
    private let loop: CurlLoop

    package init(_ type: SimulatorType, faults: String = "", keep: SimulatorHost.Keep = .texts) throws {
        let logger = Logger(label: "simulator") { _ in SwiftLogNoOpLogHandler() }
        host = try SimulatorHost.start(
            [type], port: 0, faults: Faults(parsing: faults), seed: 1, keep: keep, workerThreads: 2, logger: logger)
        url = try #require(host.urls[type.name])
        port = try #require(url.split(separator: ":").last.flatMap { UInt16($0) })
        loop = try CurlLoop(.init(version: "0"))
    }

    deinit {
        loop.stop()
        host.stop()
    }

    // MARK: Through the transport

    package func send(
        _ method: UpstreamRequest.Method, _ path: String, headers: [(name: String, value: String)] = [],
        _ body: String = ""
    ) async -> TransferResult {
        await loop.send(
            UpstreamRequest(method: method, url: url + path, headers: headers, body: Array(body.utf8)),
            options: TransferOptions(requestTimeout: longestWait))
    }

    // MARK: Directly

    package func ask(_ method: String, _ path: String, _ body: String = "") throws -> HTTPClient.Answer {
        try HTTPClient(port: port).ask(method, path, Array(body.utf8))
    }

    package func play(_ faults: String) throws { #expect(try ask("POST", "/faults", faults).status == 200) }

    /// Sets members of its `/control`, and returns the resulting state.
    @discardableResult package func control(_ change: String? = nil) throws -> JSON {
        if let change { #expect(try ask("POST", "/control", change).status == 200, "\(change)") }
        return try ask("GET", "/control").json
    }

    package var received: JSON { get throws { try ask("GET", "/received").json } }

    /// The values of a member of every item in order of arrival, each with the sequence that it belongs to.
    package func values(of field: String) throws -> [(source: String, value: String)] {
        try ask("GET", "/received?field=\(field)").text.split(separator: "\n").map { line in
            let parts = line.split(separator: "\t", omittingEmptySubsequences: false)
            return (String(parts[0]), parts.count > 1 ? String(parts[1]) : "")
        }
    }
}

extension TransferResult {
    package var status: Int? { try? get().status }
    package var reason: TransferFailure.Reason? {
        if case .failure(let failure) = self { failure.reason } else { nil }
    }
}
