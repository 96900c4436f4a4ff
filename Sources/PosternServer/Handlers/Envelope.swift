import PosternCore
import PosternHTTP

/// What an envelope says besides the payload.
struct EnvelopeOptions {
    var key: String?
    var notBefore: Timestamp?
    var expiresAt: Timestamp?
}

/// Envelopes of `POST /v1/messages`: `{"upstream","kind","payload","key"?,"notBefore"?,"expiresAt"?}`.
extension Order {
    private static let members: Set<String> = ["upstream", "kind", "payload", "key", "notBefore", "expiresAt"]

    func admit(envelope: JSONValue, at index: Int) {
        guard envelope.kind == .object else {
            return reject(
                index, InvalidPayload([PayloadFault("", "must be an object with upstream, kind, payload")]), nil)
        }
        var faults: [PayloadFault] = []
        for member in envelope.members {
            let name = member.key.string ?? ""
            if !Self.members.contains(name) {
                faults.append(
                    PayloadFault(
                        JSONPointer.member(name),
                        "is unknown; an envelope has upstream, kind, payload, key, notBefore, expiresAt"))
            }
        }
        let target = target(of: envelope, &faults)
        var kind: Target.Acceptable?
        if let target { kind = self.kind(of: envelope, in: target, &faults) }
        let options = options(of: envelope, &faults)
        if options.notBefore != nil, kind?.isTimed ?? false {
            faults.append(
                PayloadFault("/notBefore", "cannot be given with this kind, whose payload says when it happened"))
        }
        let payload = envelope["payload"]
        if payload == nil { faults.append(PayloadFault("/payload", "is required")) }
        guard faults.isEmpty, let target, let kind, let payload else {
            return reject(index, InvalidPayload(faults), target)
        }
        admit(payload, target, kind, at: index, pointer: "/payload", options: options)
    }

    private func target(of envelope: JSONValue, _ faults: inout [PayloadFault]) -> Target? {
        guard let name = envelope["upstream"]?.string else {
            faults.append(PayloadFault("/upstream", "must be the name of an upstream"))
            return nil
        }
        if let target = gateway.target(named: name) { return target }
        let known = gateway.targets.map(\.name.description).joined(separator: ", ")
        faults.append(PayloadFault("/upstream", "is not configured; configured are: \(known)"))
        return nil
    }

    private func kind(
        of envelope: JSONValue, in target: Target, _ faults: inout [PayloadFault]
    ) -> Target.Acceptable? {
        if let text = envelope["kind"]?.string, let kind = target.acceptable(text) { return kind }
        let known = target.kinds.map(\.text).joined(separator: ", ")
        faults.append(PayloadFault("/kind", "must be a kind of this upstream: \(known)"))
        return nil
    }

    private func options(of envelope: JSONValue, _ faults: inout [PayloadFault]) -> EnvelopeOptions {
        var options = EnvelopeOptions()
        if let key = envelope["key"], key.kind != .null {
            let text = key.string ?? ""
            if !(1...255).contains(text.utf8.count) {
                faults.append(PayloadFault("/key", "must be a string of 1 to 255 bytes"))
            } else if text.unicodeScalars.contains(where: { $0.properties.generalCategory == .control }) {
                faults.append(PayloadFault("/key", "must not contain control characters"))
            } else {
                options.key = text
            }
        }
        options.notBefore = time(envelope["notBefore"], "/notBefore", &faults)
        options.expiresAt = time(envelope["expiresAt"], "/expiresAt", &faults)
        if let notBefore = options.notBefore, let expiresAt = options.expiresAt, expiresAt <= notBefore {
            faults.append(PayloadFault("/expiresAt", "must be later than notBefore"))
        }
        return options
    }

    private func time(_ value: JSONValue?, _ pointer: String, _ faults: inout [PayloadFault]) -> Timestamp? {
        guard let value, value.kind != .null else { return nil }
        if let text = value.string, let time = Timestamp(rfc3339: text) { return time }
        faults.append(PayloadFault(pointer, "must be a time of RFC 3339, e.g. 2026-01-31T12:00:00Z"))
        return nil
    }
}
