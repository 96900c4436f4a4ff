public import PosternCore
public import PosternStore

/// Changes messages: through the gateway that runs on the store, or else in the store itself.
public struct OutboxEditor: Sendable {
    private let location: StoreLocation

    public init(_ location: StoreLocation) { self.location = location }

    /// Queues these messages again. Messages that are not failed or dropped are reported and not changed.
    public func retry(_ ids: [MessageID]) async throws(CommandFailure) -> OutboxEditResult {
        guard let store = try OfflineStore(location.path) else {
            return try await askGateway { client throws(CommandFailure) in try await client.retry(ids) }
        }
        defer { store.close() }
        return try await store.retry(ids)
    }

    /// All that match; `filter.state` is failed or dropped.
    public func retry(_ filter: MessageFilter) async throws(CommandFailure) -> OutboxEditResult {
        if let upstream = filter.upstream { _ = try location.summaries().upstream(upstream) }
        guard let store = try OfflineStore(location.path) else {
            return try await askGateway { client throws(CommandFailure) in try await client.retry(filter) }
        }
        defer { store.close() }
        return try await store.retry(filter)
    }

    /// Cancels these messages. Messages that are not queued, or are being sent, are reported and not changed.
    public func cancel(_ ids: [MessageID]) async throws(CommandFailure) -> OutboxEditResult {
        guard let store = try OfflineStore(location.path) else {
            return try await askGateway { client throws(CommandFailure) in try await client.cancel(ids) }
        }
        defer { store.close() }
        return try await store.cancel(ids)
    }

    /// All queued messages that match; with `isPreview` they are only counted.
    public func cancel(_ filter: MessageFilter, isPreview: Bool) async throws(CommandFailure) -> OutboxEditResult {
        if let upstream = filter.upstream { _ = try location.summaries().upstream(upstream) }
        var filter = filter
        filter.state = .queued
        guard let store = try OfflineStore(location.path) else {
            return try await askGateway { [filter] client throws(CommandFailure) in
                try await client.cancel(filter, isPreview: isPreview)
            }
        }
        defer { store.close() }
        return try await store.cancel(filter, isPreview: isPreview)
    }

    /// Deletes settled messages, and returns how many. Fails while a gateway is running, because its API has no such
    /// request.
    public func purge(
        _ state: MessageState, of upstream: UpstreamName, settledBefore: Timestamp?
    ) async throws(CommandFailure) -> Int {
        guard let store = try OfflineStore(location.path) else {
            throw CommandFailure(
                CommandFailure.running,
                """
                Another process is running on the store at \(location.path). Stop the gateway, purge, and start it \
                again; nothing that is queued is lost. Or lower outbox.deliveredRetentionSeconds or \
                outbox.failedRetentionSeconds and restart it: it then removes settled messages that are older by itself.
                """)
        }
        defer { store.close() }
        let number = try location.summaries().upstream(upstream).number
        return try await store.purge(PurgeRequest(state, of: number, settledBefore: settledBefore))
    }

    /// How many messages `purge` would remove. Also next to a running gateway.
    public func previewOfPurge(
        _ state: MessageState, of upstream: UpstreamName, settledBefore: Timestamp?
    ) throws(CommandFailure) -> Int {
        let ledger = try location.summaries().upstream(upstream).ledger
        guard let settledBefore else { return ledger.counts[state] - ledger.purged[state] }
        do throws(StoreError) {
            let view = try StoreView(path: location.path)
            let filter = MessageFilter(upstream: upstream, state: state)
            var (count, next) = (0, MessageID?.none)
            repeat {
                let page = try view.messages(filter, after: next, limit: 500, payload: false)
                count += page.messages.count { $0.settledAt.map { $0 < settledBefore } ?? false }
                next = page.next
            } while next != nil
            return count
        } catch {
            throw CommandFailure(error)
        }
    }

    private func askGateway(
        _ body: (GatewayClient) async throws(CommandFailure) -> OutboxEditResult
    ) async throws(CommandFailure) -> OutboxEditResult {
        guard let address = location.gateway else {
            throw CommandFailure(
                CommandFailure.running,
                "Another process is running on the store at \(location.path). Specify its address with --url.")
        }
        let client = try GatewayClient(address)
        defer { client.close() }
        return try await body(client)
    }
}

extension GatewayClient {
    /// A request for very many messages takes the gateway some time.
    private static let patience = Duration.seconds(600)

    func retry(_ ids: [MessageID]) async throws(CommandFailure) -> OutboxEditResult {
        try await each(ids, .retried) { id in (.post, "/v1/messages/\(id)/retry") }
    }

    func cancel(_ ids: [MessageID]) async throws(CommandFailure) -> OutboxEditResult {
        try await each(ids, .cancelled) { id in (.delete, "/v1/messages/\(id)") }
    }

    private func each(
        _ ids: [MessageID], _ action: OutboxEditResult.Action,
        _ request: (MessageID) -> (UpstreamRequest.Method, String)
    ) async throws(CommandFailure) -> OutboxEditResult {
        var edit = OutboxEditResult(action, gatewayURL: url)
        for id in ids {
            let (method, path) = request(id)
            let answer = try await answer(to: method, path)
            switch answer.status {
            case 200..<300: edit.count += 1
            case 404, 409: edit.refused.append(.init(id, answer.problem))
            default: throw refusal(answer)
            }
        }
        return edit
    }

    func retry(_ filter: MessageFilter) async throws(CommandFailure) -> OutboxEditResult {
        try await all(filter, .retried, "/v1/messages/retry", isPreview: false)
    }

    func cancel(_ filter: MessageFilter, isPreview: Bool) async throws(CommandFailure) -> OutboxEditResult {
        try await all(filter, .cancelled, "/v1/messages/cancel", isPreview: isPreview)
    }

    private func all(
        _ filter: MessageFilter, _ action: OutboxEditResult.Action, _ path: String, isPreview: Bool
    ) async throws(CommandFailure) -> OutboxEditResult {
        let body = JSONWriter.object { json in
            let members = [
                ("upstream", filter.upstream?.description), ("state", filter.state?.name),
                ("kind", filter.kind?.description), ("key", filter.key), ("lane", filter.lane),
                ("createdAfter", filter.createdAfter?.description),
                ("createdBefore", filter.createdBefore?.description), ("errorClass", filter.errorClass?.rawValue),
                ("errorText", filter.errorText), ("group", filter.group?.description),
            ]
            for case (let name, let value?) in members { json.string(name, value) }
            json.flag("dryRun", isPreview)
        }
        let answer = try await answer(to: .post, path, json: body)
        guard (200..<300).contains(answer.status), let count = answer.member(action.rawValue).flatMap({ Int($0) })
        else { throw refusal(answer) }
        return OutboxEditResult(action, count: count, gatewayURL: url, isPreview: isPreview)
    }

    private func answer(
        to method: UpstreamRequest.Method, _ path: String, json: String? = nil
    ) async throws(CommandFailure) -> UpstreamResponse {
        do throws(TransferFailure) {
            return try await ask(method, path, json: json, within: Self.patience)
        } catch {
            throw CommandFailure(
                CommandFailure.running,
                """
                Another process is running on the store, and no gateway answers at \(url): \(error.detail). Say where \
                it listens with --url.
                """)
        }
    }

    private func refusal(_ answer: UpstreamResponse) -> CommandFailure {
        CommandFailure(CommandFailure.no, "The gateway at \(url) responded: \(answer.problem)")
    }
}
