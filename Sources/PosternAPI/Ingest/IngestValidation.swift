import PosternCore
import PosternHTTP
import PosternStore
import PosternUpstream

/// Reads the messages of a request, and has the upstreams validate each.
struct IngestValidation {
    let context: APIContext
    /// Whose upstreams and limits apply; nil if no key is configured.
    let caller: Caller?
    private let body: [UInt8]
    private let form: BodyForm?
    private let isInSession: Bool
    let acceptedAt: Timestamp
    /// The trace of all messages that do not name one of their own.
    private let traceParent: String?
    var request: IngestRequest
    /// Where what is being read begins: the index of its first message, and its first byte in the body.
    private var start = (index: 0, offset: 0)
    /// The last line that was looked for, which is the one of the element before `next`, and where the next one begins.
    private var line = (next: 0, number: 0, end: 0)
    /// How many faults the response still has room for.
    private(set) var faultsLeft = PayloadErrors.most

    init(_ body: [UInt8], _ asked: APIRequest, _ context: APIContext) {
        self.context = context
        self.body = body
        caller = asked.caller
        form = asked.form
        isInSession = asked.head.header("Postern-Session") != nil
        acceptedAt = context.time.now
        traceParent = TraceParent(asked.head)?.text
        request = IngestRequest(preferences: Preferences(asked.head), isDryRun: asked.isDryRun)
    }

    // MARK: The two ways in

    /// Messages of one kind. The upstream rejects a body that is neither a payload nor a list of payloads.
    mutating func readPayloads(
        _ root: JSONValue, _ upstream: ConfiguredUpstream, _ kind: ConfiguredUpstream.KindEndpoint
    )
        throws(Problem)
    {
        if root.kind != .array, form == .json {
            request.isSingle = true
            try admit(root, upstream, kind, at: 0)
        } else if try accepts(list: root) {
            for (index, payload) in root.elements.enumerated() {
                try admit(payload, upstream, kind, at: start.index + index)
            }
        }
    }

    mutating func readEnvelopes(_ root: JSONValue) throws(Problem) {
        if root.kind == .object, form == .json {
            request.isSingle = true
            try admit(envelope: root, at: 0)
        } else if try accepts(list: root) {
            for (index, envelope) in root.elements.enumerated() {
                try admit(envelope: envelope, at: start.index + index)
            }
        }
    }

    /// Calls `read` with a list of one element for each line, so that a line that is not valid JSON is rejected like any
    /// other message: nothing in it makes the lines around it doubtful. Blank lines are skipped.
    mutating func readLines(
        _ text: UnsafeBufferPointer<UInt8>, _ read: (JSONValue, inout IngestValidation) throws(Problem) -> Void
    ) throws(Problem) -> Result<Void, JSONError> {
        let parser = JSONParser.ofThisThread
        while start.offset < text.count {
            let end = text[start.offset...].firstIndex(of: UInt8(ascii: "\n")) ?? text.count
            let line = UnsafeBufferPointer(rebasing: text[start.offset..<end])
            switch try parser.parseLines(line, { root throws(Problem) in try read(root, &self) }) {
            case .success: start.index += 1
            case .failure(let error) where error.reason == .empty: break
            case .failure(let error):
                guard start.index < context.limits.maxMessagesPerRequest else { throw tooMany }
                let detail = "the line is not acceptable JSON: \(error.description(in: Array(line))) of the line"
                reject(start.index, InvalidPayload([PayloadError("", detail)]), nil)
                start.index += 1
            }
            start.offset = end + 1
        }
        return start.index > 0 ? .success(()) : .failure(JSONError(.empty, at: text.count))
    }

    /// Whether it is a list; throws if it is too long.
    mutating func accepts(list root: JSONValue) throws(Problem) -> Bool {
        guard root.kind == .array else {
            request.isSingle = true
            reject(0, InvalidPayload([PayloadError("", "must be an object, or an array of objects")]), nil)
            return false
        }
        let most = context.limits.maxMessagesPerRequest - start.index
        let count = root.elements.prefix(most + 1).reduce(0) { count, _ in count + 1 }
        guard count <= most else { throw tooMany }
        request.messages.reserveCapacity(count)
        request.kinds.reserveCapacity(count)
        return true
    }

    private var tooMany: Problem {
        Problem(
            slug: .payloadTooLarge, status: 413,
            detail:
                "The request holds more than \(context.limits.maxMessagesPerRequest) messages; send them in several "
                + "requests.")
    }

    // MARK: One message

    /// Has the upstream validate a payload, and adds the message if it is valid. Throws only for a fan-out.
    ///
    /// - Parameter pointer: Where the payload is in the request's own element.
    mutating func admit(
        _ payload: JSONValue, _ upstream: ConfiguredUpstream, _ kind: ConfiguredUpstream.KindEndpoint, at index: Int,
        pointer: String = "",
        options: EnvelopeOptions = EnvelopeOptions()
    ) throws(Problem) {
        guard kind.legs.isEmpty else {
            return try fanOut(payload, upstream, kind, at: index, pointer: pointer, options)
        }
        do throws(InvalidPayload) {
            try add(payload, upstream, kind, at: index, options)
        } catch {
            reject(index, error, upstream, below: pointer)
        }
    }

