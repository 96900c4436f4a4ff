/// A type of upstream: its name, its settings, and how to make one. The registry lists them all.
public struct UpstreamType: Sendable {
    public let name: String
    public let settings: [Setting]
    /// The setting that says where the upstream is, for those who point it elsewhere, e.g. at a simulator.
    public let addressSetting: String
    /// What its simulator takes for settings that have to be filled in.
    public let simulated: [String: String]
    /// Messages in one request where the upstream's own configuration says nothing; nil: as for all upstreams.
    public let batchMaxMessages: Int?
    /// Makes an upstream from settings that have passed the checks of their descriptions.
    public let make: @Sendable (UpstreamName, SettingValues) throws(SettingProblems) -> any Upstream

    public init(
        name: String, settings: [Setting], addressSetting: String, simulated: [String: String] = [:],
        batchMaxMessages: Int? = nil,
        make: @escaping @Sendable (UpstreamName, SettingValues) throws(SettingProblems) -> any Upstream
    ) {
        self.name = name
        self.settings = settings
        self.addressSetting = addressSetting
        self.simulated = simulated
        self.batchMaxMessages = batchMaxMessages
        self.make = make
    }

    /// One setting below `upstreams.<name>`.
    public struct Setting: Sendable, Equatable {
        public enum Form: Sendable, Equatable {
            case text
            case choice([String])
            case flag
            case integer(ClosedRange<Int64>)
            case number(ClosedRange<Double>)
            /// An object of texts, e.g. header names and values.
            case texts
            case list
        }
        public let name: String
        public let form: Form
        /// As it stands in the JSON of the example configuration.
        public let byDefault: Value
        /// Masked wherever it would be shown.
        public let isSecret: Bool
        /// One line for the documentation: meaning and unit.
        public let summary: String

        public init(_ name: String, _ form: Form, default: Value, secret: Bool = false, _ summary: String) {
            self.name = name
            self.form = form
            byDefault = `default`
            isSecret = secret
            self.summary = summary
        }
    }

    public enum Value: Sendable, Equatable {
        case text(String)
        case flag(Bool)
        case integer(Int64)
        case number(Double)
        case texts([String: String])
        case list([String])
    }

    /// Problems with the settings of one upstream, each with the setting's name.
    public struct SettingProblems: Error, Sendable, Equatable {
        public let problems: [(setting: String, detail: String)]
        public init(_ problems: [(setting: String, detail: String)]) { self.problems = problems }
        public static func == (left: Self, right: Self) -> Bool { left.problems.elementsEqual(right.problems, by: ==) }
    }

    /// Values of all settings of a type; those not configured have their default.
    public struct SettingValues: Sendable, Equatable {
        private var values: [String: Value]

        public init(_ configured: [String: Value], of settings: [Setting]) {
            var values = Dictionary(uniqueKeysWithValues: settings.map { ($0.name, $0.byDefault) })
            values.merge(configured) { $1 }
            self.values = values
        }

        /// The same with another text for one setting.
        public func replacing(_ name: String, with text: String) -> SettingValues {
            var copy = self
            copy.values[name] = .text(text)
            return copy
        }

        private func value(_ name: String) -> Value {
            guard let value = values[name] else { preconditionFailure("setting \(name) is not described") }
            return value
        }

        public func text(_ name: String) -> String {
            if case .text(let text) = value(name) { text } else { "" }
        }
        public func flag(_ name: String) -> Bool {
            if case .flag(let flag) = value(name) { flag } else { false }
        }
        public func integer(_ name: String) -> Int {
            if case .integer(let number) = value(name) { Int(number) } else { 0 }
        }
        public func number(_ name: String) -> Double {
            switch value(name) {
            case .number(let number): number
            case .integer(let number): Double(number)
            case .text, .flag, .texts, .list: 0
            }
        }
        public func texts(_ name: String) -> [String: String] {
            if case .texts(let texts) = value(name) { texts } else { [:] }
        }
        public func list(_ name: String) -> [String] {
            if case .list(let list) = value(name) { list } else { [] }
        }
    }
}

public typealias SettingProblems = UpstreamType.SettingProblems
public typealias SettingValues = UpstreamType.SettingValues
