import PosternCore

/// A part of the configuration: a plain value with defaults, and the list of fields that ties its properties to the
/// settings in the file.
///
/// Reading, checking, the documentation, the example, and the comparison on reload all follow from the list. Nothing
/// else spells the name of a setting.
public protocol SettingsSection: Sendable, Equatable {
    /// With the defaults.
    init()
    static var fields: [SettingField<Self>] { get }
    /// Values that are valid alone but not together. Called when each of them is valid.
    var conflicts: [(property: PartialKeyPath<Self>, detail: String)] { get }
}

extension SettingsSection {
    /// None by default.
    public var conflicts: [(property: PartialKeyPath<Self>, detail: String)] { [] }

    /// The field of `property`, which must have one.
    public static func field(of property: PartialKeyPath<Self>) -> SettingField<Self> {
        guard let field = fields.first(where: { $0.property == property }) else {
            preconditionFailure("\(property) has no field")
        }
        return field
    }

    /// The name under which `property` is configured, with a dot before each nested part.
    public static func name(of property: PartialKeyPath<Self>) -> String { field(of: property).setting.name }

    /// Applies the values of the settings that are given; the others keep their default.
    public init(_ values: [String: SettingValue]) throws(Setting.Problems) {
        try self.init(each: values)
        let conflicts = conflicts
        guard conflicts.isEmpty else {
            throw Setting.Problems(conflicts.map { (Self.name(of: $0.property), $0.detail) })
        }
    }

    /// The same without checking the combination.
    init(each values: [String: SettingValue]) throws(Setting.Problems) {
        self.init()
        var problems: [(setting: String, detail: String)] = []
        for field in Self.fields {
            guard let value = values[field.setting.name] else { continue }
            do throws(Setting.Mismatch) {
                try field.set(&self, value)
            } catch {
                problems += error.details.map { (field.setting.name, $0) }
            }
        }
        guard problems.isEmpty else { throw Setting.Problems(problems) }
    }

    /// The values of secret settings, and of queries.
    public var secrets: [String] {
        let given = Self.fields.filter(\.setting.isSecret).flatMap { $0.get(self).allTexts }
        let urls = Self.fields.filter(\.setting.containsURLs).flatMap { $0.get(self).allTexts }
        return (given + urls.flatMap(URLQuery.values)).filter { !$0.isEmpty }
    }

    /// The first setting that is an address; empty if there is none.
    public var address: String {
        Self.fields.first(where: \.setting.isAddress).flatMap { $0.get(self).text } ?? ""
    }

    /// Settings that have to be filled in and are empty.
    public var missing: [String] {
        Self.fields.filter { $0.setting.simulated != nil && $0.get(self) == .text("") }.map(\.setting.name)
    }
}

/// Ties a setting as it is written in the configuration to the property that holds it in memory.
public struct SettingField<Section: SettingsSection>: Sendable {
    public typealias Property<Value> = any WritableKeyPath<Section, Value> & Sendable

    /// The setting as operators see it.
    public let setting: Setting
    let property: any PartialKeyPath<Section> & Sendable
    /// The property's value as it would be written.
    public let get: @Sendable (Section) -> SettingValue
    private let decodeInto: @Sendable (inout Section, SettingValue) throws(Setting.Mismatch) -> Bool

    /// - Parameters:
    ///   - simulated: see `Setting.simulated`.
    ///   - decode: nil for a value of the wrong kind.
    public init<Value>(
        _ name: String, _ kind: Setting.Kind, _ property: Property<Value>, secret: Bool = false,
        containsURLs: Bool = false, isAddress: Bool = false, simulated: String? = nil, _ summary: String,
        encode: @escaping @Sendable (Value) -> SettingValue,
        decode: @escaping @Sendable (SettingValue) throws(Setting.Mismatch) -> Value?
    ) {
        self.property = property
        get = { encode($0[keyPath: property]) }
        decodeInto = { (section, value) throws(Setting.Mismatch) in
            guard let decoded = try decode(value) else { return false }
            section[keyPath: property] = decoded
            return true
        }
        setting = Setting(
            name: name, kind: kind, defaultValue: encode(Section()[keyPath: property]), isSecret: secret,
            containsURLs: containsURLs || kind == .url, isAddress: isAddress, simulated: simulated, summary: summary)
    }

