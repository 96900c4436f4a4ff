import PosternCore

/// What an operator does with messages of several queues, as far as the owner of one of them has to do it. It is relayed as a
/// request is (`RelayedRequest`).
struct RelayedAction: Codable, Equatable {
    private let action: String
    private let ids: [Int64]
    private let state: String?
    let key: String?

    init(action: MessageAction, ids: [MessageID], state: MessageState?, key: String?) {
        (self.action, self.ids, self.state, self.key) = (action.rawValue, ids.map(\.rawValue), state?.name, key)
    }

    /// Nil for what is not one, such as a request of a client.
    init?(_ bytes: [UInt8]) {
        guard bytes.starts(with: Self.mark) else { return nil }
        guard
            let found = JSONRecord.decode(
                String(decoding: bytes.dropFirst(Self.mark.count), as: UTF8.self), as: Self.self)
        else { return nil }
        self = found
    }

    var bytes: [UInt8] { Self.mark + JSONRecord.encode(self).utf8 }

    /// No name of a key has control characters.
    private static let mark: [UInt8] = [1]

    fileprivate var messages: [MessageID] { ids.map { MessageID(rawValue: $0) } }
    fileprivate var wanted: MessageAction? { MessageAction(rawValue: action) }
    fileprivate var inState: MessageState? { MessageState.allCases.first { $0.name == state } }
}

/// The messages with which it was done; nil if this node could not do it.
private struct ActionAnswer: Codable {
    let done: [Int64]?
}

extension Outbox {
    /// Has the owner of a queue do it. `completion` gets what it was done with.
    func relay(
        _ action: RelayedAction, to queue: UpstreamNumber,
        completion: @escaping @Sendable (Result<[MessageID], StoreError>) -> Void
    ) {
        relay(action.bytes, to: queue) { result in
            completion(
                result.flatMap { bytes in
                    guard
                        let done = JSONRecord.decode(String(decoding: bytes, as: UTF8.self), as: ActionAnswer.self)?
                            .done
                    else {
                        return .failure(.notOwner)
                    }
                    return .success(done.map { MessageID(rawValue: $0) })
                })
        }
    }

    /// Does what another node has relayed.
    func perform(_ action: RelayedAction, for request: RelayedRequest) {
        guard let wanted = action.wanted else { return request.respond(nil) }
        performHere(wanted, on: action.messages, in: action.inState, by: action.key) { result in
            let done = (try? result.get()).map { $0.map(\.rawValue) }
            request.respond(Array(JSONRecord.encode(ActionAnswer(done: done)).utf8))
        }
    }
}
