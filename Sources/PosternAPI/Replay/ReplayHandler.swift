import PosternCore
import PosternHTTP
import PosternStore
import PosternThreads
import PosternUpstream

/// Queues delivered messages again, as new messages.
struct ReplayHandler: Sendable {
    let context: APIContext

    static let maxRunning = 8
    /// How many messages are read at a time to count them, and their bytes.
    private static let countedAtATime = 1000

    /// What a replay would do.
    private struct Count: Sendable {
        var messages = 0
        var bytes = 0
        var withoutPayload = 0
    }

    func begin(_ body: [UInt8], _ responder: MeteredResponder) {
        let (request, replay): (ReplayRequest, Replay)
        do throws(Problem) {
            request = try ReplayRequest.read(body, context)
            replay = try self.replay(request, responder)
        } catch {
            return responder.send(error)
        }
        var asked = responder
        asked.isPreview = request.isDryRun
        guard !request.isDryRun else { return count(replay, after: nil, Count(), asked, isDryRun: true) }
        context.readers.run { [context] in
            do throws(StoreError) {
                // A repeat need not count again.
                if let known = try context.outbox.replay(replay.id) { return answer(replay, known, responder) }
                let others = try context.outbox.replays(atMost: Self.maxRunning)
                guard others.count(where: \.isRunning) < Self.maxRunning else { return responder.send(Self.tooMany) }
                if let failure = context.outbox.failure { return responder.send(Problem(failure)) }
                count(replay, after: nil, Count(), responder, isDryRun: false)
            } catch {
                responder.send(Problem(error))
            }
        }
    }

    private func replay(_ request: ReplayRequest, _ responder: MeteredResponder) throws(Problem) -> Replay {
        for case let name? in [request.upstream, request.to] {
            if let caller = responder.caller, !caller.mayUse(name) { throw Gatekeeper.foreign(name, to: caller) }
        }
        let id = request.id ?? String(context.random().0, radix: 16)
        let by = responder.caller?.key.name
        guard let replay = request.replay(id, by: by, in: context.outbox, at: context.time.now) else {
            throw Problem(slug: .badRequest, status: 400, detail: "The request names no upstream.")
        }
        guard let target = context.upstream(named: replay.request.to) else {
            throw Problem(
                slug: .conflict, status: 409,
                detail: "\(replay.request.to) is disabled or no longer configured; name another upstream in `to`.")
        }
        if let kind = request.filter.kind, target.endpoint(kind.description) == nil {
            throw RoutingProblem.unknownKind(kind.description, of: target.name, known: target.kinds.map(\.text))
                .problem(in: context, for: responder.caller)
        }
        return replay
    }

    /// Counts page by page, on threads that read, and then begins.
    private func count(
        _ replay: Replay, after cursor: MessageID?, _ count: Count, _ responder: MeteredResponder, isDryRun: Bool
    ) {
        context.readers.run { [context] in
            do throws(StoreError) {
                var count = count
                let page = try context.outbox.page(
                    of: replay, after: cursor, limit: Self.countedAtATime, maxBytes: MessageHandler.pageBytes)
                for (_, payload) in page.messages {
                    count.messages += 1
                    if case .kept(let bytes) = payload { count.bytes += bytes.count }
                    if case .missing = payload { count.withoutPayload += 1 }
                }
                if let next = page.next {
                    return self.count(replay, after: next, count, responder, isDryRun: isDryRun)
                }
                if isDryRun { responder.send(Self.preview(count)) } else { begin(replay, count, responder) }
            } catch {
                responder.send(Problem(error))
            }
        }
    }

    private static func preview(_ count: Count) -> HTTPResponse {
        .json(
            200,
            JSONWriter.object { json in
                json.number("replayed", count.messages - count.withoutPayload)
                json.number("bytes", count.bytes)
                json.number("withoutPayload", count.withoutPayload)
                json.flag("dryRun", true)
            })
    }

    private func begin(_ replay: Replay, _ count: Count, _ responder: MeteredResponder) {
        var replay = replay
        replay.matched = count.messages
        context.outbox.begin(replay) { [context, replay] result in
            switch result {
            case .success(let stored) where stored != replay: answer(replay, stored, responder)
            case .success:
                context.goOn(replaying: replay.id)
                var headers = [("Location", "/v1/operations/\(replay.id)")]
                if Preferences(responder.head).isAsynchronous {
                    headers.append(("Preference-Applied", "respond-async"))
                }
                responder.send(
                    .json(
                        202,
                        JSONWriter.object { json in
                            json.string("operation", replay.id)
                            json.number("matched", replay.matched)
                        }, headers: headers))
            case .failure(let error): responder.send(Problem(error))
            }
        }
    }

    /// The response to a request whose id another one has had.
    private func answer(_ replay: Replay, _ known: Replay, _ responder: MeteredResponder) {
        guard known.request == replay.request, known.isVisible(to: responder.caller) else {
            return responder.send(
                Problem(
                    slug: .idempotencyMismatch, status: 422,
                    detail:
                        "The id \(replay.id) was used for another replay; nothing was changed. Use a new id for each "
                        + "replay, and the same one only to repeat the request."))
        }
        // If it was not known whether it was stored, nothing carries it out yet.
        if known.isRunning { context.goOn(replaying: known.id) }
        responder.send(.json(200, known.json))
    }

    private static let tooMany = Problem(
        slug: .overloaded, status: 503,
        detail: "\(maxRunning) replays are running already; nothing was changed. Wait for one of them, or stop one.",
        headers: [("Retry-After", "5")])
}

extension Replay {
    var startedAt: Timestamp { Timestamp(milliseconds: startedAtMs) }

    /// To those who may use both upstreams, and to its caller.
    func isVisible(to caller: Caller?) -> Bool {
        guard let key = caller?.key, let own = key.upstreams else { return true }
        return key.name == by || [request.upstream, request.to].allSatisfy { own.map(\.description).contains($0) }
    }

    /// Those that did not match any more when their turn came were skipped, too.
    private var skippedCount: Int {
        let counted = refused + withoutPayload
        return isRunning || isStopped ? counted : max(counted, matched - done)
    }

    /// As an operation, with what only a replay has.
    var json: String {
        JSONWriter.object { json in
            json.string("id", id)
            json.string("action", "replay")
            json.string("upstream", request.upstream)
            json.string("by", by)
            json.time("startedAt", startedAt)
            json.number("matched", matched)
            json.number("done", done)
            json.raw(
                "skipped",
                JSONWriter.array(
                    skipped.map { skipped in
                        JSONWriter.object { json in
                            json.string("id", MessageID(rawValue: skipped.id).description)
                            json.string("detail", skipped.detail)
                        }
                    }))
            json.number("skippedCount", skippedCount)
            json.time("finishedAt", finishedAtMs.map(Timestamp.init(milliseconds:)))
            json.flag("stopped", isStopped)
            json.string("error", nil)
            json.string("to", request.to)
            json.number("refused", refused)
            json.number("withoutPayload", withoutPayload)
        }
    }
}
