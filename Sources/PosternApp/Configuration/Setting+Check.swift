import PosternCore

extension UpstreamType.Setting {
    /// Why a value does not do: completes "server.port is "x"; ".
    struct Mismatch: Error, Equatable {
        let expectation: String
        init(_ expectation: String) { self.expectation = expectation }
    }

    func check(_ raw: RawValue, rule: TextRule? = nil) throws(Mismatch) -> UpstreamType.Value {
        let value =
            switch raw.content {
            case .json(let node): try check(node)
            case .text(let text): try check(text)
            }
        let isFit =
            switch value {
            case .text(let text): rule?.accepts(text) ?? true
            case .list(let texts): texts.allSatisfy { rule?.accepts($0) ?? true }
            case .flag, .integer, .number, .texts: true
            }
        guard isFit else { throw Mismatch("expected \(rule?.expected ?? "")") }
        return value
    }

    private func check(_ node: ConfigurationNode) throws(Mismatch) -> UpstreamType.Value {
        switch (form, node) {
        case (.text, .string(let text)): .text(text)
        case (.choice(let choices), .string(let text)) where choices.contains(text): .text(text)
        case (.flag, .flag(let flag)): .flag(flag)
        case (.integer(let range), .number(let spelling)): try integer(spelling, in: range)
        case (.number(let range), .number(let spelling)): try number(spelling, in: range)
        case (.texts, .object(let members)):
            .texts(
                Dictionary(
                    try members.map { (member) throws(Mismatch) in (member.name, try text(member.value)) },
                    uniquingKeysWith: { $1 }))
        case (.list, .array(let elements)):
            .list(try elements.map { (element) throws(Mismatch) in try text(element) })
        default: throw Mismatch(expectation)
        }
    }

    /// From a variable or a secret file: lists are separated by commas, objects are JSON.
    private func check(_ text: String) throws(Mismatch) -> UpstreamType.Value {
        switch form {
        case .text, .choice: return try check(.string(text))
        case .flag where text == "true" || text == "false": return .flag(text == "true")
        case .integer(let range): return try integer(text, in: range)
        case .number(let range): return try number(text, in: range)
        case .list:
            return .list(text.split(separator: ",").map(trimmed))
        case .texts:
            guard let node = try? ConfigurationText.parse(Array(text.utf8)) else { throw Mismatch(expectation) }
            return try check(node)
        case .flag: throw Mismatch(expectation)
        }
    }

    private func text(_ node: ConfigurationNode) throws(Mismatch) -> String {
        guard case .string(let text) = node else { throw Mismatch(expectation) }
        return text
    }

    private func integer(_ spelling: String, in range: ClosedRange<Int64>) throws(Mismatch) -> UpstreamType.Value {
        guard spelling.wholeMatch(of: #/-?[0-9]+/#) != nil else { throw Mismatch(expectation) }
        guard let number = Int64(spelling), range.contains(number) else { throw Mismatch("allowed \(allowed)") }
        return .integer(number)
    }

    private func number(_ spelling: String, in range: ClosedRange<Double>) throws(Mismatch) -> UpstreamType.Value {
        // `Double` alone would also take "inf", "nan" and "0x10".
        guard spelling.wholeMatch(of: #/-?[0-9]+(\.[0-9]+)?([eE][+\-]?[0-9]+)?/#) != nil, let number = Double(spelling)
        else { throw Mismatch(expectation) }
        guard range.contains(number) else { throw Mismatch("allowed \(allowed)") }
        return .number(number)
    }

    private var expectation: String {
        switch form {
        case .text: "expected text"
        case .choice: "allowed \(allowed)"
        case .flag: "expected true or false"
        case .integer: "expected a whole number"
        case .number: "expected a number"
        case .texts: "expected an object of texts"
        case .list: "expected a list of texts"
        }
    }

    /// The values it may have, in words.
    var allowed: String {
        switch form {
        case .text: "text"
        case .choice(let choices): choices.joined(separator: ", ")
        case .flag: "true, false"
        case .integer(let range): "\(range.lowerBound) to \(range.upperBound)"
        case .number(let range): "\(plain(range.lowerBound)) to \(plain(range.upperBound))"
        case .texts: "an object of texts"
        case .list: "a list of texts"
        }
    }

    /// `raw` as a problem may show it.
    func shown(_ raw: RawValue) -> String {
        if isSecret { return "***" }
        switch (raw.content, form) {
        case (.json(let node), _): return node.shown
        case (.text(let text), .integer), (.text(let text), .number):
            let isNumber = text.wholeMatch(of: #/-?[0-9]{1,30}(\.[0-9]{1,30})?/#) != nil
            return isNumber ? text : ConfigurationNode.string(text).shown
        case (.text(let text), _): return ConfigurationNode.string(text).shown
        }
    }
}

extension UpstreamType.Value {
    /// As it stands in the file.
    var json: String {
        switch self {
        case .text(let text): JSONEscapes.quoted(text)
        case .flag(let flag): flag ? "true" : "false"
        case .integer(let number): String(number)
        case .number(let number): plain(number)
        case .texts(let texts):
            "{"
                + texts.sorted { $0.key < $1.key }
                .map { "\(JSONEscapes.quoted($0)): \(JSONEscapes.quoted($1))" }.joined(separator: ", ") + "}"
        case .list(let list): "[" + list.map(JSONEscapes.quoted).joined(separator: ", ") + "]"
        }
    }
}

/// Without a fraction that is zero: 1, not 1.0.
func plain(_ number: Double) -> String {
    Int64(exactly: number).map(String.init) ?? String(number)
}
