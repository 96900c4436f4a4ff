import PosternCore

/// `postern healthcheck`: whether a gateway is ready.
public enum Healthcheck {
    /// A container is asked every few seconds; an answer later than this is none.
    public static let patience = Duration.seconds(3)

    /// Throws, with one line, when it is not.
    public static func run(_ address: GatewayAddress, within: Duration = patience) async throws(CommandFailure) {
        let client = try GatewayClient(address)
        defer { client.close() }
        let answer: UpstreamResponse
        do throws(TransferFailure) {
            answer = try await client.ask(.get, "/readyz", within: within)
        } catch {
            throw CommandFailure(CommandFailure.no, "\(client.url) does not answer: \(error.detail)")
        }
        guard answer.status != 200 else { return }
        let reasons = answer.member("reasons") ?? "answered \(answer.status)"
        throw CommandFailure(CommandFailure.no, "\(client.url) is not ready: \(reasons)")
    }
}
