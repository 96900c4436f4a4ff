import Glibc
package import PosternCore
public import PosternHTTP
import PosternThreads

/// Responds to one request, correctly or with a fault. The first response counts.
public struct FaultResponder: Sendable {
    private let responder: Responder
    private let requestID: String
    private let timer: TimerQueue

    init(_ responder: Responder, requestID: String, timer: TimerQueue) {
        self.responder = responder
        self.requestID = requestID
        self.timer = timer
    }

    /// When the client connected.
    package var connectedAt: MonotonicInstant? { responder.connectedAt }

    /// Sends a correct response.
    public func respond(_ response: HTTPResponse) { responder.respond(response) }

    /// Responds after a delay, unless the server stops before.
    public func respond(_ response: HTTPResponse, after delay: Duration) {
        timer.run(after: delay) { [responder] in responder.respond(response) }
    }

    /// Writes the response, headers included, in pieces of `chunk` bytes with a pause between two, then closes.
    public func respond(_ response: HTTPResponse, dripping chunk: Int, every pause: Duration) {
        precondition(chunk > 0, "a piece has at least one byte")
        write(response.serialized(requestID: requestID), chunk: chunk, pause: pause)
    }

    /// Writes `bytes` as they are, then closes.
    public func respondRaw(_ bytes: [UInt8]) { write(bytes, chunk: max(bytes.count, 1), pause: .milliseconds(1)) }

    /// Closes the connection without a response.
    func hangUp() { responder.hangUp() }

    /// Aborts the connection: the client sees a reset.
    public func reset() {
        responder.detach { connection in
            // Dissolving the association is the only way to send a RST without a FIN before it, which the server's
            // `shutdown` would send.
            var none = sockaddr()
            none.sa_family = sa_family_t(AF_UNSPEC)
            _ = connect(connection.socket, &none, socklen_t(MemoryLayout<sockaddr>.size))
        }
    }

    /// Never responds. Ends when the client closes or the server stops.
    public func hold() {
        responder.detach { [timer] connection in
            timer.repeat((), every: .milliseconds(20)) { _ in
                var byte: UInt8 = 0
                let count = recv(connection.socket, &byte, 1, Int32(MSG_PEEK | MSG_DONTWAIT))
                return count > 0 || count < 0 && errno == EAGAIN
            }
        }
    }

    private func write(_ bytes: [UInt8], chunk: Int, pause: Duration) {
        responder.detach { [timer] connection in
            timer.repeat(bytes[...], every: pause) { rest in
                let count = rest.prefix(chunk).withUnsafeBytes {
                    send(connection.socket, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
                }
                if count < 0 { return errno == EAGAIN }
                rest = rest.dropFirst(count)
                return !rest.isEmpty
            }
        }
    }
}
