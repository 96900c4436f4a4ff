extension UInt8 {
    /// The value of a hexadecimal digit (ASCII) in either case; nil for any other byte.
    public var hexadecimalValue: UInt8? {
        switch self {
        case 0x30...0x39: self - 0x30
        case 0x41...0x46: self - 0x37
        case 0x61...0x66: self - 0x57
        default: nil
        }
    }
}

extension [UInt8] {
    /// The bytes that hexadecimal `digits` represent; nil if they are not all digits, or not in pairs.
    public init?(hexadecimal digits: String) {
        let values = digits.utf8.compactMap(\.hexadecimalValue)
        guard values.count == digits.utf8.count, values.count.isMultiple(of: 2) else { return nil }
        self = stride(from: 0, to: values.count, by: 2).map { values[$0] << 4 | values[$0 + 1] }
    }
}

extension Sequence<UInt8> {
    /// In lower case.
    public var hexadecimal: String { map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined() }
}
