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
            site.endpoints.response(to: problem, isDroppedWithoutRoom: site.paths.areDroppedWithoutRoom(path))
        }
    }
}

extension SDKEndpoints {
    func answer(to reason: SDKRefusal, isDroppedWithoutRoom: Bool) -> SDKAnswer {
        isDroppedWithoutRoom && reason == .noRoom ? .dropped(.noRoom) : refusal(reason)
    }

    /// The refusal of a request, in the place of a problem document.
    func response(to problem: Problem, isDroppedWithoutRoom: Bool) -> HTTPResponse {
        var response = HTTPResponse(answer(to: SDKRefusal(problem), isDroppedWithoutRoom: isDroppedWithoutRoom))
        response.close = problem.close
        return response
    }
}
