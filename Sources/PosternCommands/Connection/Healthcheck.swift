import PosternCore
import PosternUpstream

/// `postern healthcheck`: whether a gateway is ready.
public enum Healthcheck {
    /// A container is probed every few seconds; a later response counts as a failure.
    public static let patience = Duration.seconds(3)

    /// Throws, with a message of one line, if the gateway is not ready.
    public static func run(_ address: GatewayAddress, within: Duration = patience) async throws(CommandFailure) {
        let client = try GatewayClient(address)
        defer { client.close() }
        let answer: UpstreamResponse
        do throws(TransferFailure) {
            answer = try await client.ask(.get, "/readyz", within: within)
        } catch {
            throw CommandFailure(CommandFailure.no, "\(client.url) does not respond: \(error.detail)")
        }
        guard answer.status != 200 else { return }
        let reasons = answer.member("reasons") ?? "HTTP \(answer.status)"
        throw CommandFailure(CommandFailure.no, "\(client.url) is not ready: \(reasons)")
    }
}
