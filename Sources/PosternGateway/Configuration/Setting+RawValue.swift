import PosternCore
import PosternUpstream

extension Setting {
    /// The value that `raw` represents.
    func value(of raw: RawValue) throws(Setting.Mismatch) -> SettingValue {
        switch raw.content {
        case .json(let node): try value(of: node)
        case .text(let text): try value(of: text)
        }
    }

    private func value(of node: ConfigurationNode) throws(Setting.Mismatch) -> SettingValue {
        switch (kind, node) {
        case (_, .null) where isOptional: .null
        case (.text, .string(let text)), (.url, .string(let text)): .text(text)
        case (.choice(let choices), .string(let text)) where choices.contains(text): .text(text)
        case (.bool, .flag(let flag)): .bool(flag)
        case (.integer(let range), .number(let spelling)): .integer(try integer(spelling, in: range))
        case (.number(let range), .number(let spelling)): try number(spelling, in: range)
        case (.strings, .object): .strings(try texts(node))
        case (.objects(let kinds), .object(let members)):
            .objects(
                Dictionary(
                    try members.map { (member) throws(Setting.Mismatch) in
                        (member.name, try values(member.value, kinds, at: [member.name]))
                    },
                    uniquingKeysWith: { $1 }))
        case (.records(let kinds), .array(let elements)):
            .records(
                try elements.enumerated().map { (index, element) throws(Setting.Mismatch) in
                    try values(element, kinds, at: ["\(index)"])
                })
        case (.list, .array(let elements)):
            .list(try elements.map { (element) throws(Setting.Mismatch) in try text(element) })
        case (.integers(let range), .array(let elements)):
            .integers(try elements.map { (element) throws(Setting.Mismatch) in try wholeNumber(element, in: range) })
        case (.choice(let choices), .string(let text)):
            throw Setting.Mismatch(expectation + nearestValue(to: text, among: choices))
        case (.integer, .string(let text)), (.number, .string(let text)):
            // The value is right, and its form is not.
            let isQuoted = (try? value(of: .number(text))) != nil
            throw Setting.Mismatch(requirement + (isQuoted ? ", without quotes" : ""))
        default: throw Setting.Mismatch(requirement)
        }
    }

    /// The expectation with the unit, which the name ends in, and the range.
    private var requirement: String {
        let units = [("Seconds", "seconds"), ("Bytes", "bytes"), ("Days", "days")]
        let unit = units.first { name.hasSuffix($0.0) }.map { " of \($0.1)" } ?? ""
        return switch kind {
        case .integer, .number: "\(expectation)\(unit), \(allowed)"
        default: expectation
        }
    }

    /// From a variable or a secret file: lists are separated by commas, objects are JSON.
    private func value(of text: String) throws(Setting.Mismatch) -> SettingValue {
        if isOptional, text.isEmpty { return .null }
        switch kind {
        case .text, .url, .choice: return try value(of: .string(text))
        case .bool where text == "true" || text == "false": return .bool(text == "true")
        case .integer(let range): return .integer(try integer(text, in: range))
        case .number(let range): return try number(text, in: range)
        case .list:
            return .list(text.split(separator: ",").map(trimmed))
        case .integers:
            return try value(of: .array(text.split(separator: ",").map { .number(trimmed($0)) }))
        case .strings, .objects, .records:
            guard let node = try? ConfigurationNode.parse(Array(text.utf8)) else { throw Setting.Mismatch(expectation) }
            return try value(of: node)
        case .bool: throw Setting.Mismatch(expectation)
        }
    }

    private func text(_ node: ConfigurationNode) throws(Setting.Mismatch) -> String {
        guard case .string(let text) = node else { throw Setting.Mismatch(expectation) }
        return text
    }

    private func texts(_ node: ConfigurationNode) throws(Setting.Mismatch) -> [String: String] {
        guard case .object(let members) = node else { throw Setting.Mismatch(expectation) }
        return Dictionary(
            try members.map { (member) throws(Setting.Mismatch) in
                guard case .string(let text) = member.value else {
                    throw mismatch(member.value, at: [member.name], "expected text")
                }
                return (member.name, text)
            },
            uniquingKeysWith: { $1 })
    }

    /// The members of one of several objects. What they must be besides their kind is checked by the type.
    private func values(
        _ node: ConfigurationNode, _ kinds: [String: Setting.Kind], at path: [String]
    ) throws(Setting.Mismatch) -> [String: SettingValue] {
        guard case .object(let members) = node else { throw mismatch(node, at: path, "expected an object") }
        return Dictionary(
            try members.map { (member) throws(Setting.Mismatch) in
                (member.name, try value(member.value, kinds[member.name] ?? .text, at: path + [member.name]))
            },
            uniquingKeysWith: { $1 })
    }

