import PosternCore
import PosternUpstream

/// The text of an argument's value (the specification's 3.4).
enum StreamOneArgument {
    struct Fault: Equatable {
        /// The element of a list, as a pointer; otherwise empty.
        var pointer = ""
        let detail: String
    }

    /// How much longer the numbers of one call may become when they are written without exponents, in bytes. `1e-300`
    /// has 6 characters, and 302 without its exponent.
    static let maxGrowth = 64 << 10

    // MARK: Checking

    /// Why a value has no text. Nothing of the value is stored, however long a list is.
    ///
    /// - Parameter growth: Of the numbers of the call so far; that of this value is added.
    static func fault(of value: JSONValue, growth: inout Int) -> Fault? {
        guard value.kind == .array else { return detail(of: value, &growth).map { Fault(detail: $0) } }
        for (index, element) in value.elements.enumerated() {
            if let detail = detail(of: element, &growth) { return Fault(pointer: "/\(index)", detail: detail) }
        }
        return nil
    }

    private static func detail(of value: JSONValue, _ growth: inout Int) -> String? {
        switch value.kind {
        case .string, .null, .true, .false: nil
        case .number: detail(ofNumber: value, &growth)
        case .array, .object: "must be a string, number, boolean, null or a list of those"
        }
    }

    /// Beyond this, not every whole number can be represented (Assumption of 3.4).
    private static let largest: UInt64 = 9_007_199_254_740_992

    /// A number of at most so many characters, and without an exponent, is not beyond it.
    private static let smallBytes = 15

    /// An integer literal is sent as it is written, however large.
    private static func detail(ofNumber value: JSONValue, _ growth: inout Int) -> String? {
        if value.isIntegerLiteral || value.bytes.count <= smallBytes && DecimalLiteral.isPlain(value) { return nil }
        let number = DecimalLiteral(value)
        guard number.isWithin(largest) else { return "must be a number from -2^53 to 2^53" }
        growth += max(0, number.length - value.bytes.count)
        guard growth <= maxGrowth else {
            return "must have a shorter form without an exponent: the numbers of a call may become at most "
                + "\(maxGrowth) characters longer"
        }
        return nil
    }

    // MARK: Writing

    /// The text of a value without a fault, which is never longer than the value and what its numbers grow by.
    ///
    /// - Parameter growth: What the check of this value has added.
    static func text(of value: JSONValue, growth: Int) -> String {
        if value.kind == .string { return value.string ?? "" }
        return String(unsafeUninitializedCapacity: value.bytes.count + growth) { buffer in
            guard value.kind == .array else { return write(value, to: buffer) }
            var end = 0
            for (index, element) in value.elements.enumerated() {
                if index > 0 {
                    buffer[end] = UInt8(ascii: ",")
                    end += 1
                }
                end += write(element, to: UnsafeMutableBufferPointer(rebasing: buffer[end...]))
            }
            return end
        }
    }

    /// Returns how many bytes it has written.
    private static func write(_ value: JSONValue, to buffer: UnsafeMutableBufferPointer<UInt8>) -> Int {
        switch value.kind {
        case .string where value.hasEscapes: copy(value.stringBytes ?? [], to: buffer)
        case .string: copy(value.rawString, to: buffer)
        case .true: copy(CollectionOfOne(UInt8(ascii: "1")), to: buffer)
        case .false: copy(CollectionOfOne(UInt8(ascii: "0")), to: buffer)
        case .number where isCopied(value): copy(value.bytes, to: buffer)
        case .number: DecimalLiteral(value).write(to: buffer)
        case .null, .array, .object: 0
        }
    }

    private static func isCopied(_ number: JSONValue) -> Bool {
        number.isIntegerLiteral ? !number.bytes.elementsEqual("-0".utf8) : DecimalLiteral.isPlain(number)
    }

    private static func copy(_ bytes: some Collection<UInt8>, to buffer: UnsafeMutableBufferPointer<UInt8>) -> Int {
        _ = buffer.initialize(from: bytes)
        return bytes.count
    }
}
