import PosternCore
import PosternMetrics
import PosternStore
import PosternUpstream

/// The messages of one request: the valid ones, and the faults of the others.
struct IngestRequest: Sendable {
    let preferences: Preferences
    /// Whether to show what would be sent, and store nothing.
    let isDryRun: Bool
    /// Whether the request is a single object; the response is one, too.
    var isSingle = false
    var messages: [NewMessage] = []
    /// Upstream and kind of each message, for the counters.
    var kinds: [(upstream: ConfiguredUpstream, kind: ConfiguredUpstream.KindEndpoint)] = []
    /// The index of each message in the request. It differs from the index in `messages` once a payload was rejected.
    var indices: [Int] = []
    /// The indices in the request of the payloads that became messages of several kinds.
    var fannedOut: Set<Int> = []
    var rejected: [Rejected] = []
    /// The identity of each message, if they are events; empty otherwise.
    var events: [EventIdentity] = []
    /// Whether one of the messages contains a credential.
    var handsInCredentials = false

    struct Rejected: Sendable {
        let index: Int
        /// The line in the body, from 1; nil unless each line is a message.
        var line: Int?
        let payload: InvalidPayload
        let upstream: ConfiguredUpstream?
    }

    /// The messages on their way to the writer. A request that waits to be answered does not keep their payloads.
    mutating func takeMessages() -> [NewMessage] {
        defer { messages = [] }
        return messages
    }

    /// What is recorded of a request without an `Idempotency-Key`.
    var identities: RequestRecord? { events.isEmpty ? nil : .events(events) }

    /// Removes the last messages, from that position on.
    mutating func removeMessages(from position: Int) {
        let count = messages.count - position
        messages.removeLast(count)
        kinds.removeLast(count)
        indices.removeLast(count)
    }

    /// The name of the leg of a message, by its position in `messages`.
    func leg(of position: Int) -> String { "\(kinds[position].upstream.name)/\(kinds[position].kind.text)" }

    /// What is wrong with a message, and its leg if it is one of a fan-out.
    func detail(_ detail: String, of position: Int) -> String {
        fannedOut.contains(indices[position]) ? "\(detail), as \(leg(of: position)) requires" : detail
    }

    // MARK: Leaving out what the store rejects

    /// The messages that `refusal` is about, by their index in `messages`, with their faults. Empty if it is about the
    /// whole request, or if nothing may be left out of it.
    func faults(in refusal: AppendError) -> [Int: (fault: PayloadError, slug: ProblemSlug)] {
        guard preferences.isLenient, !isSingle else { return [:] }
        switch refusal {
        case .reused(let indices):
            return Dictionary(uniqueKeysWithValues: indices.map { ($0, (.reusedIdentity, .idempotencyMismatch)) })
        case .refused(let refused):
            return Dictionary(
                uniqueKeysWithValues: refused.map {
                    (
                        $0.index,
                        (
                            PayloadError($0.refusal.pointer, detail($0.refusal.detail, of: $0.index)),
                            $0.refusal.reason.slug
                        )
                    )
                })
        case .queueFull, .neverFits, .notAdmitted, .recorded, .store: return [:]
        }
    }

    /// The request with `messages`, without those that have faults, and the other legs of these.
    func leavingOut(
        _ faults: [Int: (fault: PayloadError, slug: ProblemSlug)], of messages: [NewMessage]
    ) -> IngestRequest {
        var rest = self
        (rest.messages, rest.kinds, rest.indices, rest.events) = ([], [], [], [])
        let faulty = Dictionary(grouping: faults.keys.sorted()) { indices[$0] }
        for (index, message) in messages.enumerated() {
            if let legs = faulty[indices[index]] {
                guard legs[0] == index else { continue }
                var found = PayloadErrors()
                for (fault, _) in legs.compactMap({ faults[$0] }) { found.add(fault.pointer, fault.detail) }
                rest.rejected.append(
                    Rejected(index: indices[index], payload: InvalidPayload(found), upstream: kinds[index].upstream))
            } else {
                rest.messages.append(message)
                rest.kinds.append(kinds[index])
                rest.indices.append(indices[index])
                if !events.isEmpty { rest.events.append(events[index]) }
            }
        }
        rest.rejected.sort { $0.index < $1.index }
        return rest
    }

    // MARK: Counting

    /// - Parameter repeated: Indices of the messages that had been accepted before.
    func countAcceptances(besides repeated: Set<Int>) {
        guard repeated.isEmpty else {
            for (index, kind) in kinds.enumerated() where !repeated.contains(index) { kind.kind.accepted.add() }
            return
        }
        // Most requests hold one kind.
        guard let first = kinds.first else { return }
        if kinds.count == 1 {
            first.kind.accepted.add()
        } else if kinds.allSatisfy({ $0.kind.accepted === first.kind.accepted }) {
            first.kind.accepted.add(kinds.count)
        } else {
            for kind in kinds { kind.kind.accepted.add() }
        }
    }

    func countRejections(in metrics: Metrics) {
        for rejected in rejected {
            metrics.refused(rejected.upstream.map { "\($0.name)" } ?? "unknown", ProblemSlug.invalidPayload.rawValue)
                .add()
        }
    }

    func countRejections(_ faults: [Int: (fault: PayloadError, slug: ProblemSlug)], in metrics: Metrics) {
        for (index, (_, slug)) in faults { metrics.refused("\(kinds[index].upstream.name)", slug.rawValue).add() }
    }

    /// Counts all messages of the request, none of which was stored.
    func countRefusal(_ slug: ProblemSlug, in metrics: Metrics) {
        for kind in kinds { metrics.refused("\(kind.upstream.name)", slug.rawValue).add() }
    }
}

extension PayloadError {
    /// The error of an event whose source and id another event has.
    static let reusedIdentity = PayloadError("", "has the source and id of another event, which was sent before")
}

extension AcceptanceError.Reason {
    var slug: ProblemSlug {
        switch self {
        case .unknownSession: .unknownSession
        case .invalidPayload: .invalidPayload
        case .full: .outboxFull
        case .conflict: .conflict
        }
    }
}
