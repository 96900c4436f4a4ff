import PosternCore
import PosternUpstream

/// A JSON Schema (2020-12) that payloads of a kind are checked against: the keywords that `webhook.md` lists.
///
/// A keyword that it does not know is refused when the schema is read, never ignored. Numbers are compared as IEEE 754
/// doubles.
struct PayloadSchema: Sendable, Equatable {
    /// What is wrong with a schema, each with its pointer.
    struct Refusal: Error { let problems: [String] }

    static let largestFile = 1 << 20

    /// As it was read.
    let text: [UInt8]
    private let nodes: [Node]

    /// The keywords of one schema. Other schemas are positions in `nodes`.
    struct Node: Sendable, Equatable {
        /// For the schemas `true` and `false`.
        var isAlways: Bool?
        var types: [TypeName]?
        var constants: [Constant]?
        var properties: [String: Int] = [:]
        var required: [String] = []
        var additionalProperties: Int?
        var prefixItems: [Int] = []
        var items: Int?
        /// By keyword.
        var counts: [Count: Int] = [:]
        var bounds: [Bound: Double] = [:]
        var reference: Int?
        var allOf: [Int] = []
        var anyOf: [Int]?
        var oneOf: [Int]?
        var not: Int?

        /// Schemas for the same value.
        var inPlace: [Int] {
            allOf + (anyOf ?? []) + (oneOf ?? []) + [reference, not].compactMap(\.self)
        }
    }

    enum TypeName: String, Sendable { case null, boolean, object, array, number, integer, string }
    enum Count: String, Sendable, CaseIterable {
        case minLength, maxLength, minItems, maxItems, minProperties, maxProperties
    }
    enum Bound: String, Sendable, CaseIterable { case minimum, maximum, exclusiveMinimum, exclusiveMaximum }

    /// A value of `const` or `enum`.
    indirect enum Constant: Sendable, Equatable {
        case null
        case bool(Bool)
        case number(Double)
        case string(String)
        case array([Constant])
        case object([String: Constant])

        init(_ value: JSONValue) {
            self =
                switch value.kind {
                case .null: .null
                case .true, .false: .bool(value.kind == .true)
                case .number: .number(value.double)
                case .string: .string(value.string ?? "")
                case .array: .array(value.elements.map { Constant($0) })
                case .object:
                    .object(Dictionary(value.members.map { ($0.key.string ?? "", Constant($0.value)) }) { $1 })
                }
        }

        func equals(_ value: JSONValue) -> Bool {
            switch (self, value.kind) {
            case (.null, .null): return true
            case (.bool(let flag), .true): return flag
            case (.bool(let flag), .false): return !flag
            case (.number(let number), .number): return number == value.double
            case (.string(let text), .string): return Array(text.utf8) == value.stringBytes
            case (.array(let elements), .array):
                var rest = elements[...]
                for element in value.elements {
                    guard let next = rest.popFirst(), next.equals(element) else { return false }
                }
                return rest.isEmpty
            case (.object(let members), .object):
                var count = 0
                for (key, member) in value.members {
                    guard let expected = members[key.string ?? ""], expected.equals(member) else { return false }
                    count += 1
                }
                return count == members.count
            default: return false
            }
        }
    }

    /// Reads a schema. `text` is JSON.
    init(_ text: [UInt8]) throws(Refusal) {
        let parsed = JSONParser.ofThisThread.parse(text) { root -> (nodes: [Node], problems: [String]) in
            var reader = SchemaReader(root)
            reader.read()
            return (reader.nodes, reader.problems)
        }
        switch parsed {
        case .failure(let fault):
            let (line, column) = fault.position(in: text)
            throw Refusal(
                problems: ["is not JSON at line \(line), column \(column): \(fault.sentence(in: text))"])
        case .success((let nodes, let problems)):
            guard problems.isEmpty else { throw Refusal(problems: problems) }
            self.nodes = nodes
            self.text = text
        }
    }

    /// The faults of a payload, with their pointers.
    func errors(of payload: JSONValue) -> PayloadErrors {
        var check = PayloadCheck(nodes: nodes, stepsLeft: Self.steps(for: payload.bytes.count))
        var errors = PayloadErrors()
        check.validate(payload, by: 0, &errors)
        if check.stepsLeft < 0 {
            errors = [PayloadError("", "takes more steps to check against the schema than are allowed")]
        }
        return errors
    }

