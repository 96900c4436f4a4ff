import PosternSimulatorKit

/// The kind of a payload, and the members that the server requires (specification, section "Validation").
enum SeerKind: Sendable, Equatable {
    case activity, instrumentation, tincan, custom

    /// JSON Pointers of the members that break a rule; empty for a payload that is accepted. Nothing beyond the rules
    /// is checked: no formats, no trimming, no further members. If a member is repeated, the last one counts.
    func complaints(about item: JSONScanner.Value, in text: UnsafeBufferPointer<UInt8>) -> [String] {
        let item = Node(value: item, text: text)
        guard item.isObject else { return [""] }
        var rules = Rules()
        switch self {
        case .activity, .instrumentation: Self.checkActivity(item, &rules)
        case .tincan: Self.checkStatement(item, &rules)
        case .custom: break
        }
        return rules.broken
    }

    private static func checkActivity(_ item: Node, _ rules: inout Rules) {
        let found = item.members("actor", "verb", "generator", "object", "context")
        let object = found[3].members("id", "objectType")
        rules.require(found[0].isObject, "/actor")
        rules.require(found[0].members("id")[0].isFilled, "/actor/id")
        rules.require(found[1].isFilled, "/verb")
        rules.require(found[2].isObject, "/generator")
        rules.require(found[2].members("appId")[0].isFilled, "/generator/appId")
        rules.require(found[3].isObject, "/object")
        rules.require(object[0].isFilled, "/object/id")
        rules.require(object[1].isFilled, "/object/objectType")
        rules.require(found[4].value == nil || found[4].isObject, "/context")
    }

    private static func checkStatement(_ item: Node, _ rules: inout Rules) {
        let found = item.members("actor", "verb", "object", "context")
        let identifiers = found[0].members("mbox", "mbox_sha1sum", "openid", "account")
        let object = found[2].members("id", "definition")
        let extensions = found[3].members("extensions")[0]
        // An invalid identifier next to a valid one is ignored.
        rules.require(
            identifiers.prefix(3).contains(where: \.isFilled) || identifiers[3].isFilledObject, "/actor")
        rules.require(found[1].members("id")[0].isFilled, "/verb/id")
        rules.require(object[0].isFilled, "/object/id")
        rules.require(object[1].members("type")[0].isFilled, "/object/definition/type")
        rules.require(found[3].isObject, "/context")
        rules.require(extensions.members("appId")[0].isFilled, "/context/extensions/appId")
    }
}

private struct Rules {
    var broken: [String] = []
    mutating func require(_ holds: Bool, _ pointer: String) { if !holds { broken.append(pointer) } }
}

/// A value inside a text that the scanner has accepted, or none.
private struct Node {
    let value: JSONScanner.Value?
    let text: UnsafeBufferPointer<UInt8>

    var isObject: Bool { value?.kind == .object }

    /// A string with at least one character.
    var isFilled: Bool { value.map { $0.kind == .string && $0.range.count > 2 } ?? false }

    var isFilledObject: Bool {
        guard isObject, let value else { return false }
        var scanner = JSONScanner(text)
        scanner.position = value.range.lowerBound + 1
        return scanner.peek() != UInt8(ascii: "}")
    }

    /// As many nodes as `names`; without a value where this is not an object or has no such member.
    func members(_ names: StaticString...) -> [Node] {
        var found = [JSONScanner.Value?](repeating: nil, count: names.count)
        if let value, isObject {
            var scanner = JSONScanner(text)
            scanner.position = value.range.lowerBound
            _ = scanner.members { key, value in
                for (position, name) in names.enumerated() where key.equals(name) { found[position] = value }
            }
        }
        return found.map { Node(value: $0, text: text) }
    }
}