    /// Stores a value if it is one that the field can have.
    public func set(_ section: inout Section, _ value: SettingValue) throws(Setting.Mismatch) {
        guard try decodeInto(&section, value) else { throw Setting.Mismatch(setting.expectation) }
    }

    /// Throws what is wrong with `value`, without storing it.
    public func check(_ value: SettingValue) throws(Setting.Mismatch) {
        var section = Section()
        try set(&section, value)
    }
}

extension SettingField {
    /// A string.
    public static func text(
        _ name: String, _ property: Property<String>, rule: Setting.Rule<String>? = nil, secret: Bool = false,
        simulated: String? = nil, _ summary: String
    ) -> Self {
        Self(
            name, .text, property, secret: secret, simulated: simulated, summary, encode: SettingValue.text
        ) { value throws(Setting.Mismatch) in try value.text.validated(by: rule) }
    }

    /// A string that is one of the raw values of `Value`.
    public static func choice<Value: RawRepresentable<String> & CaseIterable & Sendable>(
        _ name: String, _ property: Property<Value>, _ summary: String
    ) -> Self {
        Self(name, .choice(Value.allCases.map(\.rawValue)), property, summary) {
            .text($0.rawValue)
        } decode: {
            $0.text.flatMap(Value.init(rawValue:))
        }
    }

    public static func bool(_ name: String, _ property: Property<Bool>, _ summary: String) -> Self {
        Self(name, .bool, property, summary, encode: SettingValue.bool) { $0.bool }
    }

    /// A whole number inside `range`, bounds included.
    public static func integer(
        _ name: String, _ range: ClosedRange<Int64>, _ property: Property<Int>, _ summary: String
    ) -> Self {
        Self(name, .integer(range), property, summary) {
            .integer(Int64($0))
        } decode: {
            $0.integer
        }
    }

    /// A number inside `range`, bounds included; it may have a fraction.
    public static func number(
        _ name: String, _ range: ClosedRange<Double>, _ property: Property<Double>, _ summary: String
    ) -> Self {
        Self(name, .number(range), property, summary, encode: SettingValue.number) { $0.number }
    }

    /// Seconds, which may have a fraction, down to the nanosecond.
    public static func seconds(
        _ name: String, _ range: ClosedRange<Double>, _ property: Property<Duration>, _ summary: String
    ) -> Self {
        Self(name, .number(range), property, summary) {
            .number($0.inSeconds)
        } decode: {
            $0.number.map(Duration.fromSeconds)
        }
    }

    /// Seconds without a fraction.
    public static func wholeSeconds(
        _ name: String, _ range: ClosedRange<Int64>, _ property: Property<Duration>, _ summary: String
    ) -> Self {
        Self(name, .integer(range), property, summary) {
            .integer($0.components.seconds)
        } decode: {
            $0.integer.map { .seconds($0) }
        }
    }

    /// An object whose values are strings.
    public static func strings(
        _ name: String, _ property: Property<[String: String]>, rule: Setting.Rule<[String: String]>? = nil,
        secret: Bool = false, containsURLs: Bool = false, _ summary: String
    ) -> Self {
        Self(
            name, .strings, property, secret: secret, containsURLs: containsURLs, summary, encode: SettingValue.strings
        ) { value throws(Setting.Mismatch) in try value.strings.validated(by: rule) }
    }

    /// An array of strings.
    public static func list(
        _ name: String, _ property: Property<[String]>, rule: Setting.Rule<[String]>? = nil, _ summary: String
    ) -> Self {
        Self(name, .list, property, summary, encode: SettingValue.list) { value throws(Setting.Mismatch) in
            try value.list.validated(by: rule)
        }
    }

    /// An array of whole numbers inside `range`, bounds included.
    public static func integers(
        _ name: String, _ range: ClosedRange<Int64>, _ property: Property<[Int]>, _ summary: String
    ) -> Self {
        Self(name, .integers(range), property, summary) {
            .integers($0.map { Int64($0) })
        } decode: {
            $0.integers
        }
    }
}

extension Optional {
    fileprivate func validated(by rule: Setting.Rule<Wrapped>?) throws(Setting.Mismatch) -> Wrapped? {
        guard let self else { return nil }
        let problems = rule?.problems(self) ?? []
        guard problems.isEmpty else { throw Setting.Mismatch(details: problems) }
        return self
    }
}
