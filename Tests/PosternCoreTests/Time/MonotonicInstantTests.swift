import PosternCore
import Testing

@Suite struct MonotonicInstantTests {
    @Test func sum_endsAtTheEndOfTheClock() throws {
        let instant = MonotonicInstant(nanoseconds: 5_000_000_000)
        #expect(instant + .milliseconds(250) == MonotonicInstant(nanoseconds: 5_250_000_000))
        #expect(instant + .seconds(-5) == .distantPast)
        let latest = try #require(Timestamp(rfc3339: "9999-12-31T23:59:59Z"))
        #expect(instant + (latest - Timestamp(milliseconds: 0)) == .distantFuture)
        #expect(MonotonicInstant.distantFuture + Duration.nanoseconds(1) == .distantFuture)
        #expect(instant + Duration.nanoseconds(Int64.max) == .distantFuture)
        #expect(instant + (Timestamp.never - Timestamp(milliseconds: 0)) == .distantFuture)
    }
}
