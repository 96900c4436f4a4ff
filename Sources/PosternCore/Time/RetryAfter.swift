/// The `Retry-After` of a response (RFC 9110, section 10.2.3).
public enum RetryAfter {
    /// A longer delay is not obeyed: a wrong date must not stop an upstream for a year.
    static let longest = Duration.seconds(3600)

    /// How long to wait from `now` on, at most `longest`. `text` is a number of seconds or a date in any of HTTP's
    /// three forms; what lies in the past means at once. Nil for anything else.
    ///
    /// Worked values: `120` is 2 min, `-1` is 0 s, `99999999999999999999` is 1 h, `1.5` is nil.
    public static func delay(_ text: String, now: Timestamp) -> Duration? {
        let text = text.drop { $0 == " " || $0 == "\t" }
        let trimmed = String(text.reversed().drop { $0 == " " || $0 == "\t" }.reversed())
        if let seconds = seconds(trimmed) { return min(max(seconds, .zero), longest) }
        guard let moment = Timestamp(httpDate: trimmed, now: now) else { return nil }
        return min(max(moment - now, .zero), longest)
    }

    private static func seconds(_ text: String) -> Duration? {
        let digits = text.utf8.first == UInt8(ascii: "-") ? text.dropFirst() : text[...]
        guard !digits.isEmpty, digits.utf8.allSatisfy({ (48...57).contains($0) }) else { return nil }
        guard digits.count == text.count else { return .zero }
        return Int64(digits).map { .seconds(min($0, longest.components.seconds)) } ?? longest
    }
}

extension Timestamp {
    /// Reads a date of HTTP (RFC 9110, section 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`, and the obsolete
    /// `Sunday, 06-Nov-94 08:49:37 GMT` and `Sun Nov  6 08:49:37 1994`. The day of the week need not be the right one.
    ///
    /// A year of two digits is the one of this century, unless that were more than 50 years after `now`.
    public init?(httpDate text: String, now: Timestamp) {
        var reader = DigitReader(Array(text.utf8))
        let date: Timestamp?
        if reader.take(oneOf: Self.longDays.map { $0 + ", " }) != nil {
            date = Self.rfc850(&reader, now: now)
        } else if reader.take(oneOf: Self.longDays.map { $0.prefix(3) + ", " }) != nil {
            date = Self.fixed(&reader)
        } else if reader.take(oneOf: Self.longDays.map { $0.prefix(3) + " " }) != nil {
            date = Self.asctime(&reader)
        } else {
            return nil
        }
        guard let date, reader.isAtEnd else { return nil }
        self = date
    }

    private static let longDays = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]
    private static let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]

    private static func fixed(_ reader: inout DigitReader) -> Timestamp? {
        guard let day = reader.number(digits: 2), reader.take(" "), let month = reader.take(oneOf: months),
            reader.take(" "), let year = reader.number(digits: 4), reader.take(" "),
            let second = secondOfDay(&reader), reader.take(word: " GMT")
        else { return nil }
        return moment(year: year, month: month, day: day, second: second)
    }

    private static func rfc850(_ reader: inout DigitReader, now: Timestamp) -> Timestamp? {
        guard let day = reader.number(digits: 2), reader.take("-"), let month = reader.take(oneOf: months),
            reader.take("-"), let shortYear = reader.number(digits: 2), reader.take(" "),
            let second = secondOfDay(&reader), reader.take(word: " GMT")
        else { return nil }
        let today = now.milliseconds.quotientRoundedDown(by: 86_400_000)
        let (thisYear, thisMonth, thisDay) = civilDate(daysSince1970: today)
        let year = thisYear - thisYear % 100 + shortYear
        // The day that `now` will be in 50 years, at the same time of day.
        let inFiftyYears = daysSince1970(year: thisYear + 50, month: thisMonth, day: thisDay)
        let latest = Timestamp(milliseconds: now.milliseconds + (inFiftyYears - today) * 86_400_000)
        let date = moment(year: year, month: month, day: day, second: second)
        if let date, date <= latest { return date }
        // Also when there is no such day in this century: 29 February 00 is one of 2000, not of 2100.
        return moment(year: year - 100, month: month, day: day, second: second)
    }

    private static func asctime(_ reader: inout DigitReader) -> Timestamp? {
        guard let month = reader.take(oneOf: months), reader.take(" "),
            let day = reader.number(digits: reader.take(" ") ? 1 : 2), reader.take(" "),
            let second = secondOfDay(&reader), reader.take(" "), let year = reader.number(digits: 4)
        else { return nil }
        return moment(year: year, month: month, day: day, second: second)
    }

    private static func secondOfDay(_ reader: inout DigitReader) -> Int64? {
        guard let hour = reader.number(digits: 2), reader.take(":"), let minute = reader.number(digits: 2),
            reader.take(":"), let second = reader.number(digits: 2), hour < 24, minute < 60, second <= 60
        else { return nil }
        return hour * 3600 + minute * 60 + min(second, 59)
    }

    private static func moment(year: Int64, month index: Int, day: Int64, second: Int64) -> Timestamp? {
        let month = Int64(index + 1)
        guard (1...daysInMonth(month, of: year)).contains(day) else { return nil }
        return Timestamp(milliseconds: (daysSince1970(year: year, month: month, day: day) * 86400 + second) * 1000)
    }
}

extension DigitReader {
    fileprivate mutating func take(word: String) -> Bool {
        var ahead = self
        for character in word where !ahead.take(character) { return false }
        self = ahead
        return true
    }

    /// Skips the first of `words` that is found here, and returns its index.
    fileprivate mutating func take(oneOf words: [String]) -> Int? {
        for (index, word) in words.enumerated() where take(word: word) { return index }
        return nil
    }
}
