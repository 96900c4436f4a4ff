import PosternCore
import PosternDelivery
import PosternHTTP
import PosternStore

/// `dryRun=true`: the requests that would be made, with nothing stored and no secret shown.
struct DryRun {
    private let gateway: Gateway
    private static let mask = "***"

    init(_ gateway: Gateway) { self.gateway = gateway }

    func answer(_ order: Order) -> HTTPResponse {
        guard order.rejected.isEmpty else { return order.invalidPayload.response(to: order.head) }
        var requests: [String] = []
        for target in gateway.targets {
            let messages = zip(order.messages, order.kinds).filter { $1.target === target }.enumerated().map {
                preview($1.0, place: $0, of: target)
            }
            let credentials = zip(order.messages, order.kinds).filter { $1.target === target }.compactMap(
                \.0.credential)
            let notes = Dictionary(credentials.map { ($0.owner, $0.note) }, uniquingKeysWith: { $1 })
            var rest = messages[...]
            while !rest.isEmpty {
                let part = firstBatch(of: rest, target)
                let (request, count) = plan(part, target, notes)
                requests.append(request)
                rest = rest.dropFirst(max(1, count))
            }
        }
        return .json(
            200,
            JSONText.object { json in
                json.flag("dryRun", true)
                json.number("accepted", order.messages.count)
                json.raw("requests", JSONText.array(requests))
            })
    }

    /// As if it came after all there is.
    private func preview(_ message: NewMessage, place: Int, of target: Target) -> Message {
        Message(
            id: MessageID(sequence: 1 << 54 + Int64(place), upstream: target.queue.number), kind: message.kind,
            lane: message.lane, key: message.key, acceptedAt: message.acceptedAt,
            payload: Array(message.bytes[message.range]))
    }

    private func firstBatch(of messages: ArraySlice<Message>, _ target: Target) -> [Message] {
        let limits = target.worker.limits
        var bytes = limits.overhead
        var batch: [Message] = []
        for message in messages {
            let more = message.payload.count + (batch.isEmpty ? 0 : 1)
            guard batch.isEmpty || (batch.count < limits.maxMessages && bytes + more <= limits.maxBytes) else { break }
            bytes += more
            batch.append(message)
        }
        return batch
    }

    /// `notes`: what goes with the credentials that were handed in, by owner.
    private func plan(
        _ messages: [Message], _ target: Target, _ notes: [String: String]
    ) -> (json: String, count: Int) {
        let now = gateway.time.now
        let token = Token(value: Self.mask, renewAt: now, expiresAt: nil)
        let plan = try? gateway.outbox.withState(of: target.queue.number) { stored in
            let state = MaskedState(stored: stored, mask: Self.mask, notes: notes)
            // As if flushed: what is asked is what goes out, not when.
            return try target.upstream.plan(
                for: messages,
                in: PlanContext(now: now, token: token, state: state, flushedThrough: messages.last?.id))
        }
        switch plan {
        case .send(let request, let count):
            return (show(request, of: target, carrying: count), count)
        case .settle(let count, _, let reason):
            return (
                JSONText.object { json in
                    json.string("upstream", target.name.description)
                    json.string("unsent", reason)
                }, count
            )
        case .park: return (waiting(for: .token, target), messages.count)
        case .wait(let reason, _):
            return (waiting(for: reason, target), messages.count)
        case nil: return ("null", messages.count)
        }
    }

    private func waiting(for reason: WaitingFor, _ target: Target) -> String {
        JSONText.object { json in
            json.string("upstream", target.name.description)
            json.string("waitingFor", reason.rawValue)
        }
    }

    private func show(_ request: UpstreamRequest, of target: Target, carrying count: Int) -> String {
        let secrets = (target.upstream.secrets + request.proofs).filter { !$0.isEmpty }
        func masked(_ text: String) -> String {
            secrets.reduce(text) {
                $0.split(separator: $1, omittingEmptySubsequences: false).joined(separator: Self.mask)
            }
        }
        return JSONText.object { json in
            json.string("upstream", target.name.description)
            json.number("messages", count)
            json.string("method", request.method.rawValue)
            json.string("url", masked(request.url))
            json.object("headers") { headers in
                for header in request.headers { headers.string(header.name, masked(header.value)) }
                if request.gzip { headers.string("Content-Encoding", "gzip") }
            }
            json.string("body", masked(String(decoding: request.body, as: UTF8.self)))
        }
    }
}

/// The state as it is, except that everybody has a credential, which says nothing: what was handed in is held nowhere,
/// and what is held is not to be shown.
private struct MaskedState: UpstreamState {
    let stored: any UpstreamState
    let mask: String
    /// By owner.
    let notes: [String: String]

    func value(of key: String) throws -> [UInt8]? { try stored.value(of: key) }
    func values(below key: String, atMost most: Int) throws -> [(key: String, value: [UInt8])] {
        try stored.values(below: key, atMost: most)
    }
    func queued(inLane name: String, atMost most: Int) throws -> Int { try stored.queued(inLane: name, atMost: most) }
    func isQueued(_ id: MessageID) throws -> Bool { try stored.isQueued(id) }
    func credential(of owner: String) throws -> HeldCredential? {
        try HeldCredential(value: Array(mask.utf8), note: notes[owner] ?? stored.credential(of: owner)?.note ?? "")
    }
}
