import PosternCore
import PosternDelivery
import PosternHTTP
import PosternStore
import PosternUpstream

/// `dryRun=true`: the requests that would be made, with nothing stored and no secret shown. The response has about 1 MiB at
/// most: a request may be several times as long as its messages.
struct DryRun {
    let context: APIContext

    /// The bytes for what is shown of a request in addition to its body, and for the end of the response.
    private static let otherBytes = 64 << 10
    private static let longestURL = 8 << 10

    func answer(_ request: IngestRequest) throws(Problem) -> HTTPResponse {
        guard request.rejected.isEmpty else { throw IngestResponse(request, context).invalidPayload }
        var requests: [String] = []
        var room = MessageHandler.pageBytes - Self.otherBytes
        var omitted = 0
        for upstream in context.upstreams {
            let messages = zip(request.messages, request.kinds).filter { $1.upstream === upstream }.enumerated().map {
                preview($1.0, index: $0, of: upstream)
            }
            let credentials = zip(request.messages, request.kinds).filter { $1.upstream === upstream }.compactMap(
                \.0.credential)
            let notes = Dictionary(credentials.map { ($0.owner, $0.note) }, uniquingKeysWith: { $1 })
            for (lane, limits) in lanes(of: messages, upstream) {
                var rest = lane[...]
                while !rest.isEmpty {
                    guard room > 0 else {
                        omitted += rest.count
                        break
                    }
                    var batch = firstBatch(of: rest, limits)
                    let later = rest.dropFirst(batch.count)
                    var others: [Message] = []
                    if upstream.adapter.traits.sendsKindsApart { (batch, others) = batch.dividedByKind() }
                    let (request, count) = plan(batch, upstream, notes, within: room)
                    room -= request.utf8.count + 1
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
                if omitted > 0 { json.number("messagesOmitted", omitted) }
            })
    }

    /// The request for a stored message, as if it were sent alone.
    func answer(_ message: Message, of upstream: ConfiguredUpstream) -> HTTPResponse {
        let (request, _) = plan([message], upstream, [:], within: MessageHandler.pageBytes - Self.otherBytes)
        return .json(200, JSONWriter.object { $0.raw("requests", JSONWriter.array([request])) })
    }

    /// As if the messages were accepted after all that are stored.
    private func preview(_ message: NewMessage, index: Int, of upstream: ConfiguredUpstream) -> Message {
        Message(
            id: MessageID(sequence: 1 << 54 + Int64(index), upstream: upstream.queue.number), kind: message.kind,
            lane: message.lane, key: message.key, acceptedAt: message.acceptedAt,
            payload: message.range == message.bytes.indices ? message.bytes : Array(message.bytes[message.range]))
    }

    /// The messages that share requests, in the order of their first, and the limits of one request, as a worker would
    /// claim them.
    private func lanes(of messages: [Message], _ upstream: ConfiguredUpstream) -> [(
        messages: [Message], limits: BatchLimits
    )] {
        guard case .perLane = upstream.adapter.traits.laneRule else { return [(messages, upstream.queue.limits)] }
        var lanes: [(messages: [Message], limits: BatchLimits)] = []
        var places: [Lane: Int] = [:]
        for message in messages {
            if let index = places[message.lane] {
                lanes[index].messages.append(message)
            } else {
                places[message.lane] = lanes.count
                lanes.append(([message], limits(of: message.lane, upstream)))
            }
        }
        return lanes
    }

    private func limits(of lane: Lane, _ upstream: ConfiguredUpstream) -> BatchLimits {
        guard case .named(let name, _) = lane else { return upstream.queue.limits }
        return upstream.adapter.limits(upstream.queue.limits, ofLane: name)
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
        _ messages: [Message], _ upstream: ConfiguredUpstream, _ notes: [String: String], within room: Int
    ) -> (json: String, count: Int) {
        let now = context.time.now
        let token = Token(value: SecretMask.mask, renewAt: now, expiresAt: nil)
        let plan = try? context.outbox.withState(of: upstream.queue.number) { stored in
            let state = MaskedState(stored: stored, mask: SecretMask.mask, notes: notes)
            // As if flushed: a dry run shows what would be sent, not when.
            return upstream.adapter.plan(
                for: messages,
                in: PlanContext(now: now, token: token, state: state, flushedThrough: messages.last?.id))
        }
        switch plan {
        case .send(let request, let count):
            return (show(request, of: upstream, carrying: count, within: room), count)
        case .settle(let count, _, let reason, _, _):
            return (
                JSONWriter.object { json in
                    json.string("upstream", upstream.name.description)
                    json.string("unsent", reason)
                }, count
            )
        case .park: return (waiting(for: .token, upstream), messages.count)
        case .wait(let reason, _):
            return (waiting(for: reason, upstream), messages.count)
        case nil: return ("null", messages.count)
        }
    }

    private func waiting(for reason: WaitReason, _ upstream: ConfiguredUpstream) -> String {
        JSONWriter.object { json in
            json.string("upstream", upstream.name.description)
            json.string("waitingFor", reason.rawValue)
        }
    }

    private func show(
        _ request: UpstreamRequest, of upstream: ConfiguredUpstream, carrying count: Int, within room: Int
    ) -> String {
        let mask = upstream.adapter.mask(besides: request.proofs)
        return JSONWriter.object { json in
            json.string("upstream", upstream.name.description)
            json.number("messages", count)
            json.string("method", request.method.rawValue)
            json.string("url", shown(url: request.url, of: upstream, mask))
            json.object("headers") { headers in
                for header in request.headers {
                    headers.string(header.name, upstream.adapter.shown(header: header, mask))
                }
                if request.gzip { headers.string("Content-Encoding", "gzip") }
            }
            let shown = Self.start(of: request.body, within: room - json.text.utf8.count)
            let omitted = request.body.count - shown.count
            let text = omitted > 0 ? mask.maskedStart(of: Array(shown)) : mask.masked(request.body)
            json.string("body", String(decoding: text, as: UTF8.self))
            if omitted > 0 { json.number("bodyBytesOmitted", omitted) }
        }
    }

    /// Twice as much of the URL is masked as is shown, so that no secret is cut.
    private func shown(url: String, of upstream: ConfiguredUpstream, _ mask: SecretMask) -> String {
        guard url.utf8.count > Self.longestURL else { return upstream.adapter.shown(url: url, mask) }
        let start = String(decoding: url.utf8.prefix(2 * Self.longestURL), as: UTF8.self)
        return String(decoding: upstream.adapter.shown(url: start, mask).utf8.prefix(Self.longestURL), as: UTF8.self)
            + "…"
    }

    /// As much of a body as `room` bytes of a JSON string hold in any case.
    private static func start(of body: [UInt8], within room: Int) -> ArraySlice<UInt8> {
        var rest = room
        let start = body.prefix { byte in
            // What is longest in JSON: the escapes of control characters, and of characters with several bytes that act
            // in a terminal.
            switch byte {
            case ..<0x20, 0x7F: rest -= 6
            case 0x80...: rest -= 3
            case UInt8(ascii: "\""), UInt8(ascii: "\\"): rest -= 2
            default: rest -= 1
            }
            return rest >= 0
        }
        guard start.count < body.count else { return start }
        // The last character may be cut.
        return start.dropLast(start.reversed().prefix { $0 & 0xC0 == 0x80 }.count + 1)
    }
}

/// The stored state, except that every owner has a masked credential: a credential that was handed in is not
/// stored, and a stored one must not be shown.
private struct MaskedState: UpstreamState {
    let stored: any UpstreamState
    let mask: String
    /// By owner.
    let notes: [String: String]

    func value(of key: String) -> [UInt8]? { stored.value(of: key) }
    func values(below key: String, atMost most: Int) -> [(key: String, value: [UInt8])] {
        stored.values(below: key, atMost: most)
    }
    func queued(inLane name: String, atMost most: Int) -> Int { stored.queued(inLane: name, atMost: most) }
    func isQueued(_ id: MessageID) -> Bool { stored.isQueued(id) }
    func credential(of owner: String) -> HeldCredential? {
        HeldCredential(value: Array(mask.utf8), note: notes[owner] ?? stored.credential(of: owner)?.note ?? "")
    }
    func wasRefused(_ credential: Credential) -> Bool { false }
    var draft: StateChange.Draft? { nil }
}
