import Foundation
import PosternCore
import PosternGateway
import PosternThreads
import PosternTransport
import PosternUpstream

/// A client of a running gateway's API.
final class GatewayClient: Sendable {
    /// Without a slash at the end.
    let url: String
    private let key: String?
    private let address: GatewayAddress
    private let loop: CurlLoop

    /// Close it when done.
    ///
    /// - Parameter key: An API key, by default that of the environment.
    init(
        _ address: GatewayAddress,
        key: String? = ProcessInfo.processInfo.environment[ConfigurationSources.commandKeyVariable]
    ) throws(CommandFailure) {
        self.key = key.flatMap { $0.isEmpty ? nil : $0 }
        self.address = address
        var url = address.url
        while url.hasSuffix("/") { url.removeLast() }
        self.url = url
        do throws(CurlLoop.StartFailure) {
            loop = try CurlLoop(.init(version: PosternVersion.current))
        } catch {
            throw CommandFailure(SystemLimitError.exitCode, "\(error).")
        }
    }

    /// Ends the client's thread. Not to be called while a request is running.
    public func close() { loop.stop() }

    /// `json`: the body; nil for none. `within`: for the whole exchange.
    func ask(
        _ method: UpstreamRequest.Method, _ path: String, json: String? = nil, within: Duration
    ) async throws(TransferFailure) -> UpstreamResponse {
        try await ask(
            method, path, headers: json == nil ? [] : [("Content-Type", "application/json")],
            body: Array((json ?? "").utf8), within: within)
    }

    func ask(
        _ method: UpstreamRequest.Method, _ path: String, headers: [(String, String)], body: [UInt8], within: Duration
    ) async throws(TransferFailure) -> UpstreamResponse {
        var headers = headers
        if let key { headers.append(("Authorization", "Bearer \(key)")) }
        let request = UpstreamRequest(method: method, url: url + path, headers: headers, body: body)
        let options = TransferOptions(
            connectTimeout: min(within, .seconds(5)), requestTimeout: within, trust: address.trust,
            clientCertificate: address.clientCertificateFile.map { .init(certificateFile: $0, keyFile: $0) })
        return try await loop.send(request, options: options).get()
    }
}

extension UpstreamResponse {
    /// Members of the body's object that are strings or numbers, or arrays of strings joined by "; ".
    func member(_ name: String) -> String? {
        let found = JSONParser.ofThisThread.parse(body) { root -> String? in
            guard root.kind == .object, let value = root[named: name] else { return nil }
            switch value.kind {
            case .string: return value.string
            case .array: return value.elements.compactMap(\.string).joined(separator: "; ")
            case .number: return value.integer.map(String.init)
            case .object, .true, .false, .null: return nil
            }
        }
        return try? found.get()
    }

    /// The `detail` of a problem document, or the status if the response is not one.
    var problem: String { member("detail") ?? "HTTP \(status)" }
}
