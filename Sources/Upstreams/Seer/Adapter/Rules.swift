import PosternCore
import PosternUpstream

/// Validates payloads (the specification's "Validation"). Each is checked on its own, and nothing is checked beyond
/// these rules: no formats, no trimming; extra members are accepted.
struct Rules: Sendable {
    /// Bytes of the largest payload: the bundle size.
    let maxBytes: Int

    func check(
        _ payload: JSONValue, as kind: SeerKind, maxFaults: Int = PayloadErrors.most
    ) throws(InvalidPayload) {
        var faults = Faults(found: PayloadErrors(atMost: maxFaults))
        if payload.kind != .object {
            faults.add("", "must be an object")
        } else if payload.bytes.count > maxBytes {
            // The size is checked first, and a violation ends the check.
            faults.add("", "must not have more than \(maxBytes) bytes (bundleSizeBytes); it has \(payload.bytes.count)")
        } else {
            switch kind {
            case .activity, .instrumentation: checkActivity(payload, &faults)
            case .tincan: checkStatement(payload, &faults)
            case .custom: break
            }
        }
        guard !faults.found.isEmpty else { return }
        throw InvalidPayload(faults.found, codes: kind.errorCode.map { ["seerCode": $0] } ?? [:])
    }

    // MARK: Activity streams

    private func checkActivity(_ payload: JSONValue, _ faults: inout Faults) {
        let members = Members(payload)
        if let actor = faults.object(members.actor, "/actor") { faults.filled(actor["id"], "/actor/id") }
        faults.filled(members.verb, "/verb")
        if let generator = faults.object(members.generator, "/generator") {
            faults.filled(generator["appId"], "/generator/appId")
        }
        if let object = faults.object(members.object, "/object") {
            faults.filled(object["id"], "/object/id")
            faults.filled(object["objectType"], "/object/objectType")
        }
        if let context = members.context, context.kind != .object {
            faults.add("/context", "must be an object where it is present")
        }
    }

    // MARK: Tin Can statements

    private func checkStatement(_ payload: JSONValue, _ faults: inout Faults) {
        let members = Members(payload)
        if let actor = faults.object(members.actor, "/actor"), !isIdentified(actor) {
            faults.add(
                "/actor", "must have a non-empty mbox, mbox_sha1sum or openid, or an account that is not empty")
        }
        if let verb = faults.object(members.verb, "/verb") { faults.filled(verb["id"], "/verb/id") }
        if let object = faults.object(members.object, "/object") {
            faults.filled(object["id"], "/object/id")
            if let definition = faults.filledObject(object["definition"], "/object/definition") {
                faults.filled(definition["type"], "/object/definition/type")
            }
        }
        if let context = faults.object(members.context, "/context"),
            let extensions = faults.filledObject(context["extensions"], "/context/extensions")
        {
            faults.filled(extensions["appId"], "/context/extensions/appId")
        }
    }

    /// One valid identifier is enough; the others do not matter.
    private func isIdentified(_ actor: JSONValue) -> Bool {
        for (key, value) in actor.members {
            if key.equals("mbox") || key.equals("mbox_sha1sum") || key.equals("openid") {
                if value.isFilledString { return true }
            } else if key.equals("account"), value.isFilledObject {
                return true
            }
        }
        return false
    }
}

/// The members to which rules apply, found in one pass.
private struct Members {
    var actor: JSONValue?
    var verb: JSONValue?
    var generator: JSONValue?
    var object: JSONValue?
    var context: JSONValue?

    init(_ payload: JSONValue) {
        for (key, value) in payload.members {
            if key.equals("actor") {
                actor = value
            } else if key.equals("verb") {
                verb = value
            } else if key.equals("generator") {
                generator = value
            } else if key.equals("object") {
                object = value
            } else if key.equals("context") {
                context = value
            }
        }
    }
}

/// Collects faults, and contains the recurring rules.
private struct Faults {
    private(set) var found: PayloadErrors

    mutating func add(_ pointer: @autoclosure () -> String, _ detail: @autoclosure () -> String) {
        found.add(pointer(), detail())
    }

    /// A string with at least one character; a space is one.
    mutating func filled(_ value: JSONValue?, _ pointer: StaticString) {
        if !(value?.isFilledString ?? false) { add(pointer.description, "must be a non-empty string") }
    }

    mutating func object(_ value: JSONValue?, _ pointer: StaticString) -> JSONValue? {
        if let value, value.kind == .object { return value }
        add(pointer.description, "must be an object")
        return nil
    }

    mutating func filledObject(_ value: JSONValue?, _ pointer: StaticString) -> JSONValue? {
        if let value, value.isFilledObject { return value }
        add(pointer.description, "must be an object that is not empty")
        return nil
    }
}