    private func value(
        _ node: ConfigurationNode, _ kind: Setting.Kind, at path: [String]
    ) throws(Setting.Mismatch) -> SettingValue {
        switch (kind, node) {
        case (.number(let range), .number(let spelling)):
            guard let number = Double(spelling), range.contains(number) else {
                let allowed = "\(numberText(range.lowerBound)) to \(numberText(range.upperBound))"
                throw mismatch(node, at: path, "allowed \(allowed)")
            }
            return .number(number)
        case (.number, _): throw mismatch(node, at: path, "expected a number")
        case (.list, .array(let elements)):
            return .list(
                try elements.map { (element) throws(Setting.Mismatch) in
                    guard case .string(let text) = element else {
                        throw mismatch(element, at: path, "expected a list of texts")
                    }
                    return text
                })
        case (.list, _): throw mismatch(node, at: path, "expected a list of texts")
        case (_, .string(let text)): return .text(text)
        default: throw mismatch(node, at: path, "expected text")
        }
    }

    /// - Parameter path: Where `node` is in the value.
    private func mismatch(_ node: ConfigurationNode, at path: [String], _ expected: String) -> Setting.Mismatch {
        var shown = isSecret ? "***" : node.shown
        if case .string(let text) = node, !isSecret, containsURLs {
            shown = ConfigurationNode.string(masked(url: text)).shown
        }
        return Setting.Mismatch("\(keyPath(path)) in it is \(shown), \(expected)")
    }

    private func wholeNumber(
        _ node: ConfigurationNode, in range: ClosedRange<Int64>
    ) throws(Setting.Mismatch) -> Int64 {
        guard case .number(let spelling) = node else { throw Setting.Mismatch(expectation) }
        return try integer(spelling, in: range)
    }

    private func integer(_ spelling: String, in range: ClosedRange<Int64>) throws(Setting.Mismatch) -> Int64 {
        guard spelling.wholeMatch(of: #/-?[0-9]+/#) != nil else { throw Setting.Mismatch(requirement) }
        guard let number = Int64(spelling), range.contains(number) else {
            throw Setting.Mismatch("allowed \(range.lowerBound) to \(range.upperBound)")
        }
        return number
    }

    private func number(_ spelling: String, in range: ClosedRange<Double>) throws(Setting.Mismatch) -> SettingValue {
        // `Double` alone would also accept "inf", "nan", and "0x10".
        guard spelling.wholeMatch(of: #/-?[0-9]+(\.[0-9]+)?([eE][+\-]?[0-9]+)?/#) != nil, let number = Double(spelling)
        else { throw Setting.Mismatch(requirement) }
        guard range.contains(number) else { throw Setting.Mismatch("allowed \(allowed)") }
        return .number(number)
    }

    /// `raw` as a problem may show it: without secrets, and without the parts of a URL that may contain one.
    func shown(_ raw: RawValue) -> String {
        if isSecret { return "***" }
        switch (raw.content, kind) {
        case (.json(.string(let text)), .url), (.text(let text), .url):
            return ConfigurationNode.string(masked(url: text)).shown
        case (.json(let node), _): return node.shown
        case (.text(let text), .integer), (.text(let text), .number):
            let isNumber = text.wholeMatch(of: #/-?[0-9]{1,30}(\.[0-9]{1,30})?/#) != nil
            return isNumber ? text : ConfigurationNode.string(text).shown
        case (.text, _) where containsURLs: return "***"
        case (.text(let text), _): return ConfigurationNode.string(text).shown
        }
    }
}

/// `url` without user name, password, query, and fragment.
func masked(url: String) -> String {
    var text = url[...]
    var end = ""
    if let mark = text.firstIndex(where: { $0 == "?" || $0 == "#" }) {
        end = "\(text[mark])***"
        text = text[..<mark]
    }
    guard let at = url.lastIndex(of: "@") else { return text + end }
    let start = url.firstRange(of: "://")?.upperBound ?? url.startIndex
    guard start <= at else { return "***" }
    // A password may itself contain what looks like the beginning of a query.
    if at >= text.endIndex { return url[..<start] + "***" }
    return text[..<start] + "***" + text[at...] + end
}

extension SettingValue {
    /// The value as it is written in the file.
    var json: String {
        switch self {
        case .text(let text): JSONEscapes.quoted(text)
        case .bool(let flag): flag ? "true" : "false"
        case .integer(let number): String(number)
        case .number(let number): numberText(number)
        case .strings(let texts): Self.object(of: texts.mapValues(JSONEscapes.quoted))
        case .objects(let objects):
            Self.object(of: objects.mapValues { Self.object(of: $0.mapValues(\.json)) })
        case .records(let records):
            "[" + records.map { Self.object(of: $0.mapValues(\.json)) }.joined(separator: ", ") + "]"
        case .list(let list): "[" + list.map(JSONEscapes.quoted).joined(separator: ", ") + "]"
        case .integers(let numbers): "[" + numbers.map(String.init).joined(separator: ", ") + "]"
        case .null: "null"
        }
    }

    /// `members`: JSON texts by name.
    private static func object(of members: [String: String]) -> String {
        let sorted = members.sorted { $0.key < $1.key }
        return "{" + sorted.map { "\(JSONEscapes.quoted($0)): \($1)" }.joined(separator: ", ") + "}"
    }
}
