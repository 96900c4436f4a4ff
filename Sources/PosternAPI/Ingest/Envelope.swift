import PosternCore
import PosternHTTP
import PosternUpstream

/// The members of an envelope in addition to the payload, or the attributes of an event that take their place.
struct EnvelopeOptions {
    var key: String?
    var notBefore: Timestamp?
    var expiresAt: Timestamp?
    /// See `Message.traceParent`. Nil means that of the request.
    var traceParent: String?
    /// Whether an SDK has posted the message to the gateway that it was exported from.
    var isFromSDK = false
}

/// The members of an envelope, found in one pass however many there are.
private struct Envelope {
    var upstream: JSONValue?
    var kind: JSONValue?
    var payload: JSONValue?
    var key: JSONValue?
    var notBefore: JSONValue?
    var expiresAt: JSONValue?
    var via: JSONValue?

    init(_ object: JSONValue, _ faults: inout PayloadErrors) {
        for (name, value) in object.members {
            if name.equals("upstream") {
                upstream = value
            } else if name.equals("kind") {
                kind = value
            } else if name.equals("payload") {
                payload = value
            } else if name.equals("key") {
                key = value
            } else if name.equals("notBefore") {
                notBefore = value
            } else if name.equals("expiresAt") {
                expiresAt = value
            } else if name.equals("via") {
                via = value
            } else {
                faults.add(
                    JSONPointer.member(name),
                    "is unknown; an envelope has upstream, kind, payload, key, notBefore, expiresAt, via")
            }
        }
    }
}

/// Envelopes of `POST /v1/messages`: `{"upstream","kind","payload","key"?,"notBefore"?,"expiresAt"?,"via"?}`.
extension IngestValidation {
    mutating func admit(envelope value: JSONValue, at index: Int) throws(Problem) {
        guard value.kind == .object else {
            return reject(
                index, InvalidPayload([PayloadError("", "must be an object with upstream, kind, payload")]), nil)
        }
        var faults = PayloadErrors(atMost: faultsLeft)
        let envelope = Envelope(value, &faults)
        let upstream = try upstream(of: envelope, &faults)
        var kind: ConfiguredUpstream.KindEndpoint?
        if let upstream { kind = self.kind(of: envelope, in: upstream, &faults) }
        let options = options(of: envelope, &faults)
        if options.notBefore != nil, kind?.isTimed ?? false {
            faults.add("/notBefore", "cannot be given with this kind, whose payload says when it happened")
        }
        if envelope.payload == nil { faults.add("/payload", "is required") }
        guard faults.isEmpty, let upstream, let kind, let payload = envelope.payload else {
            return reject(index, InvalidPayload(faults), upstream)
        }
        try admit(payload, upstream, kind, at: index, pointer: "/payload", options: options)
    }

    private func upstream(of envelope: Envelope, _ faults: inout PayloadErrors) throws(Problem) -> ConfiguredUpstream? {
        guard let name = envelope.upstream?.string else {
            faults.add("/upstream", "must be the name of an upstream")
            return nil
        }
        if let upstream = context.upstream(named: name) {
            if let caller, !caller.mayUse(upstream.name) { throw Gatekeeper.foreign(upstream.name, to: caller) }
            return upstream
        }
        let known = context.upstreams(for: caller).map(\.name.description).joined(separator: ", ")
        faults.add("/upstream", "is not configured; configured are: \(known)")
        return nil
    }

    private func kind(
        of envelope: Envelope, in upstream: ConfiguredUpstream, _ faults: inout PayloadErrors
    ) -> ConfiguredUpstream.KindEndpoint? {
        if let text = envelope.kind?.string, let kind = upstream.endpoint(text) { return kind }
        faults.add(
            "/kind", "must be a kind of this upstream: \(upstream.kinds.map(\.text).joined(separator: ", "))")
        return nil
    }

    private func options(of envelope: Envelope, _ faults: inout PayloadErrors) -> EnvelopeOptions {
        var options = EnvelopeOptions()
        if let key = envelope.key, key.kind != .null {
            let text = key.string ?? ""
            if !(1...255).contains(text.utf8.count) {
                faults.add("/key", "must be a string of 1 to 255 bytes")
            } else if text.unicodeScalars.contains(where: { $0.properties.generalCategory == .control }) {
                faults.add("/key", "must not contain control characters")
            } else {
                options.key = text
            }
        }
        if let via = envelope.via, via.kind != .null {
            options.isFromSDK = via.string == MessageJSON.via(isFromSDK: true)
            if !options.isFromSDK { faults.add("/via", "must be sdk, as an export has it, or null") }
        }
        options.notBefore = time(envelope.notBefore, "/notBefore", &faults)
        options.expiresAt = time(envelope.expiresAt, "/expiresAt", &faults)
        if let notBefore = options.notBefore, let expiresAt = options.expiresAt, expiresAt <= notBefore {
            faults.add("/expiresAt", "must be later than notBefore")
        } else if let expiresAt = options.expiresAt, expiresAt <= acceptedAt {
            faults.add("/expiresAt", "must be later than now, which is \(acceptedAt)")
        }
        return options
    }

    private func time(_ value: JSONValue?, _ pointer: String, _ faults: inout PayloadErrors) -> Timestamp? {
        guard let value, value.kind != .null else { return nil }
        if let text = value.string, let time = Timestamp(rfc3339: text) { return time }
        faults.add(pointer, "must be a time of RFC 3339, e.g. 2026-01-31T12:00:00Z")
        return nil
    }
}
