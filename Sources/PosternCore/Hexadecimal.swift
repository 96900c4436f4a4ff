extension [UInt8] {
    /// The bytes that hexadecimal `digits` represent; nil if they are not all digits, or not in pairs.
    public init?(hexadecimal digits: String) {
        let values = digits.utf8.compactMap { Character(Unicode.Scalar($0)).hexDigitValue.map(UInt8.init) }
        guard values.count == digits.utf8.count, values.count.isMultiple(of: 2) else { return nil }
        self = stride(from: 0, to: values.count, by: 2).map { values[$0] << 4 | values[$0 + 1] }
    }
}

extension Sequence<UInt8> {
    /// In lower case.
    public var hexadecimal: String { map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined() }
}
