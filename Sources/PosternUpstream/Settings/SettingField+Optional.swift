import PosternCore

/// Settings that may be null.
extension SettingField {
    public static func optionalBool(_ name: String, _ property: Property<Bool?>, _ summary: String) -> Self {
        optional(name, .bool, property, summary, encode: SettingValue.bool) { $0.bool }
    }

    /// A whole number inside `range`, bounds included.
    public static func optionalInteger(
        _ name: String, _ range: ClosedRange<Int64>, _ property: Property<Int?>, _ summary: String
    ) -> Self {
        optional(name, .integer(range), property, summary) {
            .integer(Int64($0))
        } decode: {
            $0.integer
        }
    }

    /// A number inside `range`, bounds included; it may have a fraction.
    public static func optionalNumber(
        _ name: String, _ range: ClosedRange<Double>, _ property: Property<Double?>, _ summary: String
    ) -> Self {
        optional(name, .number(range), property, summary, encode: SettingValue.number) { $0.number }
    }

    private static func optional<Value>(
        _ name: String, _ kind: Setting.Kind, _ property: Property<Value?>, _ summary: String,
        encode: @escaping @Sendable (Value) -> SettingValue, decode: @escaping @Sendable (SettingValue) -> Value?
    ) -> Self {
        Self(name, kind, property, summary) {
            $0.map(encode) ?? .null
        } decode: { value in
            value == .null ? .some(nil) : decode(value).map { .some($0) }
        }
    }
}
