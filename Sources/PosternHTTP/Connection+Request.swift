internal import CMicrohttpd
import Glibc
internal import PosternCore
import Synchronization

// Receiving a request. All of it runs on the connection's worker thread, inside callbacks of libmicrohttpd.
extension Connection {
    /// The request line is in; `target` is as sent.
    func begin(_ target: UnsafePointer<CChar>?) {
        self.target = RequestTarget(bytes(target, target.map { strlen($0) } ?? 0))
        progress = .head
    }

    /// One call of libmicrohttpd's access handler: headers, a part of the body, the end of it, or resumed.
    func advance(
        method: UnsafePointer<CChar>, version: UnsafePointer<CChar>, part: UnsafeBufferPointer<UInt8>
    ) -> MHD_Result {
        switch progress {
        case .head: return receiveHead(method, version)
        case .body where part.isEmpty: return deliver()
        case .body: return receive(part)
        case .discarding where !part.isEmpty: return .YES
        case .refused(let response), .discarding(let response):
            progress = .delivered
            return send(response)
        case .delivered: return conclude()
        }
    }

    private func receiveHead(_ method: UnsafePointer<CChar>, _ version: UnsafePointer<CChar>) -> MHD_Result {
        isCounted = true
        core.running.wrappingAdd(1, ordering: .relaxed)
        let version: HTTPVersion = strcmp(version, "HTTP/1.0") == 0 ? .http10 : .http11
        var framing = Framing()
        withUnsafeMutablePointer(to: &framing) {
            _ = MHD_get_connection_values_n(handle, .HEADER_KIND, noteHeader, $0)
        }
        framing.conclude(version: version)
        let target = self.target ?? RequestTarget(bytes(nil, 0))
        if !target.isValid { framing.blame("the request target holds more than visible ASCII") }
        self.target = nil
        announcedBytes = framing.isChunked ? nil : framing.contentLength ?? 0
        let head = RequestHead(
            method: String(cString: method), target: target, version: version, peer: peer,
            requestID: framing.requestID ?? RequestID.fresh(), nameLengths: framing.nameLengths, connection: handle)
        self.head = head
        if let problem = core.firstObjection(to: framing, connection: self) {
            return refuse(problem.response(to: head), bodyFollows: framing.announcesBody)
        }
        switch core.handler.admit(head) {
        case .refuse(let response): return refuse(response, bodyFollows: framing.announcesBody)
        case .accept(let maxBodyBytes, let note):
            self.maxBodyBytes = maxBodyBytes
            self.note = note
            if announcedBytes ?? 0 > maxBodyBytes { return refuse(tooLarge(head), bodyFollows: true) }
        }
        progress = .body
        if framing.announcesBody {
            bodyStartedAt = SystemTime().instant
            setDeadline(bodyStartedAt + core.settings.headerTimeout)
        }
        return .YES
    }

    /// With a body on its way libmicrohttpd closes after an answer that comes before it; without one the answer waits
    /// until the request is over, and the connection stays.
    private func refuse(_ response: HTTPResponse, bodyFollows: Bool) -> MHD_Result {
        if !bodyFollows && !response.close {
            progress = .refused(response)
            return .YES
        }
        lingers = bodyFollows
        progress = .delivered
        clearDeadline()
        return send(response)
    }

    private func tooLarge(_ head: RequestHead) -> HTTPResponse {
        Problem(
            slug: .payloadTooLarge, status: 413,
            detail: "The body may have at most \(maxBodyBytes) bytes. Send it in smaller parts.", close: true
        ).response(to: head)
    }

    private func receive(_ part: UnsafeBufferPointer<UInt8>) -> MHD_Result {
        guard body.count + part.count <= maxBodyBytes else { return refuseOversized() }
        if body.isEmpty {
            if part.count == announcedBytes {
                body = Array(part)
                return .YES
            }
            body.reserveCapacity(min(announcedBytes ?? 4 * part.count, 1 << 20))
        }
        body.append(contentsOf: part)
        let earned = Duration.nanoseconds(Int64(body.count) * HTTPServerSettings.bodyNanosecondsPerByte)
        setDeadline(bodyStartedAt + core.settings.headerTimeout + earned)
        return .YES
    }

    /// libmicrohttpd takes no answer in the midst of a body: on plain connections we write it ourselves, on TLS ones
    /// it has to wait for the end of the body, which must come soon.
    private func refuseOversized() -> MHD_Result {
        guard let head else { return .NO }
        let response = tooLarge(head)
        body = []
        lingers = true
        if postern_mhd_tls_session(handle) != nil {
            setDeadline(SystemTime().instant + .seconds(2))
            progress = .discarding(response)
            return .YES
        }
        let text = response.serialized(requestID: head.requestID)
        _ = Glibc.send(socket, text, text.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
        return .NO
    }

    private func deliver() -> MHD_Result {
        clearDeadline()
        progress = .delivered
        beginAnswering()
        callHandler()
        releaseHead()
        return conclude()
    }

    /// By itself, so that request and responder are gone, if the handler kept none, before anyone looks for an answer.
    @inline(never) private func callHandler() {
        guard let head else { return }
        var body: [UInt8] = []
        swap(&body, &self.body)
        let request = IncomingRequest(head: head, body: body, receivedAt: SystemTime().instant, note: note.take())
        core.handler.answer(request, Responder(self, turn: turn))
    }

    /// Whoever kept the head gets a copy of the headers; the request id is still needed for the answer.
    private func releaseHead() {
        if !isKnownUniquelyReferenced(&head) { head?.detach() }
    }

    /// The request is over, answered or not.
    func finish() {
        releaseHead()
        head = nil
        note = nil
        body = []
        progress = .head
        endTurn(.receiving)
        if isCounted {
            isCounted = false
            core.finishRequest()
        }
        waitForNextRequest()
    }
}

private let noteHeader: MHD_KeyValueIteratorN = { context, _, name, nameSize, value, valueSize in
    context!.assumingMemoryBound(to: Framing.self).pointee.note(
        name: bytes(name, nameSize), value: bytes(value, valueSize))
    return .YES
}
