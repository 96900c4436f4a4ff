import PosternCore
import PosternUpstream

/// Form encoding as PHP's `urlencode` writes it (the specification's 3.5). Used for the query, the body, and the
/// signature: the signed bytes are the bytes that are sent.
enum StreamOneEncoding {
    /// The encoder: the SDK for iOS does not escape nine characters that PHP escapes. The gateway itself uses PHP's
    /// encoding.
    enum Dialect: CaseIterable {
        case php, ios

        /// By a byte, the byte that it is written as; 0 for one that is escaped.
        fileprivate var table: [UInt8] { self == .php ? StreamOneEncoding.php : StreamOneEncoding.ios }
    }

    private static let digits = Array("0123456789ABCDEF".utf8)
    private static let php = table(bare: "-_.")
    private static let ios = table(bare: "-_.!$'()*;@~")

    private static func table(bare: String) -> [UInt8] {
        var table = [UInt8](repeating: 0, count: 256)
        let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
        for byte in (letters + bare).utf8 { table[Int(byte)] = byte }
        table[Int(UInt8(ascii: " "))] = UInt8(ascii: "+")
        return table
    }

    /// Whether the dialects write the byte differently.
    private static func isDisputed(_ byte: UInt8) -> Bool { php[Int(byte)] != ios[Int(byte)] }

    /// `name=value` joined by `&`, in the order given. Letters, digits, `-`, `_` and `.` stay, a space becomes `+`, any
    /// other byte `%XX`.
    ///
    /// Worked values: `a b` becomes `a+b`, `é~` becomes `%C3%A9%7E`, and `%C3%A9~` for iOS.
    static func encode(_ pairs: [StreamOneCall.Argument], as dialect: Dialect = .php) -> [UInt8] {
        let table = dialect.table
        // The exact size: an escaped text is three times as long, and an array that grows takes twice that.
        let size = pairs.reduce(max(0, pairs.count - 1)) {
            $0 + encodedBytes(of: $1.name, table) + 1 + encodedBytes(of: $1.value, table)
        }
        return [UInt8](unsafeUninitializedCapacity: size) { buffer, end in
            for pair in pairs {
                if end > 0 { append(UInt8(ascii: "&"), to: buffer, &end) }
                append(pair.name, to: buffer, &end, table)
                append(UInt8(ascii: "="), to: buffer, &end)
                append(pair.value, to: buffer, &end, table)
            }
        }
    }

    private static func encodedBytes(of text: String, _ table: [UInt8]) -> Int {
        var text = text
        return text.withUTF8 { $0.reduce(0) { $0 + (table[Int($1)] == 0 ? 3 : 1) } }
    }

    private static func append(
        _ text: String, to buffer: UnsafeMutableBufferPointer<UInt8>, _ end: inout Int, _ table: [UInt8]
    ) {
        var text = text
        text.withUTF8 { for byte in $0 { append(encoding: byte, to: buffer, &end, table) } }
    }

    @inline(__always)
    private static func append(
        encoding byte: UInt8, to buffer: UnsafeMutableBufferPointer<UInt8>, _ end: inout Int, _ table: [UInt8]
    ) {
        let bare = table[Int(byte)]
        guard bare == 0 else { return append(bare, to: buffer, &end) }
        append(UInt8(ascii: "%"), to: buffer, &end)
        append(digits[Int(byte >> 4)], to: buffer, &end)
        append(digits[Int(byte & 15)], to: buffer, &end)
    }

    @inline(__always)
    private static func append(_ byte: UInt8, to buffer: UnsafeMutableBufferPointer<UInt8>, _ end: inout Int) {
        buffer[end] = byte
        end += 1
    }

    // MARK: Reading

    /// The most pairs of a form. No SDK's call has nearly as many.
    static let maxPairs = 10_000

    /// The pairs of a form in their order, whichever characters its writer escaped; empty for an empty form. Nil if
    /// anything is ambiguous: a pair without a name or `=`, an incomplete escape, a byte beyond visible ASCII, or text
    /// that is not UTF-8. Also nil for more than `maxPairs`, whose texts would take many times the memory of the form.
    static func pairs(of form: some Collection<UInt8>) -> [StreamOneCall.Argument]? {
        guard !form.isEmpty else { return [] }
        let ampersand = UInt8(ascii: "&")
        guard form.reduce(1, { $1 == ampersand ? $0 + 1 : $0 }) <= maxPairs else { return nil }
        var pairs: [StreamOneCall.Argument] = []
        for pair in form.split(separator: ampersand, omittingEmptySubsequences: false) {
            guard let equals = pair.firstIndex(of: UInt8(ascii: "=")), equals > pair.startIndex,
                let name = decode(pair[..<equals]), let value = decode(pair[pair.index(after: equals)...])
            else { return nil }
            pairs.append(StreamOneCall.Argument(name, value))
        }
        return pairs
    }

    private static func decode(_ text: some Collection<UInt8>) -> String? {
        guard text.allSatisfy({ (0x21...0x7E).contains($0) }) else { return nil }
        return PercentEncoding.decodedForm(text).flatMap { String(validating: $0, as: UTF8.self) }
    }

    /// How much of a form is encoded at a time.
    private static let pieceBytes = 64 << 10

    /// What a form is read as, for encoding it again.
    enum Recoding { case ambiguous, same, disputed }

    /// Encodes a form again as `dialect` would have written it, without memory for its pairs, and passes the pieces to
    /// `use`, which returns whether to continue.
    ///
    /// - Returns: Nil if `use` has ended it. Whether the form is ambiguous except for texts that are not UTF-8, and
    ///   whether the dialects write it differently.
    static func recode(
        _ form: [UInt8], as dialect: Dialect, _ use: (UnsafeBufferPointer<UInt8>) -> Bool
    ) -> Recoding? {
        let table = dialect.table
        return form.withUnsafeBufferPointer { form in
            withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 3 * pieceBytes) { buffer in
                var position = 0
                var (isInValue, hasName, isDisputed) = (false, false, false)
                while position < form.count {
                    let pieceEnd = min(position + pieceBytes, form.count)
                    var end = 0
                    while position < pieceEnd {
                        var byte = form[position]
                        position += 1
                        switch byte {
                        case UInt8(ascii: "&"):
                            guard isInValue else { return .ambiguous }
                            (isInValue, hasName) = (false, false)
                            append(byte, to: buffer, &end)
                            continue
                        case UInt8(ascii: "=") where !isInValue:
                            guard hasName else { return .ambiguous }
                            isInValue = true
                            append(byte, to: buffer, &end)
                            continue
                        case UInt8(ascii: "+"): byte = UInt8(ascii: " ")
                        case UInt8(ascii: "%"):
                            guard position + 1 < form.count, let high = form[position].hexadecimalValue,
                                let low = form[position + 1].hexadecimalValue
                            else { return .ambiguous }
                            byte = high << 4 | low
                            position += 2
                        case 0x21...0x7E: break
                        default: return .ambiguous
                        }
                        hasName = true
                        if Self.isDisputed(byte) { isDisputed = true }
                        append(encoding: byte, to: buffer, &end, table)
                    }
                    guard use(UnsafeBufferPointer(rebasing: buffer[..<end])) else { return nil }
                }
                guard isInValue || form.isEmpty else { return .ambiguous }
                return isDisputed ? .disputed : .same
            }
        }
    }
}
