import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

/// Numbers without their exponents, which StreamOne, Curio and AppServices need.
@Suite struct DecimalLiteralTests {
    private func read<R>(_ literal: String, _ body: (DecimalLiteral) -> R) throws -> R {
        try JSONParser().parse(Array(literal.utf8)) { body(DecimalLiteral($0)) }.get()
    }

    private func text(_ literal: String) throws -> String {
        try read(literal) { number in
            var written = 0
            let text = String(unsafeUninitializedCapacity: number.length) { buffer in
                written = number.write(to: buffer)
                return written
            }
            #expect(written == number.length, "\(literal)")
            return text
        }
    }

    @Test(arguments: [
        ("0", "0"), ("-0", "0"), ("0.000", "0"), ("-0.0e5", "0"), ("0e99999999999999999999", "0"), ("7", "7"),
        ("120", "120"), ("1.0", "1"), ("-2.50", "-2.5"), ("10.010", "10.01"), ("0.0010", "0.001"), ("1e0", "1"),
        ("1e3", "1000"), ("1.5e-7", "0.00000015"), ("12345.678e-2", "123.45678"), ("12345.678E+5", "1234567800"),
        ("100e-3", "0.1"), ("100e-2", "1"), ("0.00012e4", "1.2"), ("0.00012e5", "12"), ("-0.5e-1", "-0.05"),
        ("123e-3", "0.123"), ("123e-2", "1.23"),
    ])
    func number_isWrittenWithoutExponent(literal: String, text: String) throws {
        #expect(try self.text(literal) == text)
    }

    @Test func number_keepsItsValue_whateverItsForm() throws {
        var random = SplitMix64(state: 41)
        func digits(_ most: UInt64) -> String {
            (0...random.next() % most).map { _ in String([0, 0, 0, 7, 9, 4][Int(random.next() % 6)]) }.joined()
        }
        for _ in 0..<20_000 {
            var literal = random.next() % 2 == 0 ? "-" : ""
            literal += random.next() % 2 == 0 ? "0" : "3" + digits(20)
            if random.next() % 4 > 0 { literal += "." + digits(20) }
            if random.next() % 4 > 0 {
                literal += ["e", "E-", "e+"][Int(random.next() % 3)] + String(random.next() % 40)
            }
            let text = try text(literal)
            #expect(Double(text) == Double(literal), "\(literal) became \(text)")
            let isPlain = try JSONParser().parse(Array(literal.utf8)) { DecimalLiteral.isPlain($0) }.get()
            #expect(!isPlain || text == literal, "\(literal) became \(text)")
            let hasExponent = text.utf8.contains { $0 | 0x20 == UInt8(ascii: "e") }
            #expect(!hasExponent && !(text.contains(".") && text.hasSuffix("0")), "\(literal) became \(text)")
            guard let whole = text.split(separator: ".").first, whole != "-" else { continue }
            #expect(try read(literal) { $0.truncated } == Int64(whole), "\(literal)")
        }
    }

    @Test(arguments: [
        ("0.1", true), ("-12.75", true), ("1.50", false), ("-0.0", false), ("-0", false), ("1e5", false),
        ("1E-5", false),
    ])
    func number_isPlain_ifItsTextStays(literal: String, isPlain: Bool) throws {
        #expect(try JSONParser().parse(Array(literal.utf8)) { DecimalLiteral.isPlain($0) }.get() == isPlain)
    }

    @Test func length_isKnownBeforeAnythingIsWritten() throws {
        #expect(try read("1e-300") { $0.length } == 302)
        #expect(try read("1e999999999") { $0.length } == 1_000_000_000)
        #expect(try read("1e-99999999999999999999999999") { $0.length } > 1 << 40)
        #expect(try read("1e99999999999999999999999999") { $0.magnitude } == nil)
    }

    @Test(
        arguments: [
            ("90", 90, true), ("-90.000", 90, true), ("90.0000000000000000000001", 90, false), ("9e1", 90, true),
            ("9.01e1", 90, false), ("91", 90, false), ("1e-400", 90, true), ("1e19", 90, false), ("1e20", 90, false),
            ("9007199254740992.0", 9_007_199_254_740_992, true),
            ("-90071992547409930e-1", 9_007_199_254_740_992, false),
        ] as [(String, UInt64, Bool)])
    func limit_includesItselfAndNothingAbove(literal: String, limit: UInt64, isWithin: Bool) throws {
        #expect(try read(literal) { $0.isWithin(limit) } == isWithin)
    }
}
