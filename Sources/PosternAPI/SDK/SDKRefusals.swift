import PosternHTTP
public import PosternUpstream

/// How requests of SDKs are refused by a gateway that has not opened its store, and so has no routes: in the form of the
/// platform, as by one that serves them.
public struct SDKRefusals: Sendable {
    private let sites: [(paths: SDKPaths, endpoints: SDKEndpoints)]

    public init(_ endpoints: [SDKEndpoints] = []) { sites = endpoints.map { (SDKPaths($0), $0) } }

    /// Nil if no SDK asks for the path.
    func response(to problem: Problem, path: String) -> HTTPResponse? {
        let path = SDKPaths.segments(of: path)
        return sites.first { $0.paths.contains(path) }.map { site in
            site.endpoints.response(to: problem, withoutRoom: site.paths.answerWithoutRoom(path))
        }
    }
}

extension SDKEndpoints {
    /// `withoutRoom`: that of the call, if it is known (`SDKRoute.withoutRoom`).
    func answer(to reason: SDKRefusal, withoutRoom: SDKAnswer?) -> SDKAnswer {
        (reason == .noRoom ? withoutRoom : nil) ?? refusal(reason)
    }

    /// The refusal of a request, in the place of a problem document.
    func response(to problem: Problem, withoutRoom: SDKAnswer?) -> HTTPResponse {
        var response = HTTPResponse(answer(to: SDKRefusal(problem), withoutRoom: withoutRoom))
        response.close = problem.close
        return response
    }
}
