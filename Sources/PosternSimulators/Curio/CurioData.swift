/// The JSON inside parameters: `data` of the two batches, and `userTags`.
enum CurioData {
    static let maxRecords = 250

    /// The records of `data` (section 5.1). With `findings` that refuse the request they are of no use.
    static func actions(
        in data: String, visitor: String, nowMs: Int64, _ findings: inout CurioFindings
    ) -> [CurioAction] {
        var actions: [CurioAction] = []
        var count = 0
        let isWhole = walk(data, &findings) { scanner, findings in
            guard scanner.take(UInt8(ascii: "[")) else { return false }
            if scanner.take(UInt8(ascii: "]")) { return true }
            repeat {
                count += 1
                guard scanner.peek() == UInt8(ascii: "{"), let members = members(&scanner, &findings) else {
                    return false
                }
                if let action = action(members, visitor: visitor, nowMs: nowMs, &findings) { actions.append(action) }
            } while scanner.take(UInt8(ascii: ","))
            return scanner.take(UInt8(ascii: "]"))
        }
        guard isWhole else {
            findings.refuse("data that is no JSON array of objects")
            return []
        }
        if count == 0 { findings.refuse("a batch without records") }
        if count > maxRecords { findings.note("a batch of more than \(maxRecords) records") }
        return actions
    }

    /// The tags with their values as JSON strings.
    static func tags(in text: String, _ findings: inout CurioFindings) -> [String: String] {
        var tags: [String: String] = [:]
        let isWhole = walk(text, &findings) { scanner, findings in
            guard scanner.peek() == UInt8(ascii: "{"), let members = members(&scanner, &findings) else { return false }
            if members.isEmpty { findings.note("userTags without a tag") }
            for (name, value) in members {
                if name.isEmpty { findings.note("a user tag without a name") }
                guard value.kind == .string else {
                    findings.refuse("a user tag that is no string")
                    continue
                }
                tags[name] = value.text
            }
            return true
        }
        if !isWhole { findings.refuse("userTags that are no JSON object") }
        return tags
    }

    // MARK: Records

    private typealias Members = [String: (kind: JSONScanner.Kind, text: String)]

    private static func action(
        _ members: Members, visitor: String, nowMs: Int64, _ findings: inout CurioFindings
    ) -> CurioAction? {
        guard let type = members["type"], type.kind == .integer, let kind = CurioAction.Kind(recordType: type.text)
        else {
            findings.refuse("a record whose type is none of the numbers 0, 1, 2, 3, 4 and 7")
            return nil
        }
        let codeNames = kind.codeName.map { [$0] } ?? []
        let wanted = ["timestamp", "sessionCode"] + kind.fields + codeNames
        if !Set(members.keys).subtracting(wanted).subtracting(["type"]).isEmpty {
            findings.note("a record with a field that its type does not have")
        }
        var values: [String: String] = [:]
        for name in wanted {
            guard let text = text(of: members[name], named: name, &findings) else { return nil }
            values[name] = text
        }
        var action = CurioAction(kind: kind, visitor: visitor, session: values["sessionCode"] ?? "")
        action.timestamp = CurioValues.timestamp(values["timestamp"] ?? "", nowMs: nowMs, &findings)
        CurioValues.check("sessionCode", action.session, &findings)
        action.texts = kind.fields.map { ($0, checked($0, values[$0] ?? "", of: kind, &findings)) }
        if let name = kind.codeName, let code = values[name] {
            action.code = code
            CurioValues.check(name, code, &findings)
            if kind.opening == nil, !isUUID(code, version: "4") {
                findings.note("a start in a batch whose \(name) is no lower-case version-4 UUID")
            }
        }
        return action
    }

    /// Nil when the record is refused.
    private static func text(
        of member: (kind: JSONScanner.Kind, text: String)?, named name: String, _ findings: inout CurioFindings
    ) -> String? {
        switch member {
        case nil:
            findings.refuse("a record without \(name)")
            return nil
        case (.string, let text)?: return text
        case (.integer, let text)? where name == "timestamp" || name == "eventDuration":
            findings.note("a record whose \(name) is a number instead of a string")
            return text
        case _?:
            findings.refuse("a record whose \(name) is no string")
            return nil
        }
    }

    /// A text as the device knows it.
    static func checked(
        _ name: String, _ value: String, of kind: CurioAction.Kind, _ findings: inout CurioFindings
    ) -> String {
        CurioValues.check(name, value, &findings)
        guard CurioValues.twiceEncoded.contains(name) else { return value }
        guard let inner = CurioText(decoding: value.utf8) else {
            findings.note("\(name) is not encoded twice")
            return value
        }
        switch inner.oddity {
        case nil: break
        case .raw?: findings.note("\(name) is not encoded twice")
        case let oddity?: findings.note("\(oddity.rawValue) in the inner encoding of \(name)")
        }
        if inner.text.isEmpty, name != "eventValue", kind.opening == nil { findings.note("\(name) is empty") }
        if inner.text.utf8.contains(0) { findings.note("U+0000 in a text") }
        return inner.text
    }

    // MARK: JSON

    /// Reads `text` to its end; false when it is no JSON or something else follows.
    private static func walk(
        _ text: String, _ findings: inout CurioFindings,
        _ body: (inout JSONScanner, inout CurioFindings) -> Bool
    ) -> Bool {
        var text = text
        return text.withUTF8 { bytes in
            if hasSpace(bytes) { findings.note("JSON that is not compact") }
            var scanner = JSONScanner(bytes)
            return body(&scanner, &findings) && scanner.peek() == nil && !scanner.sawControlCharacter
        }
    }

    private static func members(_ scanner: inout JSONScanner, _ findings: inout CurioFindings) -> Members? {
        var members: Members = [:]
        var isRepeated = false
        let bytes = scanner.text
        let isWhole = scanner.members { key, value in
            let raw = bytes[value.range]
            let text =
                value.kind == .string
                ? unescaped(raw.dropFirst().dropLast()) : String(decoding: raw, as: UTF8.self)
            isRepeated = members.updateValue((value.kind, text), forKey: key.name) != nil || isRepeated
        }
        if isRepeated { findings.note("a JSON object with the same name twice") }
        return isWhole ? members : nil
    }

    /// White space between tokens.
    private static func hasSpace(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
        var isInside = false
        var place = 0
        while place < bytes.count {
            switch bytes[place] {
            case UInt8(ascii: "\""): isInside.toggle()
            case UInt8(ascii: "\\") where isInside: place += 1
            case 0x20, 0x0a, 0x0d, 0x09: if !isInside { return true }
            default: break
            }
            place += 1
        }
        return false
    }
}
