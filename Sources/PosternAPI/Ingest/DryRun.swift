import PosternCore
import PosternDelivery
import PosternHTTP
import PosternStore

/// `dryRun=true`: the requests that would be made, with nothing stored and no secret shown.
struct DryRun {
    let context: APIContext

    func answer(_ request: IngestRequest) throws(Problem) -> HTTPResponse {
        guard request.rejected.isEmpty else { throw IngestReply(request, context).invalidPayload }
        var requests: [String] = []
        for target in context.targets {
            let messages = zip(request.messages, request.kinds).filter { $1.target === target }.enumerated().map {
                preview($1.0, index: $0, of: target)
            }
            let credentials = zip(request.messages, request.kinds).filter { $1.target === target }.compactMap(
                \.0.credential)
            let notes = Dictionary(credentials.map { ($0.owner, $0.note) }, uniquingKeysWith: { $1 })
            for (lane, limits) in lanes(of: messages, target) {
                var rest = lane[...]
                while !rest.isEmpty {
                    var batch = firstBatch(of: rest, limits)
                    let later = rest.dropFirst(batch.count)
                    var others: [Message] = []
                    if target.upstream.sendsKindsApart { (batch, others) = batch.dividedByKind() }
                    let (request, count) = plan(batch, target, notes)
                    requests.append(request)
                    let taken = max(1, count)
                    rest = others.isEmpty ? rest.dropFirst(taken) : batch.dropFirst(taken) + others + later
                }
            }
        }
        return .json(
            200,
            JSONWriter.object { json in
                json.flag("dryRun", true)
                json.number("accepted", request.messages.count)
                json.raw("requests", JSONWriter.array(requests))
            })
    }

    /// As if the messages were accepted after all that are stored.
    private func preview(_ message: NewMessage, index: Int, of target: ConfiguredUpstream) -> Message {
        Message(
            id: MessageID(sequence: 1 << 54 + Int64(index), upstream: target.queue.number), kind: message.kind,
            lane: message.lane, key: message.key, acceptedAt: message.acceptedAt,
            payload: Array(message.bytes[message.range]))
    }

    /// The messages that share requests, in the order of their first, and the limits of one request, as a worker would
    /// claim them.
    private func lanes(of messages: [Message], _ target: ConfiguredUpstream) -> [(
        messages: [Message], limits: BatchLimits
    )] {
        guard case .separate = target.upstream.laneRule else { return [(messages, target.queue.limits)] }
        var lanes: [(messages: [Message], limits: BatchLimits)] = []
        var places: [Lane: Int] = [:]
        for message in messages {
            if let index = places[message.lane] {
                lanes[index].messages.append(message)
            } else {
                places[message.lane] = lanes.count
                lanes.append(([message], limits(of: message.lane, target)))
            }
        }
        return lanes
    }

    private func limits(of lane: Lane, _ target: ConfiguredUpstream) -> BatchLimits {
        guard case .named(let name, _) = lane else { return target.queue.limits }
        return target.upstream.limits(target.queue.limits, ofLane: name)
    }

    private func firstBatch(of messages: ArraySlice<Message>, _ limits: BatchLimits) -> [Message] {
        var room = BatchRoom(limits)
        return Array(
            messages.prefix { message in
                guard !room.isFull, room.fits(message.payload.count) else { return false }
                room.take(message.payload.count)
                return true
            })
    }

    /// `notes`: what accompanies the credentials that were handed in, by owner.
    private func plan(
        _ messages: [Message], _ target: ConfiguredUpstream, _ notes: [String: String]
    ) -> (json: String, count: Int) {
        let now = context.time.now
        let token = Token(value: SecretMask.mask, renewAt: now, expiresAt: nil)
        let plan = try? context.outbox.withState(of: target.queue.number) { stored in
            let state = MaskedState(stored: stored, mask: SecretMask.mask, notes: notes)
            // As if flushed: a dry run shows what would be sent, not when.
            return try target.upstream.plan(
                for: messages,
                in: PlanContext(now: now, token: token, state: state, flushedThrough: messages.last?.id))
        }
        switch plan {
        case .send(let request, let count):
            return (show(request, of: target, carrying: count), count)
        case .settle(let count, _, let reason, _):
            return (
                JSONWriter.object { json in
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

    private func waiting(for reason: WaitReason, _ target: ConfiguredUpstream) -> String {
        JSONWriter.object { json in
            json.string("upstream", target.name.description)
            json.string("waitingFor", reason.rawValue)
        }
    }

    private func show(_ request: UpstreamRequest, of target: ConfiguredUpstream, carrying count: Int) -> String {
        let mask = target.upstream.mask(besides: request.proofs)
        return JSONWriter.object { json in
            json.string("upstream", target.name.description)
            json.number("messages", count)
            json.string("method", request.method.rawValue)
            json.string("url", target.upstream.shown(url: request.url, mask))
            json.object("headers") { headers in
                for header in request.headers {
                    headers.string(header.name, target.upstream.shown(header: header, mask))
                }
                if request.gzip { headers.string("Content-Encoding", "gzip") }
            }
            json.string("body", mask.masked(String(decoding: request.body, as: UTF8.self)))
        }
    }
}

/// The stored state, except that every owner has a masked credential: a credential that was handed in is not
/// stored, and a stored one must not be shown.
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
