internal import CMicrohttpd
import Glibc
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
        case .reset:
            // Dissolving the association is the one way to send a RST without a FIN before it, which the `shutdown`
            // that libmicrohttpd closes with would send.
            var nobody = sockaddr()
            nobody.sa_family = sa_family_t(AF_UNSPEC)
            _ = connect(socket, &nobody, socklen_t(MemoryLayout<sockaddr>.size))
            return .NO
        case .dripped(.raw(let bytes)):
            drip(bytes, chunk: max(bytes.count, 1), every: .milliseconds(1))
            return .YES
        case .dripped(.response(let response, let chunk, let pause)):
            drip(response.serialized(requestID: head?.requestID ?? ""), chunk: chunk, every: pause)
            return .YES
        case .held:
            beginDripping()
            hold()
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
        if let head { add("X-Request-Id", head.requestID, to: reply) }
        if response.close || core.isDraining.load(ordering: .relaxed) { add("Connection", "close", to: reply) }
        return MHD_queue_response(handle, UInt32(response.status), reply)
    }

    private func add(_ name: String, _ value: String, to reply: OpaquePointer) {
        name.withCString { name in value.withCString { _ = MHD_add_response_header(reply, name, $0) } }
    }

    private func drip(_ bytes: [UInt8], chunk: Int, every pause: Duration) {
        beginDripping()
        drip(bytes[...], chunk: chunk, every: pause, after: .zero)
    }

    private func drip(_ bytes: ArraySlice<UInt8>, chunk: Int, every pause: Duration, after delay: Duration) {
        keeper.run(after: delay) { [self] in
            var rest = bytes
            drip { socket in
                let sent = rest.prefix(chunk).withUnsafeBytes {
                    Glibc.send(socket, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
                }
                if sent < 0 { return errno != EAGAIN }
                rest = rest.dropFirst(sent)
                return rest.isEmpty
            }
            if isDripping { drip(rest, chunk: chunk, every: pause, after: pause) }
        }
    }

    /// While a connection is put aside libmicrohttpd does not see its peer leave; so this looks now and then.
    private func hold() {
        keeper.run(after: .milliseconds(20)) { [self] in
            drip { socket in
                var byte: UInt8 = 0
                let count = recv(socket, &byte, 1, Int32(MSG_PEEK | MSG_DONTWAIT))
                return count == 0 || count < 0 && errno != EAGAIN
            }
            if isDripping { hold() }
        }
    }
}
