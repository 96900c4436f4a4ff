import PosternCore

/// A part of the configuration whose settings are listed in a table.
protocol ConfigurationSection: Sendable, Equatable {
    /// With the defaults.
    init()
    static var fields: [Field<Self>] { get }
}

/// Ties a setting as it is written in the configuration to the property that holds it in memory.
///
/// Reading, checking, the reference, the example and the comparison on reload all go by these.
struct Field<Section: ConfigurationSection>: Sendable {
    let setting: UpstreamType.Setting
    /// The property's value as it would be written.
    let get: @Sendable (Section) -> UpstreamType.Value
    /// Takes a value that has passed the checks of `setting` and `rule`.
    let set: @Sendable (inout Section, UpstreamType.Value) -> Void
    /// What a text, or each of a list, has to be besides a text.
    let rule: TextRule?

    private init(
        _ name: String, _ form: UpstreamType.Setting.Form, secret: Bool = false, rule: TextRule? = nil,
        _ summary: String, get: @escaping @Sendable (Section) -> UpstreamType.Value,
        set: @escaping @Sendable (inout Section, UpstreamType.Value) -> Void
    ) {
        setting = .init(name, form, default: get(Section()), secret: secret, summary)
        self.get = get
        self.set = set
        self.rule = rule
    }
}

/// A rule for a text: `expected` completes the sentence "… is "x"; expected …".
struct TextRule: Sendable {
    let expected: String
    let accepts: @Sendable (String) -> Bool

    static let filled = TextRule(expected: "a text that is not empty") { !$0.isEmpty }
    static let filledKey = TextRule(expected: "a list of keys of 64 hexadecimal digits each") {
        bytes(ofHex: $0)?.count == 32
    }
    static let key = TextRule(expected: "64 hexadecimal digits (openssl rand -hex 32), or nothing") {
        $0.isEmpty || bytes(ofHex: $0)?.count == 32
    }
}

extension Field {
    typealias Property<Value> = any WritableKeyPath<Section, Value> & Sendable

    static func text(
        _ name: String, _ property: Property<String>, rule: TextRule? = nil, _ summary: String
    ) -> Self {
        Field(name, .text, rule: rule, summary) {
            .text($0[keyPath: property])
        } set: { section, value in
            if case .text(let text) = value { section[keyPath: property] = text }
        }
    }

    static func key(_ name: String, _ property: Property<[UInt8]?>, _ summary: String) -> Self {
        Field(name, .text, secret: true, rule: .key, summary) {
            .text($0[keyPath: property].map(hex) ?? "")
        } set: { section, value in
            if case .text(let text) = value { section[keyPath: property] = text.isEmpty ? nil : bytes(ofHex: text) }
        }
    }

    static func keys(_ name: String, _ property: Property<[[UInt8]]>, _ summary: String) -> Self {
        Field(name, .list, secret: true, rule: .filledKey, summary) {
            .list($0[keyPath: property].map(hex))
        } set: { section, value in
            if case .list(let texts) = value { section[keyPath: property] = texts.compactMap(bytes(ofHex:)) }
        }
    }

    static func choice<Value: RawRepresentable<String> & CaseIterable & Sendable>(
        _ name: String, _ property: Property<Value>, _ summary: String
    ) -> Self {
        Field(name, .choice(Value.allCases.map(\.rawValue)), summary) {
            .text($0[keyPath: property].rawValue)
        } set: { section, value in
            if case .text(let text) = value, let choice = Value(rawValue: text) { section[keyPath: property] = choice }
        }
    }

    static func flag(_ name: String, _ property: Property<Bool>, _ summary: String) -> Self {
        Field(name, .flag, summary) {
            .flag($0[keyPath: property])
        } set: { section, value in
            if case .flag(let flag) = value { section[keyPath: property] = flag }
        }
    }

    static func integer(
        _ name: String, _ range: ClosedRange<Int64>, _ property: Property<Int>, _ summary: String
    ) -> Self {
        Field(name, .integer(range), summary) {
            .integer(Int64($0[keyPath: property]))
        } set: { section, value in
            if case .integer(let number) = value { section[keyPath: property] = Int(number) }
        }
    }

    /// Seconds, which may have a fraction, down to the nanosecond.
    static func seconds(
        _ name: String, _ range: ClosedRange<Double>, _ property: Property<Duration>, _ summary: String
    ) -> Self {
        Field(name, .number(range), summary) {
            .number($0[keyPath: property].inSeconds)
        } set: { section, value in
            if case .number(let seconds) = value { section[keyPath: property] = .inSeconds(seconds) }
        }
    }
}

extension Duration {
    /// Rounded to nanoseconds, so that 0.05 is 50 ms exactly.
    static func inSeconds(_ seconds: Double) -> Duration { .nanoseconds(Int64((seconds * 1e9).rounded())) }

    var inSeconds: Double { Double(components.seconds) + Double(components.attoseconds) / 1e18 }
}

/// The bytes that hexadecimal `digits` stand for; nil when they are not all digits, or not in pairs.
func bytes(ofHex digits: String) -> [UInt8]? {
    let values = digits.utf8.compactMap { Character(Unicode.Scalar($0)).hexDigitValue.map(UInt8.init) }
    guard values.count == digits.utf8.count, values.count.isMultiple(of: 2) else { return nil }
    return stride(from: 0, to: values.count, by: 2).map { values[$0] << 4 | values[$0 + 1] }
}

func hex(_ bytes: [UInt8]) -> String {
    bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
}
