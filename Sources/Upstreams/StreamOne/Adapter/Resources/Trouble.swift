import PosternCore

/// Why a call that has to be answered at once has no answer of the platform's. Told in the gateway's words (`answer`) or,
/// to those who speak with the platform only, in the platform's (`refusal`).
enum Trouble: Error {
    case noCredentials
    /// It is not asked: the actor, or a login's address, has to wait.
    case paused(Pause, Timestamp)
    /// It could not be asked, or answered with something else.
    case failed(String)
    case late(String)
    /// The caller has hung up; it gets no answer.
    case abandoned

    static let lateness = "The platform did not answer in time."

    /// For `failed`: the response is not an answer of the platform's own.
    static func unusable(_ response: UpstreamResponse) -> String {
        let what =
            (200...299).contains(response.status)
            ? "something that is no answer of its own" : "HTTP status \(response.status)"
        return "The platform answered with \(what)."
    }

    var answer: ResourceAnswer {
        switch self {
        case .noCredentials, .failed: .problem(slug: .deliveryFailed, status: 502, detail: detail)
        case .late, .abandoned: .problem(slug: .deliveryFailed, status: 504, detail: detail)
        case .paused(let pause, let now):
            .later(
                pause.reason == .authentication
                    ? .problem(slug: .deliveryFailed, status: 502, detail: detail)
                    : .problem(slug: .rateLimited, status: 429, detail: detail), after: pause.until - now)
        }
    }

    /// The status with which the platform says the like.
    var refusal: RefusedCall {
        switch self {
        case .noCredentials, .failed, .late, .abandoned: .init(1, detail)
        case .paused(let pause, _): .init(pause.reason == .authentication ? 3 : 8, detail)
        }
    }

    private var detail: String {
        switch self {
        case .noCredentials: "This upstream's id or psk is empty; nothing can be signed."
        case .failed(let detail), .late(let detail): detail
        case .abandoned: "The caller has hung up."
        case .paused(let pause, _):
            pause.reason == .authentication
                ? "The platform does not accept this upstream's id and psk (status 3); correct them."
                : "The platform blocks this for a while after bad authentications (status 8)."
        }
    }
}