    /// How many pairs of a value and a schema are looked at. A schema can make a check take exponential time.
    private static func steps(for bytes: Int) -> Int { min(10_000 + 64 * bytes, 5_000_000) }
}

/// One payload on its way through the schema.
private struct PayloadCheck {
    let nodes: [PayloadSchema.Node]
    /// Negative if there were too many.
    var stepsLeft: Int
    private var path: [Step] = []
    private var depth = 0

    /// Each level takes a part of the thread's stack. Payloads have at most 64 levels.
    private static let mostLevels = 400

    private enum Step {
        case member(JSONValue)
        case element(Int)
        case missing(String)
    }

    init(nodes: [PayloadSchema.Node], stepsLeft: Int) {
        self.nodes = nodes
        self.stepsLeft = stepsLeft
    }

    private func pointer(_ last: Step? = nil) -> String {
        (path + [last].compactMap(\.self)).map { step in
            switch step {
            case .member(let key): JSONPointer.member(key)
            case .element(let index): "/\(index)"
            case .missing(let name): JSONPointer.member(name)
            }
        }.joined()
    }

    mutating func validate(_ value: JSONValue, by index: Int, _ errors: inout PayloadErrors) {
        stepsLeft -= 1
        depth += 1
        defer { depth -= 1 }
        if depth > Self.mostLevels { stepsLeft = -1 }
        guard stepsLeft >= 0 else { return }
        let node = nodes[index]
        if let isAlways = node.isAlways {
            if !isAlways { errors.add(pointer(), "is not allowed here") }
            return
        }
        if let types = node.types, !types.contains(where: { value.isOf($0) }) {
            errors.add(pointer(), "must be of type \(types.map(\.rawValue).joined(separator: " or "))")
        }
        if let constants = node.constants, !constants.contains(where: { $0.equals(value) }) {
            errors.add(
                pointer(), "must be \(constants.count == 1 ? "the value" : "one of the values") that the schema allows")
        }
        switch value.kind {
        case .object: validateMembers(of: value, by: node, &errors)
        case .array: validateElements(of: value, by: node, &errors)
        case .string:
            if node.counts[.minLength] != nil || node.counts[.maxLength] != nil {
                checkCount(
                    (value.string ?? "").unicodeScalars.count, .minLength, .maxLength, "characters", node, &errors)
            }
        case .number: validateNumber(value.double, by: node, &errors)
        case .true, .false, .null: break
        }
        if let reference = node.reference { validate(value, by: reference, &errors) }
        for part in node.allOf { validate(value, by: part, &errors) }
        if let anyOf = node.anyOf, !anyOf.contains(where: { matches(value, $0) }) {
            errors.add(pointer(), "must match at least one of the schemas in anyOf")
        }
        if let oneOf = node.oneOf {
            let count = oneOf.count { matches(value, $0) }
            if count != 1 {
                errors.add(pointer(), "must match exactly one of the schemas in oneOf; it matches \(count)")
            }
        }
        if let not = node.not, matches(value, not) { errors.add(pointer(), "must not match the schema in not") }
    }

    private mutating func matches(_ value: JSONValue, _ index: Int) -> Bool {
        var errors = PayloadErrors(atMost: 0)
        validate(value, by: index, &errors)
        return errors.isEmpty
    }

    private mutating func validateMembers(
        of value: JSONValue, by node: PayloadSchema.Node, _ errors: inout PayloadErrors
    ) {
        var missing = Set(node.required)
        var count = 0
        for (key, member) in value.members {
            count += 1
            stepsLeft -= 1
            guard stepsLeft >= 0 else { return }
            if node.properties.isEmpty, missing.isEmpty, node.additionalProperties == nil { continue }
            let name = key.string ?? ""
            missing.remove(name)
            guard let schema = node.properties[name] ?? node.additionalProperties else { continue }
            path.append(.member(key))
            validate(member, by: schema, &errors)
            path.removeLast()
        }
        for name in node.required where missing.contains(name) {
            errors.add(pointer(.missing(name)), "is required")
        }
        checkCount(count, .minProperties, .maxProperties, "members", node, &errors)
    }

