internal import CMicrohttpd
import PosternCore
import Synchronization

// Sends responses, on the connection's worker thread.
extension Connection {
    /// Carries out the action, or suspends the connection until there is one.
    func conclude() -> MHD_Result {
        switch takeResponseAction() {
        case nil: return .YES
        case .response(let response): return send(response)
        case .rendered(let render): return send(render())
        case .problem(let problem):
            guard let head else { return .NO }
            return send(core.handler.response(to: problem, path: head.path, requestID: head.requestID))
        case .stream(let response, let stream): return send(response, reading: stream)
        case .hangUp: return .NO
        case .detached(let use):
            suspendDetached()
            use(DetachedConnection(self))
            return .YES
        }
    }

    /// Queues the response. It is built on this thread and not on the one that produced it, whose time is scarcer.
    func send(_ response: HTTPResponse) -> MHD_Result {
        guard !response.isDropped, let reply = makeReply(of: response.body) else { return .NO }
        return queue(reply, for: response)
    }

    /// Adds the headers, and hands `reply` over to libmicrohttpd.
    func queue(_ reply: OpaquePointer, for response: HTTPResponse) -> MHD_Result {
        defer { MHD_destroy_response(reply) }
        for (name, value) in response.headers { add(name, value, to: reply) }
        // A response may vary by what it says and by what all do.
        for (name, value) in core.handler.commonHeaders(for: head)
        where name == "Vary" || !response.headers.contains(where: { $0.name == name }) {
            add(name, value, to: reply)
        }
        // Still set if the server itself rejects the request.
        for (name, value) in admitted?.refusalHeaders ?? [] { add(name, value, to: reply) }
        if let id = head?.requestID ?? requestID { add("X-Request-Id", id, to: reply) }
        if response.close || core.isDraining.load(ordering: .relaxed) { add("Connection", "close", to: reply) }
        return MHD_queue_response(handle, UInt32(response.status), reply)
    }

    /// A small body is copied. A large one is not: libmicrohttpd keeps it alive and releases it once it is sent or
    /// abandoned.
    private func makeReply(of body: [UInt8]) -> OpaquePointer? {
        guard body.count > HTTPServerSettings.largeResponse else {
            return body.withUnsafeBytes {
                MHD_create_response_from_buffer(
                    $0.count, UnsafeMutableRawPointer(mutating: $0.baseAddress), .RESPMEM_MUST_COPY)
            }
        }
        core.memory.takeAnyway(body.count)
        reservedBytes += body.count
        let time = Duration.milliseconds(body.count * 1000 / core.settings.responseRate)
        setDeadline(SystemTime().instant + core.settings.headerTimeout + time)
        let kept = Unmanaged.passRetained(KeptBody(body))
        let reply = kept._withUnsafeGuaranteedRef { body in
            MHD_create_response_from_buffer_with_free_callback_cls(
                body.count, body.address, releaseKeptBody, kept.toOpaque())
        }
        if reply == nil { kept.release() }
        return reply
    }

    private func add(_ name: String, _ value: String, to reply: OpaquePointer) {
        name.withCString { name in value.withCString { _ = MHD_add_response_header(reply, name, $0) } }
    }
}

/// The body of a response that libmicrohttpd reads from our memory; retained by its response.
private final class KeptBody {
    private let bytes: [UInt8]
    init(_ bytes: [UInt8]) { self.bytes = bytes }

    var count: Int { bytes.count }
    /// Valid as long as this object: the array is constant and owned by it, so its elements do not move.
    var address: UnsafeMutableRawPointer? {
        bytes.withUnsafeBytes { UnsafeMutableRawPointer(mutating: $0.baseAddress) }
    }
}

private let releaseKeptBody: MHD_ContentReaderFreeCallback = { kept in
    guard let kept else { return }
    Unmanaged<KeptBody>.fromOpaque(kept).release()
}
