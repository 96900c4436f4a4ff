import PosternCore

/// A number of a JSON text, digit by digit: how large it is, and how it is written without an exponent.
///
/// It is read in one pass, and written only after `length` is known: `1e-300` has 302 characters without its exponent,
/// and `1e999999999` has a billion. It points into the text of the value, and is valid as long as the value is.
package struct DecimalLiteral {
    private let text: UnsafeBufferPointer<UInt8>
    private let isNegative: Bool
    /// The positions of the first and the last digit other than 0. The point may be among them.
    private let first: Int
    private let last: Int
    /// The position of the point, or the end of the digits.
    private let pointPosition: Int
    /// The number of digits from `first` to `last`; 0 for zero.
    private let count: Int
    /// The number of these digits that are before the point if the number is written without its exponent. Negative if
    /// zeros follow the point, larger than `count` if zeros precede it.
    private let whole: Int

    /// - Parameter value: A number.
    package init(_ value: JSONValue) {
        text = value.bytes
        isNegative = text[0] == UInt8(ascii: "-")
        let start = isNegative ? 1 : 0
        var (first, last) = (-1, -1)
        var (point, end) = (-1, start)
        scan: while end < text.count {
            switch text[end] {
            case UInt8(ascii: "."): point = end
            case UInt8(ascii: "e"), UInt8(ascii: "E"): break scan
            case UInt8(ascii: "0"): break
            default:
                if first < 0 { first = end }
                last = end
            }
            end += 1
        }
        pointPosition = point < 0 ? end : point
        self.first = first
        self.last = last
        count = first < 0 ? 0 : last - first + (first < pointPosition && pointPosition < last ? 0 : 1)
        // The distance of the first digit from the point, not counting the point itself.
        let distance = pointPosition - first + (first < pointPosition ? 0 : 1)
        whole = distance + Self.exponent(text, from: end)
    }

    /// - Parameter start: Where the `e` is, or the end of the text.
    private static func exponent(_ text: UnsafeBufferPointer<UInt8>, from start: Int) -> Int {
        var exponent = 0
        var isNegative = false
        var position = start + 1
        while position < text.count {
            switch text[position] {
            case UInt8(ascii: "-"): isNegative = true
            case UInt8(ascii: "+"): break
            // More digits change nothing: no text of the number could be stored.
            case let digit: exponent = min(exponent * 10 + Int(digit - UInt8(ascii: "0")), 1 << 40)
            }
            position += 1
        }
        return isNegative ? -exponent : exponent
    }

    /// Whether the number has no exponent and does not end with a zero, so that `write` writes its text as it is. Cheaper
    /// than reading the number; not all numbers that stay the same are plain.
    package static func isPlain(_ value: JSONValue) -> Bool {
        let text = value.bytes
        guard text[text.count - 1] != UInt8(ascii: "0") else { return false }
        return !text.contains { $0 | 0x20 == UInt8(ascii: "e") }
    }

    /// The number of characters that `write` writes.
    package var length: Int {
        guard count > 0 else { return 1 }
        let digits = whole <= 0 ? 2 - whole + count : whole >= count ? whole : count + 1
        return digits + (isNegative ? 1 : 0)
    }

    /// The magnitude, rounded down; nil if it has more than 19 digits.
    package var magnitude: UInt64? {
        guard count > 0, whole > 0 else { return 0 }
        guard whole <= 19 else { return nil }
        return (0..<whole).reduce(0) { $0 * 10 + ($1 < count ? UInt64(digit($1) - UInt8(ascii: "0")) : 0) }
    }

    /// Whether it is from -`limit` to `limit`.
    package func isWithin(_ limit: UInt64) -> Bool {
        guard let magnitude else { return false }
        return magnitude < limit || magnitude == limit && count <= max(0, whole)
    }

    /// The integer that remains without the fraction; nil if it does not fit in 64 bits.
    package var truncated: Int64? {
        magnitude.flatMap { Int64(exactly: $0) }.map { isNegative ? -$0 : $0 }
    }

    /// Writes the number without an exponent and without zeros that do not change it: `1.50e-7` as `0.00000015`, `1e3`
    /// as `1000`, `-0.0` as `0`.
    ///
    /// - Parameter buffer: Has room for `length` bytes.
    /// - Returns: `length`.
    @discardableResult package func write(to buffer: UnsafeMutableBufferPointer<UInt8>) -> Int {
        var end = 0
        func write(_ byte: UInt8) {
            buffer[end] = byte
            end += 1
        }
        if isNegative, count > 0 { write(UInt8(ascii: "-")) }
        if whole <= 0 || count == 0 { write(UInt8(ascii: "0")) }
        guard count > 0 else { return end }
        for number in min(0, whole)..<max(count, whole) {
            if number == whole { write(UInt8(ascii: ".")) }
            write(0..<count ~= number ? digit(number) : UInt8(ascii: "0"))
        }
        return end
    }

    /// The digit of that number, of those from `first` to `last`.
    private func digit(_ number: Int) -> UInt8 {
        let position = first + number
        return text[first < pointPosition && position >= pointPosition ? position + 1 : position]
    }
}