    private mutating func validateElements(
        of value: JSONValue, by node: PayloadSchema.Node, _ errors: inout PayloadErrors
    ) {
        var count = 0
        for element in value.elements {
            defer { count += 1 }
            guard let schema = count < node.prefixItems.count ? node.prefixItems[count] : node.items else { continue }
            path.append(.element(count))
            validate(element, by: schema, &errors)
            path.removeLast()
            guard stepsLeft >= 0 else { return }
        }
        checkCount(count, .minItems, .maxItems, "elements", node, &errors)
    }

    private func checkCount(
        _ count: Int, _ least: PayloadSchema.Count, _ most: PayloadSchema.Count, _ unit: String,
        _ node: PayloadSchema.Node, _ errors: inout PayloadErrors
    ) {
        if let limit = node.counts[least], count < limit {
            errors.add(pointer(), "must have at least \(limit) \(unit)")
        }
        if let limit = node.counts[most], count > limit { errors.add(pointer(), "must have at most \(limit) \(unit)") }
    }

    private func validateNumber(_ number: Double, by node: PayloadSchema.Node, _ errors: inout PayloadErrors) {
        for bound in PayloadSchema.Bound.allCases {
            guard let limit = node.bounds[bound] else { continue }
            let (isMet, rule) =
                switch bound {
                case .minimum: (number >= limit, "at least")
                case .maximum: (number <= limit, "at most")
                case .exclusiveMinimum: (number > limit, "more than")
                case .exclusiveMaximum: (number < limit, "less than")
                }
            if !isMet { errors.add(pointer(), "must be \(rule) \(numberText(limit))") }
        }
    }
}

extension JSONValue {
    /// Of a number; infinite if it is beyond the range.
    fileprivate var double: Double { Double(String(decoding: bytes, as: UTF8.self)) ?? 0 }

    /// A number without a fraction is an integer, however it is spelled.
    fileprivate func isOf(_ type: PayloadSchema.TypeName) -> Bool {
        switch (type, kind) {
        case (.null, .null), (.boolean, .true), (.boolean, .false), (.object, .object), (.array, .array),
            (.number, .number), (.string, .string):
            true
        case (.integer, .number): isIntegerLiteral || double.rounded() == double
        default: false
        }
    }
}

/// Reads the schemas of a file, and resolves the references between them.
private struct SchemaReader {
    private let root: JSONValue
    private(set) var nodes: [PayloadSchema.Node] = []
    private(set) var problems: [String] = []
    /// The positions of schemas that references lead to, by their pointers.
    private var known: [String: Int] = [:]

    private static let annotations: Set = [
        "$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples",
        "deprecated", "readOnly", "writeOnly", "format",
    ]
    private static let mostNodes = 2000
    /// Of schemas that apply to the same value, one through the other, and of those that are read one inside the other.
    private static let (mostInPlace, mostNested) = (32, 150)
    private var depth = 0

    init(_ root: JSONValue) { self.root = root }

    mutating func read() {
        _ = schema(root, at: "")
        if problems.isEmpty, let detail = endlessness() { problem("", detail) }
    }

    private mutating func problem(_ pointer: String, _ detail: String) {
        problems.append(pointer.isEmpty ? detail : "\(pointer) \(detail)")
    }

    /// The position of the schema at `pointer`, which is read only once.
    private mutating func schema(_ value: JSONValue, at pointer: String) -> Int {
        if let index = known[pointer] { return index }
        let index = nodes.count
        known[pointer] = index
        nodes.append(PayloadSchema.Node())
        depth += 1
        defer { depth -= 1 }
        guard depth <= Self.mostNested else {
            if depth == Self.mostNested + 1 { problem(pointer, "is nested too deeply, through references") }
            return index
        }
        guard index < Self.mostNodes else {
            if index == Self.mostNodes { problem("", "has more than \(Self.mostNodes) schemas") }
            return index
        }
        switch value.kind {
        case .true, .false: nodes[index].isAlways = value.kind == .true
        case .object:
            var node = PayloadSchema.Node()
            for (key, member) in value.members {
                let name = key.string ?? ""
                keyword(name, member, at: pointer + JSONPointer.member(name), &node)
            }
            nodes[index] = node
        default: problem(pointer, "must be an object, true, or false")
        }
        return index
    }

