import PosternSimulatorKit

/// What the server finds in a body: it checks an array's bracket and first token, and the rest while validating.
enum Body {
    /// Empty, blank or `null`.
    case nothing
    /// Rejected by the parser at once.
    case malformed
    /// Invalid further inside.
    case broken
    /// An object, a string, a number or a boolean.
    case notAnArray
    case events([Event], Oddities)

    /// What the server accepts and a gateway does not send.
    struct Oddities {
        var hasTrailingBytes = false
        var hasControlCharacters = false
    }

    init(_ text: UnsafeBufferPointer<UInt8>) {
        var scanner = JSONScanner(text)
        switch scanner.peek() {
        case nil: self = .nothing
        case UInt8(ascii: "["): self = Self.array(&scanner)
        default:
            switch scanner.value()?.kind {
            case nil: self = .malformed
            case .null: self = .nothing
            default: self = .notAnArray
            }
        }
    }

    private static func array(_ scanner: inout JSONScanner) -> Self {
        scanner.position += 1
        guard let first = scanner.peek() else { return .malformed }
        var events: [Event] = []
        if first != UInt8(ascii: "]") {
            guard isToken(first, scanner) else { return .malformed }
            repeat {
                guard let event = Event(&scanner) else { return .broken }
                events.append(event)
            } while scanner.take(UInt8(ascii: ","))
        }
        guard scanner.take(UInt8(ascii: "]")) else { return .broken }
        let hasMore = scanner.peek() != nil
        return .events(
            events, Oddities(hasTrailingBytes: hasMore, hasControlCharacters: scanner.sawControlCharacter))
    }

    /// Whether a token starts here. Strings and containers are read later, numbers and literals now.
    private static func isToken(_ first: UInt8, _ scanner: JSONScanner) -> Bool {
        switch first {
        case UInt8(ascii: "{"), UInt8(ascii: "["), UInt8(ascii: "\""): return true
        default:
            var ahead = scanner
            return ahead.value() != nil
        }
    }
}
