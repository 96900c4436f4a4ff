import PosternCore
import PosternUpstream

/// Why a call that has to be answered at once has no response of the platform. Reported as a response of the gateway
/// (`answer`) or, to SDKs, in the form of the platform (`refusal`).
enum CallFailure: Error {
    case noCredentials
    /// No request is sent: the actor, or a login's address, has to wait.
    case paused(Pause, Timestamp)
    /// The request failed, or the response was not valid. `isUnreached`: nothing of the call was sent.
    case failed(String, isUnreached: Bool = false)
    /// The gateway has no thread or no memory for the request.
    case overloaded(String)
    case late(String, isUnreached: Bool = false)
    /// The caller has hung up; it gets no response.
    case abandoned

    static let lateness = "The platform did not respond in time."

    /// For `failed`: the response is not one of the platform itself.
    static func unusable(_ response: UpstreamResponse) -> String {
        let what =
            (200...299).contains(response.status)
            ? "a response that is not its own" : response.outline()
        return "The platform sent \(what)."
    }

    var answer: UpstreamRouteResponse {
        switch self {
        case .noCredentials, .failed: .problem(slug: .deliveryFailed, status: 502, detail: detail)
        case .overloaded: .later(.problem(slug: .overloaded, status: 503, detail: detail), after: .seconds(5))
        case .late, .abandoned: .problem(slug: .deliveryFailed, status: 504, detail: detail)
        case .paused(let pause, let now):
            .later(
                pause.reason == .authentication
                    ? .problem(slug: .deliveryFailed, status: 502, detail: detail)
                    : .problem(slug: .rateLimited, status: 429, detail: detail), after: pause.until - now)
        }
    }

    /// The platform's status for a similar failure.
    var refusal: RefusedCall {
        switch self {
        case .noCredentials, .failed, .late, .abandoned: .init(1, detail)
        case .overloaded: .init(8, detail, .noRoom)
        case .paused(let pause, _): .init(pause.reason == .authentication ? 3 : 8, detail)
        }
    }

    /// Whether the platform is away, and has certainly not received the call.
    var isAway: Bool {
        switch self {
        case .paused: true
        case .failed(_, let isUnreached), .late(_, let isUnreached): isUnreached
        case .noCredentials, .overloaded, .abandoned: false
        }
    }

    private var detail: String {
        switch self {
        case .noCredentials: "This upstream's id or psk is empty; nothing can be signed."
        case .failed(let detail, _), .overloaded(let detail), .late(let detail, _): detail
        case .abandoned: "The caller has hung up."
        case .paused(let pause, _):
            pause.reason == .authentication
                ? "The platform does not accept this upstream's id and psk (status 3); correct them."
                : "The platform blocks this for a while after bad authentications (status 8)."
        }
    }
}
