import PosternUpstream

/// `enc` of the specification (4.2): keeps `A-Z a-z 0-9 . - _ ~`, makes a space `+` and every other byte of the UTF-8
/// `%XX` with upper-case digits.
///
/// Worked values: `Master view` is `Master+view`, `100% A+B` is `100%25+A%2BB`, `ş` is `%C5%9F`.
enum CurioEncoding {
    static func encoded(_ text: String) -> [UInt8] {
        var result: [UInt8] = []
        result.reserveCapacity(text.utf8.count)
        PercentEncoding.append(text.utf8, plusIsSpace: true, to: &result)
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
        PercentEncoding.append(value, plusIsSpace: true, to: &body)
    }

    mutating func add(_ name: String, _ value: String) { add(name, value.utf8) }

    mutating func add(_ name: String, _ value: Int) { add(name, String(value)) }

    /// For the texts that the server decodes a second time.
    mutating func addTwice(_ name: String, _ value: String) { add(name, CurioEncoding.encoded(value)) }
}
