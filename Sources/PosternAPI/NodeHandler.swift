import PosternCore
public import PosternHTTP
import PosternMetrics
import Synchronization

/// The handler of a gateway that shares its store with others. It names this node in each response, and answers by itself
/// until the gateway has opened the store: probes truthfully, and anything else with `store-unavailable`, or what the platform of an
/// SDK would say. After that it passes requests to the handler of the gateway.
public final class NodeHandler: HTTPHandler {
    private let node: String
    private let callers: CallerPolicy
    /// Whether no caller needs a key.
    private let isOpen: Bool
    private let sdks: SDKRefusals
    private let state = Mutex(State())

    private struct State {
        /// Nil until the gateway has opened the store.
        var gateway: (any HTTPHandler)?
        var reason = "waiting for the store"
    }

    /// - Parameters:
    ///   - isOpen: Whether no caller needs a key.
    ///   - sdks: How SDKs are refused.
    public init(node: String, callers: CallerPolicy, isOpen: Bool, sdks: SDKRefusals = SDKRefusals()) {
        self.node = node
        self.callers = callers
        self.isOpen = isOpen
        self.sdks = sdks
    }

    /// Sets why the gateway has not opened the store, as `/readyz` reports it.
    public func wait(because reason: String) { state.withLock { $0.reason = reason } }

    /// Passes requests to the handler of the gateway from now on; nil ends that.
    public func pass(to gateway: (any HTTPHandler)?) { state.withLock { $0.gateway = gateway } }

    public func admit(_ head: RequestHead) -> HeaderDecision {
        let state = state.withLock { $0 }
        if let gateway = state.gateway { return gateway.admit(head) }
        return .refuse(answer(to: head, state.reason))
    }

    private func answer(to head: RequestHead, _ reason: String) -> HTTPResponse {
        switch head.path {
        case "/livez": return .json(200, #"{"status":"ok"}"#)
        case "/readyz":
            let report = ReadinessReport(reason: reason)
            let explains = isOpen || callers.isOfThisMachine(head)
            return .json(503, explains ? report.json : report.statusJSON)
        case "/metrics":
            // It tells nothing about callers or messages. Without it, a gateway that waits would count as down.
            var exposition = Exposition()
            DatabaseMetrics.writeWaiting(to: &exposition)
            return HTTPResponse(
                status: 200, headers: [("Content-Type", exposition.format.contentType)],
                body: Array(exposition.text.utf8))
        default: return response(to: .waitingForStore, path: head.path, requestID: head.requestID)
        }
    }

    public func response(to problem: Problem, path: String, requestID: String) -> HTTPResponse {
        if let gateway = state.withLock({ $0.gateway }) {
            return gateway.response(to: problem, path: path, requestID: requestID)
        }
        return sdks.response(to: problem, path: path) ?? problem.response(instance: path, requestID: requestID)
    }

    public func wasRefused(_ request: UnreadRequest) { state.withLock { $0.gateway }?.wasRefused(request) }

    public func commonHeaders(for head: RequestHead?) -> [(name: String, value: String)] {
        callers.commonHeaders(for: head) + [("Postern-Node", node)]
    }
}
