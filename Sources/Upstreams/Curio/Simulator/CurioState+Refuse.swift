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
        if refusal != nil {
            counts.refusedSessions += 1
            if !isLost { gatewayKnows(of: request) }
        }
        return refusal
    }

    /// The response to the request reaches the gateway.
    mutating func gatewayKnows(of request: Request) {
        for code in [request.session] + request.actions.map(\.session) { sessions[code]?.isKnown = true }
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
        if request.endpoint == .visitCreate {
            let mayRepeat = !session.isKnown || isRepeat(request)
            return isLive
                ? nil
                : Rejection(
                    status: 401, violation: mayRepeat ? nil : "a session code used again after the session was over")
        }
        guard isLive, !diesNow() else { return refusal(ofDead: code, request, isLost: isLost) }
        return nil
    }

    private mutating func diesNow() -> Bool {
        settings.killSessionRate > 0 && random.fraction() < settings.killSessionRate
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
        return Rejection(
            status: 401,
            violation: session.refusals > Self.maxRefusals ? "a refused session code quoted again and again" : nil)
    }

    /// Whether the visitor's last requests contained everything in it already.
    private func isRepeat(_ request: Request) -> Bool {
        guard let window = visitors[request.visitor]?.window, !request.actions.isEmpty else { return false }
        return request.actions.allSatisfy { window.contains($0.identity) }
    }
}
