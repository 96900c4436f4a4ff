import PosternCore
import Testing

@Suite struct TimestampTests {
    static let moments: [(Int64, String)] = [
        (0, "1970-01-01T00:00:00.000Z"), (-1, "1969-12-31T23:59:59.999Z"), (1, "1970-01-01T00:00:00.001Z"),
        (1_426_200_084_360, "2015-03-12T22:41:24.360Z"), (1_709_164_800_000, "2024-02-29T00:00:00.000Z"),
        (1_709_251_199_999, "2024-02-29T23:59:59.999Z"), (951_782_400_000, "2000-02-29T00:00:00.000Z"),
        (-2_203_891_200_001, "1900-02-28T23:59:59.999Z"), (-2_203_891_200_000, "1900-03-01T00:00:00.000Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"), (-62_167_219_200_000, "0000-01-01T00:00:00.000Z"),
        (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
    ]

    @Test(arguments: moments) func text_isRFC3339_bothWays(milliseconds: Int64, text: String) {
        #expect(Timestamp(milliseconds: milliseconds).description == text)
        #expect(Timestamp(rfc3339: text)?.milliseconds == milliseconds)
    }

    @Test func sum_endsAtNever() {
        let moment = Timestamp(milliseconds: 1)
        #expect(moment + .seconds(Int64.max / 1000) == .never)
        #expect(moment + .seconds(Int64.max) == .never)
        #expect(moment + .seconds(-1) == Timestamp(milliseconds: -999))
        #expect(Timestamp.never + .milliseconds(1) == .never)
        #expect(Duration.fromSeconds(0.05) == .milliseconds(50))
        #expect(Duration.fromSeconds(1e10) == Duration.nanoseconds(Int64.max))
        #expect(Duration.fromSeconds(-1e300) < .seconds(-1) && Duration.fromSeconds(.infinity) > .seconds(1))
    }

    @Test func days_countOneByOne_throughFourCenturies() throws {
        var expected: Int64 = -2_208_988_800_000  // 1900-01-01
        for year in 1900..<2300 {
            let isLeap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
            for (month, days) in [31, isLeap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31].enumerated() {
                for day in 1...days {
                    let text = "\(year)-\(month < 9 ? "0" : "")\(month + 1)-\(day < 10 ? "0" : "")\(day)T00:00:00.000Z"
                    try #require(Timestamp(milliseconds: expected).description == text)
                    expected += 86_400_000
                }
            }
        }
    }

    @Test(arguments: [
        ("2015-03-12T22:41:24Z", "2015-03-12T22:41:24.000Z"), ("2015-03-12t22:41:24.5z", "2015-03-12T22:41:24.500Z"),
        ("2015-03-12T22:41:24.36099999999Z", "2015-03-12T22:41:24.360Z"),
        ("2015-03-12T22:41:24+02:00", "2015-03-12T20:41:24.000Z"),
        ("2015-03-12T22:41:24-05:30", "2015-03-13T04:11:24.000Z"),
        ("2015-01-01T00:00:00+00:01", "2014-12-31T23:59:00.000Z"),
        ("2015-03-12T22:41:24-00:00", "2015-03-12T22:41:24.000Z"),
        ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59.000Z"),
    ])
    func otherForms_areRead(text: String, expected: String) {
        #expect(Timestamp(rfc3339: text)?.description == expected)
    }

    @Test(arguments: [
        "", "2015", "2015-03-12", "2015-03-12T22:41:24", "2015-03-12 22:41:24Z", "2015-3-12T22:41:24Z",
        "2015-13-12T22:41:24Z", "2015-00-12T22:41:24Z", "2015-02-29T22:41:24Z", "2015-04-31T22:41:24Z",
        "2015-03-00T22:41:24Z", "2015-03-12T24:00:00Z", "2015-03-12T22:60:24Z", "2015-03-12T22:41:61Z",
        "2015-03-12T22:41:24.Z", "2015-03-12T22:41:24,5Z", "2015-03-12T22:41:24+2:00", "2015-03-12T22:41:24+0200",
        "2015-03-12T22:41:24+24:00", "2015-03-12T22:41:24+02:60", "2015-03-12T22:41:24ZZ", " 2015-03-12T22:41:24Z",
        "2015-03-12T22:41:24Z ", "+2015-03-12T22:41:24Z", "-015-03-12T22:41:24Z", "２015-03-12T22:41:24Z",
    ])
    func junk_isNoMoment(text: String) {
        #expect(Timestamp(rfc3339: text) == nil)
    }

    /// In UTC their years have no four digits.
    @Test(arguments: [
        ("9999-12-31T23:59:59.999Z", true), ("9999-12-31T23:59:59-00:01", false), ("9999-12-31T23:59:59-23:59", false),
        ("0000-01-01T00:00:00Z", true), ("0000-01-01T00:00:00+00:01", false),
    ])
    func timeOutsideTheYearsOfRFC3339_isNotRead(text: String, isRead: Bool) {
        let time = Timestamp(rfc3339: text)
        #expect((time != nil) == isRead)
        if let time { #expect(Timestamp(rfc3339: "\(time)") == time) }
    }

    @Test func spans_moveAMoment_byWholeMilliseconds() {
        let moment = Timestamp(milliseconds: 1000)
        #expect((moment + .microseconds(1999)).milliseconds == 1001)
        #expect((moment - .seconds(2)).milliseconds == -1000)
        #expect(moment - Timestamp(milliseconds: 250) == .milliseconds(750))
        #expect(Timestamp(milliseconds: 1) < Timestamp(milliseconds: 2))
    }

    static let spans: [(Duration, Int64)] = [
        (.zero, 0), (.milliseconds(1), 1), (.microseconds(999), 0), (.microseconds(-999), 0),
        (.microseconds(-1001), -1), (.seconds(3), 3000), (.nanoseconds(1_234_567_890), 1234),
    ]

    @Test(arguments: spans) func wholeMilliseconds_areRoundedTowardsZero(span: Duration, expected: Int64) {
        #expect(span.wholeMilliseconds == expected)
    }

    @Test func seconds_haveFractions() {
        #expect(Duration.milliseconds(1500).inSeconds == 1.5)
        #expect(abs(Duration.microseconds(-250).inSeconds + 0.00025) < 1e-12)
        #expect(Duration.nanoseconds(12_345_678).inMilliseconds == 12.346)
        #expect(Duration.seconds(2).inMilliseconds == 2000)
    }

    @Test func monotonicInstants_areApartByDurations() {
        let instant = MonotonicInstant(nanoseconds: 5_000_000_000)
        #expect((instant + .milliseconds(1500)).nanoseconds == 6_500_000_000)
        #expect((instant + .seconds(-6)).nanoseconds == -1_000_000_000)
        #expect(instant - MonotonicInstant(nanoseconds: 1) == .nanoseconds(4_999_999_999))
    }
}
