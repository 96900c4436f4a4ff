/// `enc` of the specification (4.2): keeps `A-Z a-z 0-9 . - _ ~`, makes a space `+` and every other byte of the UTF-8
/// `%XX` with upper-case digits.
///
/// Worked values: `Master view` is `Master+view`, `100% A+B` is `100%25+A%2BB`, `ş` is `%C5%9F`.
enum CurioEncoding {
    private static let digits = Array("0123456789ABCDEF".utf8)

    static func append(_ text: some Sequence<UInt8>, to result: inout [UInt8]) {
        for byte in text {
            switch byte {
            case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "_"),
                UInt8(ascii: "~"):
                result.append(byte)
            case UInt8(ascii: " "): result.append(UInt8(ascii: "+"))
            default: result += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
            }
        }
    }

    static func encoded(_ text: String) -> [UInt8] {
        var result: [UInt8] = []
        result.reserveCapacity(text.utf8.count)
        append(text.utf8, to: &result)
        return result
    }
}

/// A request's body: parameters in the order in which they were added.
struct CurioForm {
    private(set) var body: [UInt8] = []

    /// `name` needs no encoding.
    mutating func add(_ name: String, _ value: some Sequence<UInt8>) {
        if !body.isEmpty { body.append(UInt8(ascii: "&")) }
        body += name.utf8
        body.append(UInt8(ascii: "="))
        CurioEncoding.append(value, to: &body)
    }

    mutating func add(_ name: String, _ value: String) { add(name, value.utf8) }

    mutating func add(_ name: String, _ value: Int) { add(name, String(value)) }

    /// For the texts that the server decodes a second time.
    mutating func addTwice(_ name: String, _ value: String) { add(name, CurioEncoding.encoded(value)) }
}