    /// Adds a message for each leg. If one of them rejects the payload, nothing is added.
    private mutating func fanOut(
        _ payload: JSONValue, _ upstream: ConfiguredUpstream, _ kind: ConfiguredUpstream.KindEndpoint, at index: Int,
        pointer: String, _ options: EnvelopeOptions
    ) throws(Problem) {
        // The response is that to several messages, however many legs there are.
        request.isSingle = false
        do throws(InvalidPayload) { _ = try valid(payload, upstream, kind) } catch {
            return reject(index, error, upstream, below: pointer)
        }
        let before = request.messages.count
        var faults = PayloadErrors(atMost: faultsLeft)
        var codes: [String: Int] = [:]
        for leg in kind.legs {
            guard let target = context.upstream(named: leg.upstream), let kind = target.endpoint(leg.kind) else {
                throw RoutingProblem.unknownUpstream(leg.upstream).problem(in: context, for: caller)
            }
            if let caller, !caller.mayUse(target.name) { throw Gatekeeper.foreign(target.name, to: caller) }
            if options.notBefore != nil, kind.isTimed {
                faults.add("/notBefore", "cannot be given: the payload of \(leg) says when it happened")
            }
            do throws(InvalidPayload) { try add(payload, target, kind, at: index, options) } catch {
                for fault in error.faults.kept {
                    faults.add(pointer + fault.pointer, "\(fault.detail), as \(leg) requires")
                }
                codes.merge(error.codes) { $1 }
            }
        }
        guard request.messages.count <= context.limits.maxMessagesPerRequest else { throw tooMany }
        guard !faults.isEmpty else {
            request.fannedOut.insert(index)
            return
        }
        request.removeMessages(from: before)
        reject(index, InvalidPayload(faults, codes: codes), upstream)
    }

    private func valid(
        _ payload: JSONValue, _ upstream: ConfiguredUpstream, _ kind: ConfiguredUpstream.KindEndpoint
    ) throws(InvalidPayload) -> ValidPayload {
        if upstream.adapter.traits.hasSessions, isInSession { throw InvalidPayload([Self.sessionFault]) }
        return try upstream.adapter.validate(
            payload, of: kind.kind,
            in: ValidationContext(
                acceptedAt: acceptedAt, isAwaited: request.preferences.wait != nil, maxFaults: faultsLeft,
                random: context.random))
    }

    private mutating func add(
        _ payload: JSONValue, _ upstream: ConfiguredUpstream, _ kind: ConfiguredUpstream.KindEndpoint, at index: Int,
        _ options: EnvelopeOptions
    ) throws(InvalidPayload) {
        let valid = try valid(payload, upstream, kind)
        request.messages.append(
            NewMessage(
                queue: upstream.queue, kind: kind.kind, lane: valid.lane, key: options.key,
                acceptedAt: acceptedAt, notBefore: options.notBefore,
                expiresAt: options.expiresAt ?? valid.expiresAt,
                bytes: valid.rewritten ?? body,
                range: valid.rewritten == nil ? rangeInBody(of: payload) : nil,
                waitsFor: valid.waitsFor, credential: valid.credential,
                traceParent: options.traceParent ?? traceParent,
                turn: upstream.fairness?.turn(ofCaller: caller?.turn, key: options.key, payload: payload) ?? 0,
                isFromSDK: options.isFromSDK))
        if valid.credential != nil { request.handsInCredentials = true }
        request.kinds.append((upstream, kind))
        request.indices.append(index)
    }

    private func rangeInBody(of payload: JSONValue) -> Range<Int> {
        start.offset + payload.range.lowerBound..<start.offset + payload.range.upperBound
    }

    private static let sessionFault = PayloadError(
        "", "is not queued in a session: leave out Postern-Session, or have it answered at once")

    mutating func reject(
        _ index: Int, _ payload: InvalidPayload, _ upstream: ConfiguredUpstream?, below pointer: String = ""
    ) {
        var faults = PayloadErrors(atMost: faultsLeft)
        faults.add(payload.faults, below: pointer)
        faultsLeft -= faults.kept.count
        request.rejected.append(
            .init(
                index: index, line: form == .lines ? line(of: index) : nil,
                payload: InvalidPayload(faults, codes: payload.codes), upstream: upstream))
    }

    /// The line of an element. Blank lines have none. Elements are looked for in their order.
    private mutating func line(of index: Int) -> Int {
        while line.next <= index, line.end < body.count {
            let end = body[line.end...].firstIndex(of: UInt8(ascii: "\n")) ?? body.count
            let isBlank = body[line.end..<end].allSatisfy { [0x20, 0x09, 0x0D].contains($0) }
            line = (line.next + (isBlank ? 0 : 1), line.number + 1, end + 1)
        }
        return line.number
    }
}
