import PosternSimulatorKit

/// The JSON inside parameters: `data` of the two batches, and `userTags`.
enum CurioData {
    static let maxRecords = 250

    /// The records of `data` (section 5.1). If `findings` reject the request, they are not used.
    static func actions(
        in data: String, visitor: String, nowMs: Int64, _ findings: inout Findings
    ) -> [Action] {
        guard let records = read(data, &findings)?.elements, records.allSatisfy({ $0.members != nil }) else {
            findings.refuse("data that is not a JSON array of objects")
            return []
        }
        if records.isEmpty { findings.refuse("a batch without records") }
        if records.count > maxRecords { findings.record("a batch of more than \(maxRecords) records") }
        return records.compactMap { action($0, visitor: visitor, nowMs: nowMs, &findings) }
    }

    /// The tags with their values as JSON strings.
    static func tags(in text: String, _ findings: inout Findings) -> [String: String] {
        guard let members = read(text, &findings)?.members else {
            findings.refuse("userTags that are not a JSON object")
            return [:]
        }
        if members.isEmpty { findings.record("userTags without a tag") }
        var tags: [String: String] = [:]
        for member in members {
            if member.name.isEmpty { findings.record("a user tag without a name") }
            if member.value.string == nil { findings.refuse("a user tag that is not a string") }
            tags[member.name] = member.value.string
        }
        return tags
    }

    private static func read(_ text: String, _ findings: inout Findings) -> JSONTree? {
        if hasSpace(text.utf8) { findings.record("JSON that is not compact") }
        guard let document = JSONTree.read(text.utf8), !document.hasTrailingBytes else { return nil }
        if document.hasRepeatedNames { findings.record("a JSON object with the same name twice") }
        return document.value
    }

    // MARK: Records

    private static func action(
        _ record: JSONTree, visitor: String, nowMs: Int64, _ findings: inout Findings
    ) -> Action? {
        guard case .number(let type)? = record["type"], let kind = Action.Kind(recordType: type) else {
            findings.refuse("a record whose type is none of the numbers 0, 1, 2, 3, 4 and 7")
            return nil
        }
        let wanted = ["timestamp", "sessionCode"] + kind.fields + (kind.codeName.map { [$0] } ?? [])
        if record.members?.contains(where: { $0.name != "type" && !wanted.contains($0.name) }) == true {
            findings.record("a record with a field that its type does not have")
        }
        var values: [String: String] = [:]
        for name in wanted {
            guard let text = text(of: record[name], named: name, &findings) else { return nil }
            values[name] = text
        }
        var action = Action(kind: kind, visitor: visitor, session: values["sessionCode"] ?? "")
        action.timestamp = Values.timestamp(values["timestamp"] ?? "", nowMs: nowMs, &findings)
        Values.check("sessionCode", action.session, &findings)
        action.texts = kind.fields.map { ($0, checked($0, values[$0] ?? "", of: kind, &findings)) }
        if let name = kind.codeName, let code = values[name] {
            action.code = code
            Values.check(name, code, &findings)
            if kind.opening == nil, !isUUID(code, version: "4") {
                findings.record("a start in a batch whose \(name) is not a lower-case version-4 UUID")
            }
        }
        return action
    }

    /// Nil if the record is rejected.
    private static func text(
        of member: JSONTree?, named name: String, _ findings: inout Findings
    ) -> String? {
        switch member {
        case nil:
            findings.refuse("a record without \(name)")
            return nil
        case .string(let text)?: return text
        case .number(let text)? where (name == "timestamp" || name == "eventDuration") && Int64(text) != nil:
            findings.record("a record whose \(name) is a number instead of a string")
            return text
        case _?:
            findings.refuse("a record whose \(name) is not a string")
            return nil
        }
    }

    /// A text as the device knows it.
    static func checked(
        _ name: String, _ value: String, of kind: Action.Kind, _ findings: inout Findings
    ) -> String {
        Values.check(name, value, &findings)
        guard Values.twiceEncoded.contains(name) else { return value }
        guard let inner = CurioText(decoding: value.utf8) else {
            findings.record("\(name) is not encoded twice")
            return value
        }
        switch inner.oddity {
        case nil: break
        case .raw?: findings.record("\(name) is not encoded twice")
        case let oddity?: findings.record("\(oddity.rawValue) in the inner encoding of \(name)")
        }
        if inner.text.isEmpty, name != "eventValue", kind.opening == nil { findings.record("\(name) is empty") }
        if inner.text.utf8.contains(0) { findings.record("U+0000 in a text") }
        return inner.text
    }

    /// Whether there is white space between tokens.
    private static func hasSpace(_ bytes: String.UTF8View) -> Bool {
        var isInside = false
        var isEscaped = false
        for byte in bytes {
            switch byte {
            case _ where isEscaped: isEscaped = false
            case UInt8(ascii: "\""): isInside.toggle()
            case UInt8(ascii: "\\"): isEscaped = isInside
            case 0x20, 0x0a, 0x0d, 0x09: if !isInside { return true }
            default: break
            }
        }
        return false
    }
}
