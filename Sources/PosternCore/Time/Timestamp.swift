/// A moment of wall-clock time in milliseconds since 1970-01-01T00:00:00Z.
///
/// For what is shown or stored. Waiting is measured with `MonotonicInstant`: this one jumps when the clock is set.
public struct Timestamp: Hashable, Comparable, Sendable, CustomStringConvertible {
    /// Since 1970-01-01T00:00:00Z; negative before.
    public let milliseconds: Int64

    @inlinable public init(milliseconds: Int64) { self.milliseconds = milliseconds }

    /// Later than any time; what waits until then waits for an event.
    public static let never = Timestamp(milliseconds: .max)

    @inlinable public static func < (left: Timestamp, right: Timestamp) -> Bool {
        left.milliseconds < right.milliseconds
    }

    /// Rounds `span` towards zero to milliseconds. What is too late to be represented is `never`: a span may come from
    /// an upstream.
    public static func + (moment: Timestamp, span: Duration) -> Timestamp {
        let (sum, isTooLate) = moment.milliseconds.addingReportingOverflow(span.wholeMilliseconds)
        return isTooLate ? .never : Timestamp(milliseconds: sum)
    }

    public static func - (moment: Timestamp, span: Duration) -> Timestamp {
        Timestamp(milliseconds: moment.milliseconds - span.wholeMilliseconds)
    }

    /// Negative if `later` is earlier.
    public static func - (later: Timestamp, earlier: Timestamp) -> Duration {
        .milliseconds(later.milliseconds - earlier.milliseconds)
    }

    /// RFC 3339 in UTC with milliseconds: `2015-03-12T22:41:24.360Z`.
    public var description: String {
        let day = milliseconds.quotientRoundedDown(by: 86_400_000)
        let rest = milliseconds - day * 86_400_000
        let (year, month, dayOfMonth) = civilDate(daysSince1970: day)
        func padded(_ number: Int64, _ width: Int) -> String {
            let digits = String(number)
            return String(repeating: "0", count: max(0, width - digits.utf8.count)) + digits
        }
        return "\(padded(year, 4))-\(padded(month, 2))-\(padded(dayOfMonth, 2))"
            + "T\(padded(rest / 3_600_000, 2)):\(padded(rest / 60000 % 60, 2)):\(padded(rest / 1000 % 60, 2))"
            + ".\(padded(rest % 1000, 3))Z"
    }

    /// The years 0000 to 9999 in UTC, which `description` writes with four digits.
    private static let writable: Range<Int64> = -62_167_219_200_000..<253_402_300_800_000

    /// Reads the form of RFC 3339, section 5.6, with any offset and any number of fraction digits (cut after three). Nil
    /// also for a time outside the years 0000 to 9999 in UTC, which could be shown in no form that can be read again.
    public init?(rfc3339 text: some StringProtocol) {
        var reader = DigitReader(text.utf8.map { $0 })
        guard let year = reader.number(digits: 4), reader.take("-"), let month = reader.number(digits: 2),
            reader.take("-"), let day = reader.number(digits: 2), reader.take("T") || reader.take("t"),
            let hour = reader.number(digits: 2), reader.take(":"), let minute = reader.number(digits: 2),
            reader.take(":"), let second = reader.number(digits: 2),
            (1...12).contains(month), (1...daysInMonth(month, of: year)).contains(day),
            hour < 24, minute < 60, second <= 60
        else { return nil }
        var fraction: Int64 = 0
        if reader.take(".") {
            guard let digits = reader.fractionMilliseconds() else { return nil }
            fraction = digits
        }
        var offset: Int64 = 0
        if !(reader.take("Z") || reader.take("z")) {
            let sign: Int64
            if reader.take("+") { sign = 1 } else if reader.take("-") { sign = -1 } else { return nil }
            guard let hours = reader.number(digits: 2), reader.take(":"), let minutes = reader.number(digits: 2),
                hours < 24, minutes < 60
            else { return nil }
            offset = sign * (hours * 60 + minutes)
        }
        guard reader.isAtEnd else { return nil }
        let days = daysSince1970(year: year, month: month, day: day)
        let seconds = days * 86400 + hour * 3600 + (minute - offset) * 60 + min(second, 59)
        milliseconds = seconds * 1000 + fraction
        guard Self.writable.contains(milliseconds) else { return nil }
    }
}

extension Duration {
    /// Rounded towards zero; the largest number if there are more.
    public var wholeMilliseconds: Int64 {
        let (seconds, attoseconds) = components
        guard seconds < Int64.max / 1000 else { return .max }
        return seconds * 1000 + attoseconds / 1_000_000_000_000_000
    }

    /// With fractions; for metrics and logs.
    public var inSeconds: Double {
        // Both of them cost a division of 128 bits.
        let (seconds, attoseconds) = components
        return Double(seconds) + Double(attoseconds) / 1e18
    }

    /// With up to three digits of a fraction; for logs.
    public var inMilliseconds: Double { (inSeconds * 1e6).rounded() / 1e3 }

    /// Rounded to nanoseconds, so that 0.05 is 50 ms exactly.
    /// The longest one is 292 years.
    public static func fromSeconds(_ seconds: Double) -> Duration {
        let nanoseconds = (seconds * 1e9).rounded()
        return .nanoseconds(nanoseconds < 9.2e18 ? Int64(max(nanoseconds, -9.2e18)) : .max)
    }
}

extension Int64 {
    func quotientRoundedDown(by divisor: Int64) -> Int64 {
        let (quotient, remainder) = quotientAndRemainder(dividingBy: divisor)
        return remainder < 0 ? quotient - 1 : quotient
    }
}

/// Reads fixed-width numbers off ASCII text.
struct DigitReader {
    private var rest: ArraySlice<UInt8>
    init(_ bytes: [UInt8]) { rest = bytes[...] }

    var isAtEnd: Bool { rest.isEmpty }

    mutating func take(_ character: Character) -> Bool {
        guard let first = rest.first, first == character.asciiValue else { return false }
        rest.removeFirst()
        return true
    }

    mutating func number(digits: Int) -> Int64? {
        guard rest.count >= digits else { return nil }
        var value: Int64 = 0
        for byte in rest.prefix(digits) {
            guard (48...57).contains(byte) else { return nil }
            value = value * 10 + Int64(byte - 48)
        }
        rest.removeFirst(digits)
        return value
    }

    mutating func fractionMilliseconds() -> Int64? {
        let digits = rest.prefix { (48...57).contains($0) }
        guard !digits.isEmpty else { return nil }
        rest.removeFirst(digits.count)
        return (0..<3).reduce(0) { value, position in
            let index = digits.startIndex + position
            return value * 10 + (index < digits.endIndex ? Int64(digits[index] - 48) : 0)
        }
    }
}

/// The number of milliseconds.
extension Timestamp: Codable {
    public init(from decoder: any Decoder) throws {
        self.init(milliseconds: try decoder.singleValueContainer().decode(Int64.self))
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(milliseconds)
    }
}
