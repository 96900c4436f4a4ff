import PosternCore
import Testing

@testable import PosternGateway

@Suite struct CertificateWarningTests {
    private let end = Timestamp(milliseconds: 100 * 86_400_000)

    @Test func warning_comesOnceAt21_7_and1Days() {
        var warning = CertificateWarning()
        var days: [Int] = []
        for hour in 0...(100 * 24) {
            let now = Timestamp(milliseconds: Int64(hour) * 3_600_000)
            if let left = warning.daysLeft(until: end, now: now) { days.append(left) }
        }
        #expect(days == [21, 7, 1])
    }

    @Test func expiryWarning_isLoggedAgain_forARenewedCertificate() {
        var warning = CertificateWarning()
        let now = Timestamp(milliseconds: 99 * 86_400_000)
        #expect(warning.daysLeft(until: end, now: now) == 1)
        #expect(warning.daysLeft(until: end, now: now) == nil)
        #expect(warning.daysLeft(until: end + .seconds(86_400), now: now) == 2)
        #expect(warning.daysLeft(until: end + .seconds(90 * 86_400), now: now) == nil)
    }

    @Test func expiredCertificate_hasNoDaysLeft() {
        var warning = CertificateWarning()
        #expect(warning.daysLeft(until: end, now: end + .seconds(5 * 86_400)) == 0)
    }
}
