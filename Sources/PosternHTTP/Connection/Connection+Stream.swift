internal import CMicrohttpd
import Glibc
import Synchronization

// Responses whose body is produced while it is sent. A connection whose stream has nothing to send is suspended, so it
// costs no thread and no turn of one.
extension Connection {
    /// What is known of the stream that is being sent; used under the lock of `stage`.
    struct StreamState {
        /// Whether it was woken since it was last read.
        var isWoken = false
        /// Whether nothing is sent any more.
        var isCut = false
    }

    // MARK: Any thread

    /// There is more to read from the stream of request `requestNumber`.
    func wake(requestNumber: UInt64) {
        let wasSuspended = stage.withLock { stage in
            guard requestNumber == self.requestNumber, case .streaming(let isSuspended) = stage else { return false }
            streamState.isWoken = true
            stage = .streaming(isSuspended: false)
            return isSuspended
        }
        if wasSuspended { worker.resume(self) }
    }

    /// Breaks off the stream of request `requestNumber`, also if its client reads nothing. Nil means any request.
    func cut(requestNumber: UInt64?) {
        let wasSuspended = stage.withLock { stage in
            guard requestNumber == nil || requestNumber == self.requestNumber, case .streaming(let isSuspended) = stage
            else { return false }
            streamState.isCut = true
            stage = .streaming(isSuspended: false)
            // Under the lock, the request has not ended, so the socket is open. A worker that waits for it notices.
            shutdown(socket, Int32(SHUT_RDWR))
            return isSuspended
        }
        if wasSuspended { worker.resume(self) }
    }

    // MARK: The worker thread

    /// How long a client may leave what was sent to it unacknowledged, in milliseconds. One that has vanished without a
    /// reset would otherwise be served until TCP gives up, after a quarter of an hour.
    static let streamPatience: Int32 = 60_000

    /// Queues a response that is chunked, or ended by the end of the connection if the client does not know chunks.
    func send(_ response: HTTPResponse, reading stream: any ResponseStream) -> MHD_Result {
        let source = Unmanaged.passRetained(StreamSource(stream, of: self))
        let reply = MHD_create_response_from_callback(
            postern_mhd_size_unknown, HTTPServerSettings.streamBlock, streamRead, source.toOpaque(), releaseStream)
        guard let reply else {
            source.release()
            return .NO
        }
        var patience = Self.streamPatience
        setsockopt(
            socket, Int32(IPPROTO_TCP), TCP_USER_TIMEOUT, &patience, socklen_t(MemoryLayout.size(ofValue: patience)))
        stage.withLock { stage in
            streamState = StreamState()
            stage = .streaming(isSuspended: false)
        }
        if head?.method == "HEAD" {
            // The library ends a chunked response to HEAD as if it had a body.
            postern_mhd_do_not_chunk(reply)
        } else {
            stream.began()
        }
        return queue(reply, for: response)
    }

    fileprivate func read(_ stream: any ResponseStream, into buffer: UnsafeMutableRawBufferPointer) -> Int {
        while true {
            if core.isAborting.load(ordering: .acquiring) { cut(requestNumber: nil) }
            let isCut = stage.withLock { _ in
                streamState.isWoken = false
                return streamState.isCut
            }
            // A byte that is never sent: the socket is shut down, and the library releases the connection when a write
            // fails. After an error that is reported here it waits until the connection is the one that was idle the
            // longest.
            if isCut { return 1 }
            switch stream.read(into: buffer) {
            case .bytes(let count): return count
            case .end: return Int(POSTERN_STREAM_END)
            case .nothing: if suspendStream() { return 0 }
            }
        }
    }

    /// Returns false if there is something to do by now.
    private func suspendStream() -> Bool {
        stage.withLock { stage in
            guard !streamState.isWoken, !streamState.isCut, !core.isAborting.load(ordering: .acquiring) else {
                return false
            }
            MHD_suspend_connection(handle)
            stage = .streaming(isSuspended: true)
            return true
        }
    }
}

/// A stream, and the connection that sends it; retained by the response.
private final class StreamSource {
    let stream: any ResponseStream
    let connection: Connection

    init(_ stream: any ResponseStream, of connection: Connection) {
        self.stream = stream
        self.connection = connection
    }
}

private let streamRead: MHD_ContentReaderCallback = { source, _, buffer, size in
    guard let source, let buffer else { return Int(POSTERN_STREAM_END) }
    return Unmanaged<StreamSource>.fromOpaque(source)._withUnsafeGuaranteedRef { source in
        source.connection.read(source.stream, into: UnsafeMutableRawBufferPointer(start: buffer, count: size))
    }
}

private let releaseStream: MHD_ContentReaderFreeCallback = { source in
    guard let source else { return }
    Unmanaged<StreamSource>.fromOpaque(source).takeRetainedValue().stream.ended()
}
