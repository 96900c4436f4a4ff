/// An upstream that the configuration can make: what a type of upstream is besides its behavior.
public protocol ConfigurableUpstream: SettingsHoldingUpstream {
    associatedtype Settings: SettingsSection
    /// The value of `upstreams.<name>.type`, and the name of the upstream that says none.
    static var typeName: String { get }
    /// What it is, in a line of the documentation.
    static var summary: String { get }
    /// Messages in one request where the upstream's own configuration says nothing; nil: as for all upstreams.
    static var batchMaxMessages: Int? { get }

    var settings: Settings { get }
    init(_ name: UpstreamName, _ settings: Settings)
}

extension ConfigurableUpstream {
    public static var batchMaxMessages: Int? { nil }
    public var missingSettings: [String] { settings.missing }
    public var secrets: [String] { settings.secrets }
}

/// A type of upstream: its name, its settings, and how to make one. The registry lists them all.
public struct UpstreamType: Sendable {
    public let name: String
    public let summary: String
    public let settings: [Setting]
    public let batchMaxMessages: Int?
    private let checkValue: @Sendable (SettingValue, String) throws(SettingMismatch) -> Void
    private let findConflicts: @Sendable ([String: SettingValue]) -> [(setting: Setting, detail: String)]
    private let makeUpstream: @Sendable (UpstreamName, [String: SettingValue]) throws(SettingProblems) -> any Upstream

    public init<Made: ConfigurableUpstream>(_ made: Made.Type) {
        name = made.typeName
        summary = made.summary
        settings = Made.Settings.fields.map(\.setting)
        batchMaxMessages = made.batchMaxMessages
        checkValue = { (value, name) throws(SettingMismatch) in
            try Made.Settings.fields.first { $0.setting.name == name }?.check(value)
        }
        findConflicts = { values in
            guard let settings = try? Made.Settings(each: values) else { return [] }
            return settings.conflicts.map { (Made.Settings.field(of: $0.property).setting, $0.detail) }
        }
        makeUpstream = { (name, values) throws(SettingProblems) in Made(name, try Made.Settings(values)) }
    }

    /// Throws what is wrong with the value of one setting.
    public func check(_ value: SettingValue, of setting: Setting) throws(SettingMismatch) {
        try checkValue(value, setting.name)
    }

    /// What is wrong with the combination of `values`, each of which has passed `check`.
    public func conflicts(in values: [String: SettingValue]) -> [(setting: Setting, detail: String)] {
        findConflicts(values)
    }

    /// Settings that `values` leaves out have their default. Throws what is wrong with single values or, if nothing is,
    /// with the combination of them.
    public func make(
        _ name: UpstreamName, _ values: [String: SettingValue] = [:]
    ) throws(SettingProblems) -> any Upstream {
        try makeUpstream(name, values)
    }

    /// The default of every setting, by name.
    public var defaults: [String: SettingValue] {
        Dictionary(uniqueKeysWithValues: settings.map { ($0.name, $0.defaultValue) })
    }

    /// `values`, except that the upstream is where its simulator is, with credentials that the simulator accepts.
    public func simulated(_ values: [String: SettingValue], at url: String) -> [String: SettingValue] {
        var values = values
        for setting in settings {
            if setting.isAddress { values[setting.name] = .text(url) }
            guard let simulated = setting.simulated, values[setting.name] ?? .text("") == .text("") else { continue }
            values[setting.name] = .text(simulated)
        }
        return values
    }
}
