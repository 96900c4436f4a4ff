internal import CMicrohttpd
import Glibc
import PosternCore
import Synchronization

// Receiving a request. All of it runs on the connection's worker thread.
extension Connection {
    /// Reads from the socket instead of libmicrohttpd, until a request is complete.
    ///
    /// No byte of a client reaches libmicrohttpd's parser, which repairs what RFC 9112 says to reject. The parser gets
    /// a constant for each request, written into `buffer`, and calls `advance` for it. libmicrohttpd waits for sockets,
    /// encrypts, and sends the responses. Returns how many bytes the parser gets, 0 at the end of the stream, or one of
    /// `POSTERN_READ_…`.
    func receive(into buffer: UnsafeMutableRawBufferPointer) -> Int {
        // libmicrohttpd reads first from a connection that it has just resumed. It must continue to assume that there
        // is something to read, so that it reads again when the response is sent.
        guard case .receiving = progress else { return Int(POSTERN_READ_INTERRUPTED) }
        for _ in 0..<HTTPServerSettings.readsAtOnce {
            if unread.isEmpty {
                let room = worker.receiver.room(for: reader.missingBodyBytes)
                let count = postern_socket_read(socket, tlsSession, room.baseAddress, room.count)
                guard count > 0 else { return count }
                read(UnsafeBufferPointer(rebasing: room[..<count]))
            } else {
                let bytes = unread
                unread = []
                bytes.withUnsafeBufferPointer { read($0) }
            }
            if case .received = progress { return announce(in: buffer) }
        }
        return Int(POSTERN_READ_INTERRUPTED)
    }

    private func read(_ input: UnsafeBufferPointer<UInt8>) {
        let wasIdle = reader.isIdle
        var position = 0
        switch reader.read(input, from: &position, admit: admit) {
        case .more: waitForMore(wasIdle: wasIdle)
        case .complete:
            reserveWhatIsRead()
            progress = .received
        case .stopped: stopReading(refusal)
        case .refused(let fault): refuse(fault)
        }
        if position < input.count, !drainsInput { unread = Array(input[position...]) }
    }

    private func waitForMore(wasIdle: Bool) {
        let now = SystemTime().instant
        guard head != nil else {
            if wasIdle { setDeadline(now + core.settings.headerTimeout) }
            return
        }
        guard reserveForChunks() else { return stopReading(rejection(Self.overloaded)) }
        if bodyStartedAt == nil {
            bodyStartedAt = now
            timeoutRestartedAt = now
            if reader.receivedBodyBytes == 0 { sendContinue() }
        }
        let earned = Duration.nanoseconds(
            Int64(reader.receivedBodyBytes) * HTTPServerSettings.bodyNanosecondsPerByte)
        setDeadline((bodyStartedAt ?? now) + core.settings.headerTimeout + earned)
        // libmicrohttpd does not know about the body, and would close the connection.
        if now - timeoutRestartedAt > .seconds(5) {
            timeoutRestartedAt = now
            postern_mhd_restart_timeout(handle, core.settings.libraryTimeoutSeconds)
        }
    }

    private func sendContinue() {
        guard expectsContinue else { return }
        let text: StaticString = "HTTP/1.1 100 Continue\r\n\r\n"
        let sent = postern_socket_write(socket, tlsSession, text.utf8Start, text.utf8CodeUnitCount)
        // Nothing else is being sent to this client, so there is room. Half of it could not be taken back.
        if sent != text.utf8CodeUnitCount { shutdown(socket, Int32(SHUT_RDWR)) }
    }

    // MARK: The head

    private func admit(_ parsed: consuming RequestReader.Head) -> RequestReader.Admission {
        isCounted = true
        core.running.wrappingAdd(1, ordering: .relaxed)
        let framing = parsed.framing
        let head = RequestHead(parsed, peer: peer, clientCertificate: clientCertificate, memory: memory)
        self.head = head
        closes = framing.closes
        expectsContinue = framing.expectsContinue && head.version == .http11
        switch core.handler.admit(head) {
        case .accept(let maxBodyBytes, let request):
            admitted = request
            guard reserve(forBody: expectedBytes(of: framing, upTo: maxBodyBytes)) else {
                refusal = rejection(Self.overloaded)
                return .stop
            }
            return .accept(limit: maxBodyBytes)
        case .refuse(let response):
            refusal = response
            return admission(ofRefused: framing)
        }
    }

    /// A short body is read and discarded, so that the connection can stay open. A client that waits for `100 Continue`
    /// may or may not send its body; the two cases cannot be distinguished.
    private func admission(ofRefused framing: Framing) -> RequestReader.Admission {
        if refusal?.close == true { return .stop }
        switch framing.body {
        case .none: return .discard(limit: 0)
        case .length(let length) where length > HTTPServerSettings.discardedBodyBytes: return .stop
        case .length, .chunked: return expectsContinue ? .stop : .discard(limit: HTTPServerSettings.discardedBodyBytes)
        }
    }

    // MARK: The memory budget

    /// The size for which memory is reserved with the head. The size of a chunked body is not known: a client that waits
    /// for `100 Continue` is told now whether there is room for the longest one; the others send little in most cases,
    /// see `reserveForChunks`.
    private func expectedBytes(of framing: Framing, upTo limit: Int) -> Int {
        switch framing.body {
        case .none: 0
        // A longer one is rejected without being read.
        case .length(let length): length <= limit ? length : 0
        case .chunked: expectsContinue ? limit : min(limit, HTTPServerSettings.largeBody)
        }
    }

    /// As soon as a chunked body is large, reserves what the longest one takes, so that it is rejected while little of
    /// it was read, or not at all. Returns false if there is no room.
    private func reserveForChunks() -> Bool {
        guard reader.missingBodyBytes == nil, reader.body.count > HTTPServerSettings.largeBody else { return true }
        return reserve(forBody: reader.limit)
    }

