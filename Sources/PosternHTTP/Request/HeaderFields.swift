/// The header lines of a request: the client's bytes, and where names and values are in them.
struct HeaderFields: Sendable {
    struct Line: Sendable {
        let name: Range<UInt16>
        let value: Range<UInt16>
    }

    /// From the first byte of the request to the empty line, at most `HTTPServerSettings.maxHeaderBytes`.
    private let bytes: [UInt8]
    private let lines: [Line]
    /// One bit per name length: most fields that handlers look up are absent, and this shows it at once.
    private let nameLengths: UInt64

    init(_ bytes: [UInt8], _ lines: [Line]) {
        self.bytes = bytes
        self.lines = lines
        nameLengths = lines.reduce(0) { $0 | Self.bit(forLength: $1.name.count) }
    }

    private static func bit(forLength length: Int) -> UInt64 { 1 << UInt64(length & 63) }

    /// The value of the field called `name`, whatever its case; several lines are joined by commas, as one list
    /// (RFC 9110, section 5.2).
    func value(of name: String) -> String? {
        guard nameLengths & Self.bit(forLength: name.utf8.count) != 0 else { return nil }
        return bytes.withUnsafeBufferPointer { bytes in
            var joined: String?
            for line in lines where line.name.count == name.utf8.count && spells(bytes, line.name, name) {
                let value = text(bytes, line.value)
                joined = joined.map { "\($0), \(value)" } ?? value
            }
            return joined
        }
    }

    /// Calls `body` with the value of the first line whose field is called `lowercaseName`, whatever its case there.
    func withValue(of lowercaseName: StaticString, _ body: (UnsafeBufferPointer<UInt8>) -> Void) {
        guard nameLengths & Self.bit(forLength: lowercaseName.utf8CodeUnitCount) != 0 else { return }
        bytes.withUnsafeBufferPointer { bytes in
            func part(_ range: Range<UInt16>) -> UnsafeBufferPointer<UInt8> {
                UnsafeBufferPointer(rebasing: bytes[Int(range.lowerBound)..<Int(range.upperBound)])
            }
            if let line = lines.first(where: { part($0.name).spells(lowercaseName) }) { body(part(line.value)) }
        }
    }

    /// The value of each line whose field is called `name`, whatever its case.
    func values(of name: String) -> [String] {
        guard nameLengths & Self.bit(forLength: name.utf8.count) != 0 else { return [] }
        return bytes.withUnsafeBufferPointer { bytes in
            lines.filter { $0.name.count == name.utf8.count && spells(bytes, $0.name, name) }
                .map { text(bytes, $0.value) }
        }
    }

    var all: [(name: String, value: String)] {
        bytes.withUnsafeBufferPointer { bytes in lines.map { (text(bytes, $0.name), text(bytes, $0.value)) } }
    }

    /// The lines whose name begins with `prefix`, whatever its case: the name in lower case, and the value as sent.
    func lines(withPrefix prefix: String) -> [(name: String, value: [UInt8])] {
        bytes.withUnsafeBufferPointer { bytes in
            lines.compactMap { line in
                let start = line.name.prefix(prefix.utf8.count)
                guard start.count == prefix.utf8.count, spells(bytes, start, prefix) else { return nil }
                return (text(bytes, line.name).lowercased(), line.value.map { bytes[Int($0)] })
            }
        }
    }

    private func spells(_ bytes: UnsafeBufferPointer<UInt8>, _ range: Range<UInt16>, _ name: String) -> Bool {
        var index = Int(range.lowerBound)
        for byte in name.utf8 {
            guard bytes[index].lowercasedASCII == byte.lowercasedASCII else { return false }
            index += 1
        }
        return true
    }

    private func text(_ bytes: UnsafeBufferPointer<UInt8>, _ range: Range<UInt16>) -> String {
        String(
            decoding: UnsafeBufferPointer(rebasing: bytes[Int(range.lowerBound)..<Int(range.upperBound)]), as: UTF8.self
        )
    }
}

extension UInt8 {
    var lowercasedASCII: UInt8 { (0x41...0x5A).contains(self) ? self | 0x20 : self }
    var isBlank: Bool { self == 0x20 || self == 0x09 }
    /// A character of a field value: visible ASCII, blanks, and `obs-text` (RFC 9110, section 5.5).
    var isFieldCharacter: Bool { self >= 0x20 && self != 0x7F || self == 0x09 }
}
