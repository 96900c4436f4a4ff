import PosternCore

extension SettingField {
    /// A key of 32 bytes, or none.
    static func key(_ name: String, _ property: Property<[UInt8]?>, _ summary: String) -> Self {
        Self(name, .text, property, secret: true, summary) {
            .text($0.map(hex) ?? "")
        } decode: { value throws(SettingMismatch) in
            guard let text = value.text else { return nil }
            guard text.isEmpty || bytes(ofHex: text)?.count == 32 else {
                throw SettingMismatch("expected 64 hexadecimal digits (openssl rand -hex 32), or nothing")
            }
            return .some(text.isEmpty ? nil : bytes(ofHex: text))
        }
    }

    static func keys(_ name: String, _ property: Property<[[UInt8]]>, _ summary: String) -> Self {
        Self(name, .list, property, secret: true, summary) {
            .list($0.map(hex))
        } decode: { value throws(SettingMismatch) in
            guard let texts = value.list else { return nil }
            let keys = texts.map { bytes(ofHex: $0) ?? [] }
            guard keys.allSatisfy({ $0.count == 32 }) else {
                throw SettingMismatch("expected a list of keys of 64 hexadecimal digits each")
            }
            return keys
        }
    }
}

extension SettingRule<String> {
    static let filled = SettingRule("expected a text that is not empty") { !$0.isEmpty }
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
