import PosternCore

/// One setting as operators see it: of the gateway itself, or of a type of upstream.
public struct Setting: Sendable, Equatable {
    public indirect enum Kind: Sendable, Equatable {
        case text
        /// An `http` or `https` URL.
        case url
        case choice([String])
        case bool
        case integer(ClosedRange<Int64>)
        case number(ClosedRange<Double>)
        /// An object of strings, for example header names and values.
        case strings
        /// An object of objects, for example the kinds of an upstream by name. What their members are, by name.
        case objects([String: Kind])
        /// A list of objects. What their members are, by name.
        case records([String: Kind])
        case list
        /// A list of whole numbers.
        case integers(ClosedRange<Int64>)
    }

    /// The member's name in its section of the configuration. A member of an object inside the section has the names of
    /// both, with a dot between them: `auth.type`.
    public let name: String
    public let kind: Kind
    /// The value in the example configuration. If it is null, the setting may be null: something else decides then.
    public let defaultValue: SettingValue
    /// Masked wherever it would be shown.
    public let isSecret: Bool
    /// Whether its texts are URLs or paths. The values of their queries are secrets.
    public let containsURLs: Bool
    /// Whether it is the location of the upstream; a simulator's URL replaces it.
    public let isAddress: Bool
    /// The value that the type's simulator accepts, for a setting that has to be filled in before anything can be sent;
    /// nil for any other.
    public let simulated: String?
    /// One line for the documentation: meaning and unit.
    public let summary: String

    /// Where the setting is in its section.
    public var path: [String] { Self.path(of: name) }

    /// The keys from the section down to the setting: `["a", "b"]` for `a.b`.
    public static func path(of name: String) -> [String] { name.split(separator: ".").map(String.init) }

    /// Whether the setting may be null.
    public var isOptional: Bool { defaultValue == .null }

    /// The permitted values, in words.
    public var allowed: String { allowedByKind + (isOptional ? ", null" : "") }

    private var allowedByKind: String {
        switch kind {
        case .text: "text"
        case .url: "an http or https URL"
        case .choice(let choices): choices.joined(separator: ", ")
        case .bool: "true, false"
        case .integer(let range): "\(range.lowerBound) to \(range.upperBound)"
        case .number(let range): "\(numberText(range.lowerBound)) to \(numberText(range.upperBound))"
        case .strings: "an object of texts"
        case .objects: "an object of objects"
        case .records: "a list of objects"
        case .list: "a list of texts"
        case .integers(let range): "a list of numbers from \(range.lowerBound) to \(range.upperBound)"
        }
    }

    /// The error text for a value of another kind.
    public var expectation: String {
        switch kind {
        case .text, .url: "expected text"
        case .choice: "allowed \(allowed)"
        case .bool: "expected true or false"
        case .integer: "expected a whole number"
        case .number: "expected a number"
        case .strings: "expected an object of texts"
        case .objects: "expected an object of objects"
        case .records: "expected a list of objects"
        case .list: "expected a list of texts"
        case .integers: "expected a list of whole numbers"
        }
    }
}

/// The value of a setting as it is written in the configuration.
public enum SettingValue: Sendable, Equatable {
    case text(String)
    case bool(Bool)
    case integer(Int64)
    case number(Double)
    case strings([String: String])
    case objects([String: [String: SettingValue]])
    case records([[String: SettingValue]])
    case list([String])
    case integers([Int64])
    /// No value, of a setting that is optional.
    case null

    public var text: String? { if case .text(let text) = self { text } else { nil } }
    var bool: Bool? { if case .bool(let flag) = self { flag } else { nil } }
    public var integer: Int? { if case .integer(let number) = self { Int(number) } else { nil } }
    public var number: Double? {
        switch self {
        case .number(let number): number
        case .integer(let number): Double(number)
        case .text, .bool, .strings, .objects, .records, .list, .integers, .null: nil
        }
    }
    public var strings: [String: String]? { if case .strings(let texts) = self { texts } else { nil } }
    public var objects: [String: [String: SettingValue]]? {
        if case .objects(let objects) = self { objects } else { nil }
    }
    public var records: [[String: SettingValue]]? { if case .records(let records) = self { records } else { nil } }
    public var list: [String]? { if case .list(let list) = self { list } else { nil } }
    var integers: [Int]? { if case .integers(let numbers) = self { numbers.map { Int($0) } } else { nil } }

    /// The strings in it.
    var allTexts: [String] {
        switch self {
        case .text(let text): [text]
        case .strings(let texts): Array(texts.values)
        case .objects(let objects): objects.values.flatMap { $0.values.flatMap(\.allTexts) }
        case .records(let records): records.flatMap { $0.values.flatMap(\.allTexts) }
        case .list(let list): list
        case .bool, .integer, .number, .integers, .null: []
        }
    }
}

extension SettingValue: ExpressibleByStringLiteral {
    public init(stringLiteral text: String) { self = .text(text) }
}

/// Without a fraction that is zero: 1, not 1.0.
public func numberText(_ number: Double) -> String {
    Int64(exactly: number).map(String.init) ?? String(number)
}

extension Setting {
    /// The faults of a value: each text completes "server.port is "x"; ".
    public struct Mismatch: Error, Sendable, Equatable {
        /// One or more; none contains the value of a secret.
        public let details: [String]
        public init(_ details: String...) { self.details = details }
        public init(details: [String]) { self.details = details }
    }

    /// Problems with the settings of one section, each with the setting's name.
    public struct Problems: Error, Sendable, Equatable {
        /// One or more, in the order of the fields.
        public let problems: [(setting: String, detail: String)]
        public init(_ problems: [(setting: String, detail: String)]) { self.problems = problems }
        public static func == (left: Self, right: Self) -> Bool { left.problems.elementsEqual(right.problems, by: ==) }
    }

    /// A rule for values besides their kind and range.
    public struct Rule<Value>: Sendable {
        /// The faults, as in `Mismatch`; empty if there are none.
        let problems: @Sendable (Value) -> [String]

        public init(problems: @escaping @Sendable (Value) -> [String]) { self.problems = problems }

        public init(_ requirement: String, isMet: @escaping @Sendable (Value) -> Bool) {
            problems = { isMet($0) ? [] : [requirement] }
        }
    }
}
