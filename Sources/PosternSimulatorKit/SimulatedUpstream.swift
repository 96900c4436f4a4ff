import PosternCore
internal import PosternFaultServer
internal import PosternHTTP
internal import Synchronization

/// One simulator behind a server: plays the faults, records what was accepted, and responds to queries about both.
///
/// - `GET /received`: counts as JSON; `?events=true&offset=0&limit=100` adds the texts; `?field=seq` gives lines of
///   order key, tab, value instead, `?field=/object/id` those of a JSON Pointer (RFC 6901), and `&log=true` adds
///   rejected items, responses and times. `DELETE /received` starts over, `?keep=texts|digests|counts` says with what.
/// - `GET /faults`: the text of the faults; `POST /faults` sets them from such a text, an empty one clears them, and
///   `?seed=7` chooses the randomness.
/// - `/control` and what is below it: the simulator's own.
///
/// Everything else is the upstream's own.
final class SimulatedUpstream: FaultHandler {
    private let simulator: any Simulator
    private let time: any TimeSource
    private let state: Mutex<State>

    private struct State {
        var received: Received
        var player: FaultPlayer
        /// When the faults were set.
        var playsSince = SystemTime().instant
    }

    init(
        _ simulator: any Simulator, faults: Faults, seed: UInt64, keep: SimulatorHost.Keep,
        time: any TimeSource = SystemTime()
    ) {
        self.simulator = simulator
        self.time = time
        state = Mutex(State(received: Received(keep: keep), player: FaultPlayer(faults, seed: seed)))
    }

    func answer(_ request: IncomingRequest, _ responder: FaultResponder) {
        switch request.head.path {
        case "/received": responder.respond(answerAboutReceived(request.head))
        case "/faults": responder.respond(answerAboutFaults(request))
        case let path where path == "/control" || path.hasPrefix("/control/"):
            let answer = simulator.control(SimulatedRequest(request)) ?? .text(404, "no such control\n")
            responder.respond(HTTPResponse(answer))
        default: play(request, responder)
        }
    }

    // MARK: The upstream

    private func play(_ request: IncomingRequest, _ responder: FaultResponder) {
        let (decision, poisons) = state.withLock { state in
            let isOnOld = responder.connectedAt.map { $0 < state.playsSince } ?? false
            return (state.player.decide(path: request.head.path, isOnOld: isOnOld), state.player.faults.poisons)
        }
        switch decision.action {
        case .status(let status, let retryAfter), .cut(let status, let retryAfter):
            record(nil, "\(status)")
            var answer = simulator.answer(status: status, to: SimulatedRequest(request))
            if let retryAfter { answer.headers.append(("Retry-After", retryAfter.value(at: time.now))) }
            if case .cut = decision.action { return responder.respondRaw(answer.cut) }
            return responder.respond(answer, delay: decision.delay)
        case .resetBefore:
            record(nil, "reset-before")
            return responder.reset()
        case .hang, .mute:
            record(nil, "hang")
            return responder.hold()
        case .pass, .delay, .resetAfter, .hangAfter, .garbage, .truncate, .drip: break
        }
        var asked = SimulatedRequest(request)
        asked.isAnswerLost = decision.action.losesAnswer
        let judged = simulator.judge(asked, poisons: poisons)
        guard let answer = judged.answer else {
            record(judged, "silence")
            return responder.hold()
        }
        switch decision.action {
        case .resetAfter:
            record(judged, "reset-after")
            responder.reset()
        case .hangAfter:
            record(judged, "hang-after")
            responder.hold()
        case .garbage:
            record(judged, "garbage")
            responder.respondRaw(Array("\u{1}\u{2}this is not HTTP\r\n\r\n".utf8))
        case .truncate:
            record(judged, "truncate")
            responder.respondRaw(answer.cut)
        case .drip(let pause):
            record(judged, "\(answer.status)")
            responder.respond(HTTPResponse(answer), dripping: 1, every: pause)
        case .pass, .delay, .status, .cut, .resetBefore, .hang, .mute:
            record(judged, "\(answer.status)")
            responder.respond(answer, delay: decision.delay + judged.delay)
        }
    }

