import PosternSimulatorKit

/// One element of a request's array: its position, and what is wrong with it.
struct Event {
    let range: Range<Int>
    let isObject: Bool
    var timestamp: JSONScanner.Value?
    var sourceId: JSONScanner.Value?
    var eventName: JSONScanner.Value?
    var id: JSONScanner.Value?
    var receivedAt: JSONScanner.Value?
    var publishedAt: JSONScanner.Value?

    var isValid: Bool {
        isObject && timestamp?.kind == .integer && sourceId?.kind == .string && eventName?.kind == .string
    }

    /// Reads the next element; nil if it is not valid. If a key is repeated, the last one counts.
    init?(_ scanner: inout JSONScanner) {
        guard let first = scanner.peek() else { return nil }
        let start = scanner.position
        guard first == UInt8(ascii: "{") else {
            guard let value = scanner.value() else { return nil }
            range = value.range
            isObject = false
            return
        }
        var fields: (JSONScanner.Value?, JSONScanner.Value?, JSONScanner.Value?, JSONScanner.Value?) = (
            nil, nil, nil, nil
        )
        var times: (JSONScanner.Value?, JSONScanner.Value?) = (nil, nil)
        let isWhole = scanner.members { key, value in
            if key.equals("timestamp") {
                fields.0 = value
            } else if key.equals("sourceId") {
                fields.1 = value
            } else if key.equals("eventName") {
                fields.2 = value
            } else if key.equals("id") {
                fields.3 = value
            } else if key.equals("receivedAt") {
                times.0 = value
            } else if key.equals("publishedAt") {
                times.1 = value
            }
        }
        guard isWhole else { return nil }
        range = start..<scanner.position
        isObject = true
        (timestamp, sourceId, eventName, id) = fields
        (receivedAt, publishedAt) = times
    }

    /// `OK`, or the server's printed complaint.
    func complaint(in text: UnsafeBufferPointer<UInt8>) -> String {
        guard isObject else { return "schema.utils.ValidationError@5ea1f00d" }
        func problem(_ field: JSONScanner.Value?, _ wanted: JSONScanner.Kind, _ predicate: String) -> String? {
            guard let field else { return "missing-required-key" }
            return field.kind == wanted ? nil : "(not (\(predicate) \(printed(field, in: text))))"
        }
        let problems = [
            (":timestamp", problem(timestamp, .integer, "integer?")),
            (":sourceId", problem(sourceId, .string, "instance? java.lang.String")),
            (":eventName", problem(eventName, .string, "instance? java.lang.String")),
        ].compactMap { name, problem in problem.map { "\(name) \($0)" } }
        return problems.isEmpty ? "OK" : "{\(problems.joined(separator: ", "))}"
    }

    /// A value as Clojure prints it; one of 20 characters or more by its class. Objects and arrays always by their
    /// class: programs are not meant to read these texts.
    private func printed(_ value: JSONScanner.Value, in text: UnsafeBufferPointer<UInt8>) -> String {
        let raw = text[value.range]
        func short(_ text: String, _ printed: String, class name: String) -> String {
            text.utf16.count < 20 ? printed : "a-\(name)"
        }
        switch value.kind {
        case .null: return "nil"
        case .true: return "true"
        case .false: return "false"
        case .object: return "a-clojure.lang.PersistentArrayMap"
        case .array: return "a-clojure.lang.PersistentVector"
        case .string:
            let string = unescaped(raw.dropFirst().dropLast())
            return short(string, quoted(string), class: "java.lang.String")
        case .integer:
            let digits = String(decoding: raw, as: UTF8.self)
            return short(digits, digits, class: "java.math.BigInteger")
        case .decimal:
            let number = Double(String(decoding: raw, as: UTF8.self)).map(\.description) ?? "Infinity"
            return short(number, number, class: "java.lang.Double")
        }
    }
}
