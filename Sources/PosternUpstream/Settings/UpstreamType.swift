public import PosternCore

/// An upstream that the configuration can make: what a type of upstream is besides its behavior.
public protocol ConfigurableUpstream: SettingsHoldingUpstream {
    associatedtype Settings: SettingsSection
    /// The value of `upstreams.<name>.type`, and the name of an upstream that gives none.
    static var typeName: String { get }
    /// A description, in one line of the documentation.
    static var summary: String { get }
    /// The maximum number of messages in one request if the upstream's configuration does not set it; nil means the
    /// general default.
    static var batchMaxMessages: Int? { get }
    /// Whether it may get callbacks: its kinds take any JSON object.
    static var takesCallbacks: Bool { get }
    /// Whether it stores credentials that callers hand in. If so, the configuration has to have an encryption key.
    static var storesCredentials: Bool { get }

    var settings: Settings { get }
    init(_ name: UpstreamName, _ settings: Settings)
}

extension ConfigurableUpstream {
    public static var batchMaxMessages: Int? { nil }
    public static var takesCallbacks: Bool { false }
    public static var storesCredentials: Bool { false }
    public var address: String { settings.address }
    public var missingSettings: [String] { settings.missing }
    public var secrets: [String] { settings.secrets }
}

/// A type of upstream: its name, its settings, and how to create one. The registry lists all of them.
public struct UpstreamType: Sendable {
    /// Lower-case; unique among the types.
    public let name: String
    public let summary: String
    /// In the order of the documentation.
    public let settings: [Setting]
    /// See `ConfigurableUpstream.batchMaxMessages`.
    public let batchMaxMessages: Int?
    /// Whether its upstreams may get callbacks.
    public let takesCallbacks: Bool
    /// See `ConfigurableUpstream.storesCredentials`.
    public let storesCredentials: Bool
    private let checkValue: @Sendable (SettingValue, String) throws(Setting.Mismatch) -> Void
    private let findConflicts: @Sendable ([String: SettingValue]) -> [(setting: Setting, detail: String)]
    private let makeUpstream: @Sendable (UpstreamName, [String: SettingValue]) throws(Setting.Problems) -> any Upstream

    /// Erases the type; everything is derived from its static members.
    public init<Made: ConfigurableUpstream>(_ made: Made.Type) {
        name = made.typeName
        summary = made.summary
        settings = Made.Settings.fields.map(\.setting)
        batchMaxMessages = made.batchMaxMessages
        takesCallbacks = made.takesCallbacks
        storesCredentials = made.storesCredentials
        checkValue = { (value, name) throws(Setting.Mismatch) in
            try Made.Settings.fields.first { $0.setting.name == name }?.check(value)
        }
        findConflicts = { values in
            guard let settings = try? Made.Settings(each: values) else { return [] }
            return settings.conflicts.map { (Made.Settings.field(of: $0.property).setting, $0.detail) }
        }
        makeUpstream = { (name, values) throws(Setting.Problems) in Made(name, try Made.Settings(values)) }
    }

    /// Throws the fault of the value of one setting.
    public func check(_ value: SettingValue, of setting: Setting) throws(Setting.Mismatch) {
        try checkValue(value, setting.name)
    }

    /// The faults of the combination of `values`, each of which has passed `check`.
    public func conflicts(in values: [String: SettingValue]) -> [(setting: Setting, detail: String)] {
        findConflicts(values)
    }

    /// Settings that `values` omits have their default. Throws the faults of single values or, if there are none, those
    /// of their combination.
    public func make(
        _ name: UpstreamName, _ values: [String: SettingValue] = [:]
    ) throws(Setting.Problems) -> any Upstream {
        try makeUpstream(name, values)
    }

    /// The default of every setting, by name.
    public var defaults: [String: SettingValue] {
        Dictionary(uniqueKeysWithValues: settings.map { ($0.name, $0.defaultValue) })
    }

    /// `values` with the URL of the simulator, and with credentials that the simulator accepts.
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
