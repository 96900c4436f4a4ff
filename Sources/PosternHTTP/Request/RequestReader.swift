/// Turns the bytes of a connection into requests. A value: it reads no socket and no clock.
struct RequestReader {
    /// What to do with the body of a request whose head has arrived.
    enum Admission {
        /// Keep it, up to this many bytes.
        case accept(limit: Int)
        /// Read and discard it, up to this many bytes, so that the next request can be found.
        case discard(limit: Int)
        /// Read neither it nor anything that follows.
        case stop
    }

    enum Step: Equatable {
        /// The request is not complete; all bytes were used.
        case more
        case complete
        /// Reading has stopped, by `Admission.stop`.
        case stopped
        case refused(RequestFault)
    }

    /// A request whose head has arrived.
    struct Head {
        let line: RequestLine
        let framing: Framing
        let fields: HeaderFields
    }

    private enum Phase {
        case head
        case length(Int)
        case chunked(ChunkedDecoder)
        case complete
    }

    private(set) var body: [UInt8] = []
    /// The number of bytes of the body that have arrived, including discarded ones.
    private(set) var receivedBodyBytes = 0
    private var parser = HeadParser()
    /// The head as sent, as far as it has arrived.
    private var headBytes: [UInt8] = []
    private var phase = Phase.head
    /// The most bytes that the body may have.
    private(set) var limit = 0
    private var keepsBody = true

    /// Whether no byte of a request has arrived.
    var isIdle: Bool {
        if case .head = phase { headBytes.isEmpty } else { false }
    }
    /// The path of the request line, once it has arrived; also that of a line which is refused.
    var path: String? { parser.line?.target.path ?? RequestTarget.path(inLine: headBytes) }
    var method: String? { parser.line?.method }
    /// The client's `X-Request-Id` if it is valid, once it has arrived.
    var requestID: String? { parser.framing.requestID }
    /// How many bytes the body still needs; nil while that is not known.
    var missingBodyBytes: Int? { if case .length(let left) = phase { left } else { nil } }

    /// Prepares for the next request.
    mutating func reset() {
        body = []
        receivedBodyBytes = 0
        parser.reset()
        headBytes.removeAll(keepingCapacity: headBytes.capacity <= 2048)
        phase = .head
        keepsBody = true
    }

    /// Returns the body, which the reader no longer needs.
    mutating func takeBody() -> [UInt8] {
        var taken: [UInt8] = []
        swap(&taken, &body)
        return taken
    }

    /// Reads `input` from `position` on until a request is complete, and sets `position` to where the next one begins.
    /// `admit` is called once per request, when its head is complete.
    mutating func read(
        _ input: UnsafeBufferPointer<UInt8>, from position: inout Int, admit: (consuming Head) -> Admission
    ) -> Step {
        if case .head = phase {
            switch readHead(input, from: &position) {
            case .incomplete: return .more
            case .refused(let fault): return .refused(fault)
            case .complete: if !begin(admit) { return .stopped }
            }
        }
        return readBody(input, from: &position)
    }

    /// A head that arrives in one piece is parsed where it is; otherwise its parts are put together first.
    private mutating func readHead(
        _ input: UnsafeBufferPointer<UInt8>, from position: inout Int
    ) -> HeadParser.Progress {
        let rest = UnsafeBufferPointer(rebasing: input[position...])
        let earlier = headBytes.count
        let progress: HeadParser.Progress
        if earlier == 0 {
            progress = parser.parse(rest)
        } else {
            headBytes.append(contentsOf: rest)
            progress = headBytes.withUnsafeBufferPointer { parser.parse($0) }
        }
        switch progress {
        case .incomplete, .refused:
            if earlier == 0 { headBytes.append(contentsOf: rest) }
            position = input.count
        case .complete(let end):
            if earlier == 0 {
                headBytes.append(contentsOf: rest[..<end])
            } else {
                headBytes.removeSubrange(end...)
            }
            position += end - earlier
        }
        return progress
    }

    /// Whether the body is to be read.
    private mutating func begin(_ admit: (consuming Head) -> Admission) -> Bool {
        guard let line = parser.line else { return false }
        switch admit(Head(line: line, framing: parser.framing, fields: HeaderFields(headBytes, parser.fields))) {
        case .accept(let limit): self.limit = limit
        case .discard(let limit): (self.limit, keepsBody) = (limit, false)
        case .stop: return false
        }
        switch parser.framing.body {
        case .none: phase = .complete
        case .length(let length): phase = .length(length)
        case .chunked: phase = .chunked(ChunkedDecoder())
        }
        return true
    }

    private mutating func readBody(_ input: UnsafeBufferPointer<UInt8>, from position: inout Int) -> Step {
        switch phase {
        case .head: return .more
        case .complete: return .complete
        case .length(let left):
            guard left + receivedBodyBytes <= limit else { return .refused(.bodyTooLarge(limit: limit)) }
            let end = position + min(left, input.count - position)
            if keepsBody { append(UnsafeBufferPointer(rebasing: input[position..<end]), left) }
            receivedBodyBytes += end - position
            phase = left == end - position ? .complete : .length(left - (end - position))
            position = end
        case .chunked(var decoder):
            phase = .complete
            receivedBodyBytes += input.count - position
            let decoded = decoder.decode(input, from: &position, into: &body, limit: limit, keeps: keepsBody)
            if case .refused(let fault) = decoded { return .refused(fault) }
            if decoded == .incomplete { phase = .chunked(decoder) }
        }
        if case .complete = phase { return .complete }
        return .more
    }

    private mutating func append(_ part: UnsafeBufferPointer<UInt8>, _ missing: Int) {
        if body.isEmpty { body.reserveCapacity(missing) }
        body.append(contentsOf: part)
    }
}