    private mutating func keyword(
        _ name: String, _ value: JSONValue, at pointer: String, _ node: inout PayloadSchema.Node
    ) {
        switch name {
        case "type": node.types = types(value, at: pointer)
        case "const": node.constants = [PayloadSchema.Constant(value)]
        case "enum":
            guard value.kind == .array else { return problem(pointer, "must be an array") }
            node.constants = value.elements.map { PayloadSchema.Constant($0) }
        case "properties":
            guard value.kind == .object else { return problem(pointer, "must be an object") }
            for (key, member) in value.members {
                let property = key.string ?? ""
                node.properties[property] = schema(member, at: pointer + JSONPointer.member(property))
            }
        case "required":
            guard value.kind == .array, value.elements.allSatisfy({ $0.kind == .string }) else {
                return problem(pointer, "must be an array of strings")
            }
            node.required = value.elements.compactMap(\.string)
        case "additionalProperties": node.additionalProperties = schema(value, at: pointer)
        case "items": node.items = schema(value, at: pointer)
        case "prefixItems": node.prefixItems = schemas(value, at: pointer)
        case "allOf": node.allOf = schemas(value, at: pointer)
        case "anyOf": node.anyOf = schemas(value, at: pointer)
        case "oneOf": node.oneOf = schemas(value, at: pointer)
        case "not": node.not = schema(value, at: pointer)
        case "$ref": node.reference = reference(value, at: pointer)
        default:
            if let count = PayloadSchema.Count(rawValue: name) {
                guard let limit = value.integer, limit >= 0 else { return problem(pointer, "must be a whole number") }
                node.counts[count] = Int(limit)
            } else if let bound = PayloadSchema.Bound(rawValue: name) {
                guard value.kind == .number else { return problem(pointer, "must be a number") }
                node.bounds[bound] = value.double
            } else if !Self.annotations.contains(name), !name.hasPrefix("x-") {
                problem(pointer, "is a keyword that Postern does not check")
            }
        }
    }

    private mutating func types(_ value: JSONValue, at pointer: String) -> [PayloadSchema.TypeName]? {
        let names = value.kind == .array ? value.elements.map(\.string) : [value.string]
        let types = names.compactMap { $0.flatMap(PayloadSchema.TypeName.init) }
        if types.isEmpty || types.count != names.count { problem(pointer, "must be a type, or an array of types") }
        return types
    }

    private mutating func schemas(_ value: JSONValue, at pointer: String) -> [Int] {
        guard value.kind == .array, value.elements.contains(where: { _ in true }) else {
            problem(pointer, "must be an array of schemas")
            return []
        }
        var indexes: [Int] = []
        for (number, element) in value.elements.enumerated() {
            indexes.append(schema(element, at: "\(pointer)/\(number)"))
        }
        return indexes
    }

    /// Only places in the same file.
    private mutating func reference(_ value: JSONValue, at pointer: String) -> Int? {
        let text = value.string ?? ""
        if text.hasPrefix("#"), let index = known[String(text.dropFirst())] { return index }
        guard text == "#" || text.hasPrefix("#/"),
            let place = JSONPointer(String(text.dropFirst())), let target = place.value(in: root)
        else {
            problem(pointer, "must be # or a JSON Pointer behind it that leads to a schema of this file")
            return nil
        }
        return schema(target, at: String(text.dropFirst()))
    }

    /// Why the check of a payload would not end, or would take too much of the stack: a schema applies to a value if it
    /// applies to that very value, or too many apply to it one through the other.
    private func endlessness() -> String? {
        /// How many levels there are below a schema; nil while they are counted.
        var levels: [Int: Int?] = [:]
        for start in nodes.indices where levels[start] == nil {
            // A stack, because a file may have a long chain of references.
            var stack = [(node: start, next: 0)]
            levels[start] = .some(nil)
            while let (node, next) = stack.last {
                let targets = nodes[node].inPlace
                guard next < targets.count else {
                    let below = targets.compactMap { levels[$0] ?? nil }.max() ?? 0
                    guard below < Self.mostInPlace else { return "has too many levels of references for one value" }
                    levels[node] = below + 1
                    stack.removeLast()
                    continue
                }
                stack[stack.count - 1].next += 1
                if let found = levels[targets[next]] {
                    if found == nil { return "has a reference that leads back to itself for the same value" }
                } else {
                    levels[targets[next]] = .some(nil)
                    stack.append((targets[next], 0))
                }
            }
        }
        return nil
    }
}
