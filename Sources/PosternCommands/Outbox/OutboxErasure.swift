import PosternAPI
public import PosternCore
import PosternStore
import PosternUpstream

/// Erases a person's messages: through the gateway that runs on the store, or else in the store itself.
public struct OutboxErasure: Sendable {
    /// The request, as the API takes it.
    private let body: String
    private let isPreview: Bool

    /// What was erased, or would be in a preview.
    public struct Result: Sendable, Equatable {
        /// As the API responds.
        public let json: String
        let isPreview: Bool

        /// A line for each number that is not zero.
        public var text: String {
            let parsed = JSONParser.ofThisThread.parse(Array(json.utf8)) { root in
                let counts = root.members.compactMap { member in
                    member.value.integer.flatMap { $0 > 0 ? "\($0) \(member.key.string ?? "")" : nil }
                }
                return (counts, root["note"]?.string)
            }
            let (found, note) = (try? parsed.get()) ?? ([], nil)
            let end = isPreview ? "Nothing was changed. Add --yes to erase them." : "Erased."
            return ((found.isEmpty ? ["nothing"] : found) + [end] + (note.map { [$0] } ?? [])).joined(separator: "\n")
        }
    }

    /// - Parameters:
    ///   - key: The key of the messages. Nil if they are selected by `pointer` and `value`.
    ///   - isNumber: Whether `value` is a number.
    ///   - isPreview: Whether they are only counted.
    public init(
        upstream: UpstreamName?, key: String?, pointer: String?, value: String?, isNumber: Bool, isPreview: Bool
    ) {
        self.isPreview = isPreview
        body = JSONWriter.object { json in
            if let upstream { json.string("upstream", upstream.description) }
            if let key { json.string("key", key) }
            if let pointer { json.string("pointer", pointer) }
            if let value, isNumber { json.raw("value", value) }
            if let value, !isNumber { json.string("value", value) }
            json.flag("dryRun", isPreview)
        }
    }

    public func run(on location: StoreLocation) async throws(CommandFailure) -> Result {
        if let store = try OfflineStore(location.options) {
            defer { store.close() }
            guard let query = EraseQuery(body) else {
                throw CommandFailure(
                    CommandFailure.no, "The pointer is not a JSON Pointer, or the value is not a number.")
            }
            return Result(json: try await store.erase(query).json(isDryRun: isPreview), isPreview: isPreview)
        }
        guard let address = location.gateway else { throw OutboxEditor.noAddress(of: location) }
        let client = try GatewayClient(address)
        defer { client.close() }
        let answer = try await client.change(.post, "/v1/messages/erase", json: body)
        guard answer.status == 200 else { throw client.refusal(answer) }
        return Result(json: String(decoding: answer.body.dropLast(), as: UTF8.self), isPreview: isPreview)
    }
}
