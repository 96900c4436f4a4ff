import Testing

@testable import PosternHTTP

@Suite struct AdmissionsTests {
    private let one = PeerAddress(text: "192.0.2.1")
    private let other = PeerAddress(text: "192.0.2.2")

    @Test func nextConnectionOfAnAddress_isRefused_atItsLimit_othersAreNot() {
        let admissions = Admissions(total: 10, perAddress: 2)
        #expect(admissions.admit(one) && admissions.admit(one))
        #expect(!admissions.admit(one))
        #expect(admissions.admit(other))
        admissions.release(one)
        #expect(admissions.admit(one))
        #expect(!admissions.admit(one))
    }

    @Test func nextConnection_isRefused_atTheLimitOfAll() {
        let admissions = Admissions(total: 2, perAddress: 0)
        #expect(admissions.admit(one) && admissions.admit(one))
        #expect(!admissions.admit(other))
        admissions.release(one)
        #expect(admissions.admit(other))
    }
}