    /// Reserves what the request takes if its body has that many bytes. Returns false if there is no room.
    private func reserve(forBody bytes: Int) -> Bool {
        let memory = core.memory
        let needed = bytesNeeded(forBody: bytes)
        let isLarge = needed > HTTPServerSettings.largeBody
        let missing = needed - reservedBytes
        guard missing > 0 else { return true }
        guard memory.take(missing, besides: reservedBytes, upTo: isLarge ? memory.shareOfLarge : nil) else {
            return false
        }
        reservedBytes += missing
        return true
    }

    /// The body is complete, so it is not rejected. Gives back what was reserved for a longer one. If its last part has
    /// made it large, that part has at most `readAheadBytes`, and takes what it needs.
    private func reserveWhatIsRead() {
        let needed = bytesNeeded(forBody: reader.body.count)
        if needed > reservedBytes { core.memory.takeAnyway(needed - reservedBytes) }
        if needed < reservedBytes { core.memory.give(reservedBytes - needed) }
        reservedBytes = needed
    }

    private func bytesNeeded(forBody bytes: Int) -> Int {
        min(admitted?.memory(forBody: bytes) ?? bytes, core.memory.shareOfLarge)
    }

    private func releaseReservation() {
        if reservedBytes > 0 { core.memory.give(reservedBytes) }
        reservedBytes = 0
    }

    private static let overloaded = Problem(
        slug: .overloaded, status: 503,
        detail: "Too many large requests are in flight; nothing was stored. Send the request again later.",
        headers: [("Retry-After", "1")], close: true)

    // MARK: Refusals

    private func refuse(_ fault: RequestFault) {
        // The body of a rejected request is too long to be discarded: the response is sent without waiting for the
        // body's end.
        if case .bodyTooLarge = fault, let refusal { return stopReading(refusal) }
        stopReading(rejection(fault.problem))
    }

    /// The response to a request that the server itself rejects. `deliver` reports it to the handler.
    private func rejection(_ problem: Problem) -> HTTPResponse {
        rejectedFor = problem.slug
        let id = head?.requestID ?? reader.requestID ?? RequestID.fresh()
        requestID = id
        return core.handler.response(to: problem, path: head?.path ?? reader.path ?? "", requestID: id)
    }

    /// Sends `response` and closes; what the client still sends is read and discarded meanwhile.
    private func stopReading(_ response: HTTPResponse?) {
        refusal = response
        refusal?.close = true
        drainsInput = true
        unread = []
        _ = reader.takeBody()
        releaseReservation()
        clearDeadline()
        progress = .received
    }

    // MARK: libmicrohttpd's part

    /// A request as libmicrohttpd sees it: only what its responses depend on.
    private func announce(in buffer: UnsafeMutableRawBufferPointer) -> Int {
        let text = Self.announcement(isHead: head?.method == "HEAD", version: head?.version ?? .http11, closes: closes)
        guard buffer.count >= text.utf8CodeUnitCount else { return Int(POSTERN_READ_FAILED) }
        buffer.copyMemory(from: UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
        progress = .announced
        return text.utf8CodeUnitCount
    }

    private static func announcement(isHead: Bool, version: HTTPVersion, closes: Bool) -> StaticString {
        switch (isHead, version, closes) {
        case (false, .http11, false): "GET / HTTP/1.1\r\n\r\n"
        case (true, .http11, false): "HEAD / HTTP/1.1\r\n\r\n"
        case (false, .http11, true): "GET / HTTP/1.1\r\nConnection: close\r\n\r\n"
        case (true, .http11, true): "HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n"
        case (false, .http10, false): "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
        case (true, .http10, false): "HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
        case (false, .http10, true): "GET / HTTP/1.0\r\n\r\n"
        case (true, .http10, true): "HEAD / HTTP/1.0\r\n\r\n"
        }
    }

    /// One call of libmicrohttpd's access handler: with the headers, at the end of the request, or resumed.
    func advance() -> MHD_Result {
        switch progress {
        // The library has read the socket itself. Nothing that it read is served.
        case .receiving, .received: return .NO
        case .announced:
            progress = .complete
            return .YES
        case .complete: return deliver()
        case .delivered: return conclude()
        }
    }

    private func deliver() -> MHD_Result {
        progress = .delivered
        clearDeadline()
        beginAnswering()
        if let refusal {
            reportRejection(refusal.status)
            settle(.response(refusal), requestNumber: requestNumber)
        } else {
            callHandler()
        }
        releaseReservation()
        return conclude()
    }

    /// Reports a request that the server itself rejects. The handler knows about those that it has refused.
    private func reportRejection(_ status: Int) {
        guard let rejectedFor else { return }
        admitted?.wasRefused(with: status, rejectedFor)
        guard head == nil, let requestID else { return }
        core.handler.wasRefused(
            UnreadRequest(id: requestID, method: reader.method, peer: peer, status: status, slug: rejectedFor))
    }

    /// A function of its own, so that request and responder are released, unless the handler keeps them, before the
    /// response is looked up.
    @inline(never) private func callHandler() {
        admitted.take()?.answer(reader.takeBody(), Responder(self, requestNumber: requestNumber))
    }

    /// The request has ended, with or without a response. libmicrohttpd reports this only for requests that were
    /// announced to it.
    func finish() {
        head = nil
        admitted = nil
        refusal = nil
        rejectedFor = nil
        readsAfterResponse = false
        requestID = nil
        bodyStartedAt = nil
        progress = .receiving
        reader.reset()
        releaseReservation()
        endRequest(.receiving)
        if isCounted {
            isCounted = false
            core.finishRequest()
        }
        waitForNextRequest()
    }
}
