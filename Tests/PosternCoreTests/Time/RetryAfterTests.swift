import PosternCore
import Testing

@Suite struct RetryAfterTests {
    /// 1994-11-06T08:48:37Z: one minute before the date of RFC 9110's examples.
    private static let minuteBefore = Timestamp(milliseconds: 784_111_717_000)

    @Test(arguments: [
        ("0", 0), ("120", 120), (" 7\t", 7), ("007", 7), ("3600", 3600), ("3601", 3600), ("-5", 0), ("-0", 0),
        ("99999999999999999999999", 3600), ("-99999999999999999999999", 0),
    ])
    func seconds_areObeyed_upToAnHour(text: String, seconds: Int) {
        #expect(RetryAfter.delay(text, now: Self.minuteBefore) == .seconds(seconds))
    }

    @Test(arguments: [
        ("Sun, 06 Nov 1994 08:49:37 GMT", 60), ("Sunday, 06-Nov-94 08:49:37 GMT", 60), ("Sun Nov  6 08:49:37 1994", 60),
        ("Mon, 06 Nov 1994 08:49:37 GMT", 60), ("Sun Nov 06 08:49:37 1994", 60), ("Sun, 06 Nov 1994 08:48:00 GMT", 0),
        ("Sun, 06 Nov 1994 23:59:60 GMT", 3600), ("Sun, 06 Nov 1904 08:49:37 GMT", 0),
        ("Sat Dec 31 08:49:37 1994", 3600),
    ])
    func date_isObeyed_inItsThreeForms(text: String, seconds: Int) {
        #expect(RetryAfter.delay(text, now: Self.minuteBefore) == .seconds(seconds))
    }

    @Test(arguments: [
        "", " ", "soon", "1.5", "+5", "5s", "0x5", "-", "5 5", "٣", "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 CET",
        "Sun, 06 Nov 94 08:49:37 GMT", "Sun, 6 Nov 1994 08:49:37 GMT", "Sun, 31 Feb 1994 08:49:37 GMT",
        "Sun, 06 nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 24:00:00 GMT", "Sun, 06 Nov 1994 08:60:37 GMT",
        "Sunday, 06 Nov 1994 08:49:37 GMT", "Sun, 06-Nov-94 08:49:37 GMT", "Sun Nov 6 08:49:37 1994",
        "Sun Nov  6 08:49:37 1994 GMT", "1994-11-06T08:49:37Z", "Sunday, 29-Feb-93 08:49:37 GMT",
    ])
    func garbage_isNoDelay(text: String) {
        #expect(RetryAfter.delay(text, now: Self.minuteBefore) == nil)
    }

    /// `now` is 2026-11-21T12:00:00Z.
    @Test(arguments: [
        ("Saturday, 21-Nov-26 12:00:01 GMT", "2026-11-21T12:00:01.000Z"),
        ("Friday, 20-Nov-76 12:00:00 GMT", "2076-11-20T12:00:00.000Z"),
        ("Saturday, 21-Nov-76 12:00:00 GMT", "2076-11-21T12:00:00.000Z"),
        ("Sunday, 21-Nov-76 12:00:01 GMT", "1976-11-21T12:00:01.000Z"),
        ("Sunday, 06-Nov-94 08:49:37 GMT", "1994-11-06T08:49:37.000Z"),
        ("Friday, 31-Dec-99 23:59:59 GMT", "1999-12-31T23:59:59.000Z"),
        ("Tuesday, 29-Feb-00 00:00:00 GMT", "2000-02-29T00:00:00.000Z"),
    ])
    func yearOfTwoDigits_isNotMoreThanFiftyYearsAhead(text: String, expected: String) {
        let now = Timestamp(rfc3339: "2026-11-21T12:00:00Z")!
        #expect(Timestamp(httpDate: text, now: now)?.description == expected)
    }
}
