public import PosternCore
public import PosternStore
import PosternUpstream

/// Changes messages: through the gateway that runs on the store, or else in the store itself.
public struct OutboxEditor: Sendable {
    /// What to change.
    public enum Selection: Sendable {
        case ids([MessageID])
        /// All that match. The filter has a state.
        case all(MessageFilter)
    }

    private let location: StoreLocation

    public init(_ location: StoreLocation) { self.location = location }

    /// Queues messages again, which have to be failed or dropped, cancels them, which have to be queued and not being
    /// sent, or removes settled ones. Of `.ids`, others are reported and not changed. With `isPreview`, those of `.all` are
    /// only counted.
    public func edit(
        _ action: MessageAction, _ selection: Selection, isPreview: Bool = false
    ) async throws(CommandFailure) -> OutboxEditResult {
        if case .all(let filter) = selection, let upstream = filter.upstream {
            _ = try location.summaries().upstream(upstream)
        }
        if let store = try OfflineStore(location.options) {
            defer { store.close() }
            return try await store.edit(action, selection, isPreview: isPreview)
        }
        guard let address = location.gateway else { throw Self.noAddress(of: location) }
        let client = try GatewayClient(address)
        defer { client.close() }
        return try await client.edit(action, selection, isPreview: isPreview)
    }

    static func noAddress(of location: StoreLocation) -> CommandFailure {
        CommandFailure(
            CommandFailure.running,
            "Another process is running on the store at \(location.path). Specify its address with --url.")
    }
}

extension GatewayClient {
    /// A request for very many messages takes the gateway some time.
    private static let patience = Duration.seconds(600)

    fileprivate func edit(
        _ action: MessageAction, _ selection: OutboxEditor.Selection, isPreview: Bool
    ) async throws(CommandFailure) -> OutboxEditResult {
        switch selection {
        case .ids(let ids): try await edit(action, ids)
        case .all(let filter): try await edit(action, filter, isPreview: isPreview)
        }
    }

    private func edit(
        _ action: MessageAction, _ ids: [MessageID]
    ) async throws(CommandFailure) -> OutboxEditResult {
        var edit = OutboxEditResult(action, gatewayURL: url)
        for id in ids {
            let answer =
                switch action {
                case .retry: try await change(.post, "/v1/messages/\(id)/retry")
                case .cancel: try await change(.delete, "/v1/messages/\(id)")
                case .purge: preconditionFailure("the command removes no single messages")
                }
            switch answer.status {
            case 200..<300: edit.count += 1
            case 404, 409: edit.refused.append(.init(id, answer.problem))
            default: throw refusal(answer)
            }
        }
        return edit
    }

    private func edit(
        _ action: MessageAction, _ filter: MessageFilter, isPreview: Bool
    ) async throws(CommandFailure) -> OutboxEditResult {
        let body = JSONWriter.object { json in
            let members = [
                ("upstream", filter.upstream?.description), ("state", filter.state?.name),
                ("kind", filter.kind?.description), ("key", filter.key), ("lane", filter.lane),
                ("createdAfter", filter.createdAfter?.description),
                ("createdBefore", filter.createdBefore?.description), ("errorClass", filter.errorClass?.rawValue),
                ("errorText", filter.errorText), ("group", filter.group?.description),
                ("settledBefore", filter.settledBefore?.description),
            ]
            for case (let name, let value?) in members { json.string(name, value) }
            json.flag("dryRun", isPreview)
        }
        let answer = try await change(.post, "/v1/messages/\(action.rawValue)", json: body)
        guard (200..<300).contains(answer.status), let count = answer.member(action.past).flatMap({ Int($0) })
        else { throw refusal(answer) }
        return OutboxEditResult(action, count: count, gatewayURL: url, isPreview: isPreview)
    }

    func change(
        _ method: UpstreamRequest.Method, _ path: String, json: String? = nil
    ) async throws(CommandFailure) -> UpstreamResponse {
        do throws(TransferFailure) {
            return try await ask(method, path, json: json, within: Self.patience)
        } catch {
            throw CommandFailure(
                CommandFailure.running,
                """
                The store is changed through its gateway, and none answers at \(url): \(error.detail). Say where it \
                listens with --url.
                """)
        }
    }

    func refusal(_ answer: UpstreamResponse) -> CommandFailure {
        CommandFailure(CommandFailure.no, "The gateway at \(url) responded: \(answer.problem)")
    }
}
