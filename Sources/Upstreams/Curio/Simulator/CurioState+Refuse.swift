import PosternCore
import PosternSimulatorKit

/// Which requests are rejected, with 412, 400 or 401.
extension CurioState {
    struct Rejection {
        let status: Int
        var violation: String?
    }

    /// The number of requests for one item that may be rejected before the gateway gives up (section 6).
    private static let maxRefusals = 5

    /// Nil for a request that the server accepts. `isLost`: whether the response will not reach the gateway.
    mutating func refusal(of request: Request, at moment: Moment, isLost: Bool) -> Rejection? {
        for (name, right) in [("apiKey", settings.apiKey), ("trackingCode", settings.trackingCode)]
        where !right.isEmpty {
            if let given = request.form.values[name], given != right { return wrongCredentials() }
        }
        if request.findings.isRefused { return Rejection(status: 400) }
        let refusal = request.mode == .ocr ? nil : sessionRefusal(of: request, at: moment, isLost: isLost)
        if refusal != nil { counts.refusedSessions += 1 }
        return refusal
    }

    /// What quotes a session without its start shows that the gateway has noted the response to the start. That a
    /// response was sent does not: a gateway that is killed as it arrives knows as little as one that never gets it.
    mutating func recordKnown(by request: Request) {
        guard request.endpoint != .visitCreate else { return }
        let started = Set(request.actions.filter { $0.kind == .sessionStart }.map(\.session))
        for code in [request.session] + request.actions.map(\.session) where !started.contains(code) {
            sessions[code]?.isKnown = true
        }
    }

    private mutating func wrongCredentials() -> Rejection {
        counts.wrongCredentials += 1
        return Rejection(status: 412)
    }

    private mutating func sessionRefusal(of request: Request, at moment: Moment, isLost: Bool) -> Rejection? {
        let code = request.session
        guard let session = sessions[code] else {
            return request.endpoint == .visitCreate
                ? nil : Rejection(status: 401, violation: "a request of a session that was never started")
        }
        guard session.visitor == request.visitor else {
            return Rejection(status: 401, violation: "a session code of another visitor")
        }
        let isLive = checkLive(code, at: moment)
        if request.endpoint == .visitCreate { return isLive ? nil : refusal(ofStart: code, request, isLost: isLost) }
        guard isLive, !diesNow() else { return refusal(ofDead: code, request, isLost: isLost) }
        return nil
    }

    private mutating func diesNow() -> Bool {
        settings.killSessionRate > 0 && random.fraction() < settings.killSessionRate
    }

    /// Its code is dead.
    private mutating func refusal(ofStart code: String, _ request: Request, isLost: Bool) -> Rejection? {
        guard var session = sessions[code] else { return nil }
        if !isLost {
            session.refusals += 1
            if !session.isReplaced { visitors[request.visitor]?.refused.insert(code) }
        }
        sessions[code] = session
        if session.isReplaced || session.isKnown && !isRepeat(request) {
            return Rejection(status: 401, violation: "a session code used again after the session was over")
        }
        return Rejection(status: 401, violation: overuse(of: session))
    }

    private func overuse(of session: Session) -> String? {
        session.refusals > Self.maxRefusals ? "a refused session code quoted repeatedly" : nil
    }

    private mutating func refusal(ofDead code: String, _ request: Request, isLost: Bool) -> Rejection? {
        guard var session = sessions[code] else { return nil }
        if session.life == .ended {
            return Rejection(
                status: 401, violation: isRepeat(request) ? nil : "a request of a session that has ended")
        }
        if session.life == .live { session.life = .killed }
        if !isLost { session.refusals += 1 }
        sessions[code] = session
        if request.endpoint == .visitEnd {
            // It has ended for the client as well; a record that ends it again is a repeat.
            end(code)
            for action in request.actions { visitors[request.visitor]?.window.insert(action.identity) }
        } else if !isLost, !session.isReplaced {
            visitors[request.visitor]?.refused.insert(code)
        }
        if session.isReplaced {
            return Rejection(status: 401, violation: "a refused session code quoted after another one took its place")
        }
        return Rejection(status: 401, violation: overuse(of: session))
    }

    /// Whether the visitor's last requests contained everything in it already.
    private func isRepeat(_ request: Request) -> Bool {
        guard let window = visitors[request.visitor]?.window, !request.actions.isEmpty else { return false }
        return request.actions.allSatisfy { window.contains($0.identity) }
    }
}
