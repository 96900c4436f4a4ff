import PosternCore
import PosternUpstream

/// Shows what is known about a session: `GET /v1/{name}/sessions/{sessionCode}`.
struct SessionView {
    static let resource = UpstreamRoute(
        .get, "sessions/{sessionCode}",
        .read { request, state in
            let code = request.parameters["sessionCode"] ?? ""
            guard let session = state.session(code) else {
                return .notFound("No session of this code is known; it was never started, or ended a while ago.")
            }
            return .json(SessionView(code: code, session: session, state: state).json())
        })

    /// The maximum number of open screens and events that are shown; a session may leave any number of events open.
    private static let maxOpens = 200

    let code: String
    let session: Session
    let state: any UpstreamState

    private func json() -> String {
        let remote = state.remote(of: code, session)
        let queued = state.queued(inLane: session.visitor, atMost: 4000)
        let opens = opens().map(text)
        return JSONWriter.object { json in
            json.string("sessionCode", code)
            json.string("visitorCode", session.visitor)
            json.string("state", remote.refusal != nil ? "refused" : session.isEnded ? "ended" : "open")
            json.time("startedAt", Timestamp(milliseconds: session.startedAt))
            if let minutes = session.timeoutMinutes { json.number("sessionTimeout", minutes) }
            json.number("queuedOfVisitor", queued)
            json.object("upstream") { json in
                json.flag("isStarted", remote.isStarted)
                json.string("sessionCode", remote.code(of: code))
                json.string("nextSessionCode", remote.pending)
                json.string("refusal", remote.refusal)
            }
            json.object("device") { json in
                for (name, value) in zip(Device.names, session.device.values) {
                    if let value { json.string("\(name)", value) }
                }
            }
            json.raw("open", JSONWriter.array(opens))
        }
    }

    /// Those whose end has not been accepted, oldest first.
    private func opens() -> [OpenInterval] {
        let plain = ["o", "u"].flatMap { state.values(below: "\(Key.session(code))/\($0)", atMost: Self.maxOpens) }
            .compactMap { OpenInterval($0.value) }
        let coded = [Texts.Subject.screen, .event].flatMap {
            state.values(below: Key.newest(Key.index(of: $0), of: code), atMost: Self.maxOpens)
        }.compactMap { state.open(at: Key.coded(String(decoding: $0.value, as: UTF8.self), of: code)) }
        return (plain + coded).sorted { $0.id < $1.id }.prefix(Self.maxOpens).map(\.self)
    }

    private func text(of open: OpenInterval) -> String {
        let known = state.code(of: open.id, in: code)
        return JSONWriter.object { json in
            json.string("id", "\(open.id)")
            json.string("kind", (open.subject == .event ? CurioKind.event : .screenStart).rawValue)
            json.time("timestamp", Timestamp(milliseconds: open.timestamp))
            if let texts = open.texts {
                json.string(texts.subject.names.first, texts.first)
                json.string(texts.subject.names.second, texts.second)
            }
            if let code = open.code { json.string(open.subject.names.code, code) }
            switch known {
            case .server(let given): json.string("code", given)
            case .own:
                json.string("code", open.code ?? Code.open(open.id, session: code, visitor: session.visitor))
            case .missing, .refused, nil: json.string("code", nil)
            }
        }
    }
}
