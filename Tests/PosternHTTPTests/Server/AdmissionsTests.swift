import Testing

@testable import PosternHTTP

@Suite struct AdmissionsTests {
    private let one = PeerAddress(text: "192.0.2.1")
    private let other = PeerAddress(text: "192.0.2.2")

    @Test func nextConnectionOfAnAddress_isRefused_atItsLimit_othersAreNot() {
        let limiter = ConnectionLimiter(total: 10, perAddress: 2)
        #expect(limiter.admit(one) && limiter.admit(one))
        #expect(!limiter.admit(one))
        #expect(limiter.admit(other))
        limiter.release(one)
        #expect(limiter.admit(one))
        #expect(!limiter.admit(one))
    }

    @Test func nextConnection_isRefused_atTheLimitOfAll() {
        let limiter = ConnectionLimiter(total: 2, perAddress: 0)
        #expect(limiter.admit(one) && limiter.admit(one))
        #expect(!limiter.admit(other))
        limiter.release(one)
        #expect(limiter.admit(other))
    }
}
