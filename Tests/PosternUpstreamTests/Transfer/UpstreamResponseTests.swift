import PosternCore
import PosternUpstream
import Testing

@Suite struct UpstreamResponseTests {
    @Test func retryAfter_isRead_whateverTheCaseOfTheHeader() {
        let now = Timestamp(milliseconds: 0)
        let response = UpstreamResponse(status: 503, headers: [("retry-after", "30")])
        #expect(response.retryAfter(now: now) == .seconds(30))
        #expect(UpstreamResponse(status: 503).retryAfter(now: now) == nil)
    }
}
