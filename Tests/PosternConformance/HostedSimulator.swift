import Logging
package import PosternCore
package import PosternSimulatorKit
import PosternTransport

/// A simulator behind its server, and the gateway's own transport in front of it.
package final class HostedSimulator: Sendable {
    package let host: SimulatorHost
    private let loop: CurlLoop
    private let type: SimulatorType
    package var url: String { host.urls[type.name]! }

    package init(_ type: SimulatorType, faults: String = "", keep: SimulatorHost.Keep = .texts) throws {
        self.type = type
        host = try SimulatorHost.start(
            [type], port: 0, faults: Faults(parsing: faults), seed: 1, keep: keep, logger: Logger(label: "test"))
        loop = try CurlLoop(.init(version: "0"))
    }

    deinit {
        loop.stop()
        host.stop()
    }

    package func send(
        _ method: UpstreamRequest.Method, _ path: String, headers: [(name: String, value: String)] = [],
        _ body: String = "", timeout: Duration = .seconds(20)
    ) async -> TransferResult {
        await withCheckedContinuation { done in
            loop.submit(
                UpstreamRequest(method: method, url: url + path, headers: headers, body: Array(body.utf8)),
                options: TransferOptions(requestTimeout: timeout)
            ) { done.resume(returning: $0) }
        }
    }

    package func text(
        _ path: String, _ method: UpstreamRequest.Method = .get, _ body: String = ""
    ) async throws -> String {
        String(decoding: try await send(method, path, body).get().body, as: UTF8.self)
    }
}

extension TransferResult {
    package var status: Int? { try? get().status }
    package var reason: TransferFailure.Reason? {
        if case .failure(let failure) = self { failure.reason } else { nil }
    }
}
