import PosternCore

extension SettingField {
    /// A key of 32 bytes, or none.
    public static func key(_ name: String, _ property: Property<[UInt8]?>, _ summary: String) -> Self {
        Self(name, .text, property, secret: true, summary) {
            .text($0?.hexadecimal ?? "")
        } decode: { value throws(Setting.Mismatch) in
            guard let text = value.text else { return nil }
            guard text.isEmpty || [UInt8](hexadecimal: text)?.count == 32 else {
                throw Setting.Mismatch("expected 64 hexadecimal digits (openssl rand -hex 32), or nothing")
            }
            return .some(text.isEmpty ? nil : [UInt8](hexadecimal: text))
        }
    }

    /// A list of keys of 32 bytes each; it may be empty.
    public static func keys(_ name: String, _ property: Property<[[UInt8]]>, _ summary: String) -> Self {
        Self(name, .list, property, secret: true, summary) {
            .list($0.map(\.hexadecimal))
        } decode: { value throws(Setting.Mismatch) in
            guard let texts = value.list else { return nil }
            let keys = texts.map { [UInt8](hexadecimal: $0) ?? [] }
            guard keys.allSatisfy({ $0.count == 32 }) else {
                throw Setting.Mismatch("expected a list of keys of 64 hexadecimal digits each")
            }
            return keys
        }
    }
}