    private func record(_ judged: SimulatedResult?, _ answer: String) {
        // Inside the lock, so that the times are in order.
        state.withLock { $0.received.record(judged, answeredWith: answer, at: time.instant) }
    }

    // MARK: Queries

    private func answerAboutReceived(_ head: RequestHead) -> HTTPResponse {
        var query: [String: String] = [:]
        for (name, value) in head.query?.pairs ?? [] { query[name] = value }
        switch head.method {
        case "GET":
            let received = state.withLock { $0.received }
            if let field = query["field"] {
                let log = query["log"] == "true"
                return text(200, received.lines(orderField: simulator.orderField, field: field, log: log))
            }
            let offset = query["offset"].map { Int($0) } ?? 0
            let limit = query["limit"].map { Int($0) } ?? .max
            guard let offset, let limit, offset >= 0, limit >= 0 else {
                return text(400, "offset and limit are numbers from 0\n")
            }
            return HTTPResponse(
                status: 200, headers: [("Content-Type", "application/json")],
                body: received.json(
                    upstream: simulator.name, page: query["events"] == "true" ? (offset, limit) : nil))
        case "DELETE":
            let named = query["keep"].map(SimulatorHost.Keep.init(rawValue:))
            if let named, named == nil { return text(400, "keep is texts, digests or counts\n") }
            state.withLock { $0.received = Received(keep: (named ?? nil) ?? $0.received.keep) }
            return HTTPResponse(status: 204)
        default: return notAllowed("GET, DELETE")
        }
    }

    private func answerAboutFaults(_ request: IncomingRequest) -> HTTPResponse {
        switch request.head.method {
        case "GET": return text(200, state.withLock { $0.player.faults.text } + "\n")
        case "POST":
            let named = request.head.query?["seed"].map { UInt64($0) }
            guard let seed = named ?? 0 else { return text(400, "seed is a number from 0\n") }
            do throws(FaultsProblem) {
                let faults = try Faults(parsing: String(decoding: request.body, as: UTF8.self))
                state.withLock { ($0.player, $0.playsSince) = (FaultPlayer(faults, seed: seed), SystemTime().instant) }
                return text(200, faults.text + "\n")
            } catch {
                return text(400, "\(error)\n")
            }
        default: return notAllowed("GET, POST")
        }
    }

    private func text(_ status: Int, _ text: String) -> HTTPResponse { self.text(status, Array(text.utf8)) }

    private func text(_ status: Int, _ text: [UInt8]) -> HTTPResponse {
        HTTPResponse(status: status, headers: [("Content-Type", "text/plain; charset=utf-8")], body: text)
    }

    private func notAllowed(_ allowed: String) -> HTTPResponse { HTTPResponse(.notAllowed(allowed)) }
}

extension FaultResponder {
    fileprivate func respond(_ answer: SimulatedAnswer, delay: Duration) {
        let response = HTTPResponse(answer)
        if delay > .zero { respond(response, after: delay) } else { respond(response) }
    }
}

extension HTTPResponse {
    fileprivate init(_ answer: SimulatedAnswer) {
        self.init(status: answer.status, headers: answer.headers, body: answer.body)
    }
}

extension SimulatedRequest {
    fileprivate init(_ request: IncomingRequest) {
        self.init(
            method: request.head.method, path: request.head.path, query: request.head.query?.text,
            headers: request.head.headers, body: request.body)
    }
}

extension Faults.Fault {
    fileprivate var losesAnswer: Bool {
        switch self {
        case .resetBefore, .resetAfter, .hang, .hangAfter, .mute, .garbage, .truncate: true
        case .pass, .delay, .status, .cut, .drip: false
        }
    }
}

extension SimulatedAnswer {
    /// A response that announces more bytes than it sends.
    fileprivate var cut: [UInt8] {
        let lines = headers.map { "\($0.name): \($0.value)\r\n" }.joined()
        return Array("HTTP/1.1 \(status) Cut\r\n\(lines)Content-Length: \(body.count + 64)\r\n\r\n".utf8) + body
    }
}
