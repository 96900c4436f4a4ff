internal import CMicrohttpd
import Synchronization

// Carrying out what became of a request, on the connection's worker thread.
extension Connection {
    /// Carries out the outcome, or puts the connection aside until there is one.
    func conclude() -> MHD_Result {
        switch takeOutcome() {
        case nil: return .YES
        case .response(let response): return send(response)
        case .rendered(let render): return send(render())
        case .problem(let problem): return head.map { send(problem.response(to: $0)) } ?? .NO
        case .hangUp: return .NO
        case .detached(let use):
            suspendDetached()
            use(DetachedConnection(self))
            return .YES
        }
    }

    /// Queues the answer. Made here and not by the thread that gave it, whose work is worth more than ours.
    func send(_ response: HTTPResponse) -> MHD_Result {
        guard
            let reply = response.body.withUnsafeBytes({
                MHD_create_response_from_buffer(
                    $0.count, UnsafeMutableRawPointer(mutating: $0.baseAddress), .RESPMEM_MUST_COPY)
            })
        else { return .NO }
        defer { MHD_destroy_response(reply) }
        for (name, value) in response.headers { add(name, value, to: reply) }
        if let id = head?.requestID ?? requestID { add("X-Request-Id", id, to: reply) }
        if response.close || core.isDraining.load(ordering: .relaxed) { add("Connection", "close", to: reply) }
        return MHD_queue_response(handle, UInt32(response.status), reply)
    }

    private func add(_ name: String, _ value: String, to reply: OpaquePointer) {
        name.withCString { name in value.withCString { _ = MHD_add_response_header(reply, name, $0) } }
    }
}
