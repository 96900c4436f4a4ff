import PosternCore
import PosternProcess

/// The work of the main thread while the gateway runs: reloads the configuration on request, loads renewed TLS files,
/// and ends when the gateway has to stop.
final class Supervisor: Loop, @unchecked Sendable {
    // @unchecked: belongs to the thread that turns.
    let name = "postern"
    private let signals: Signals
    private let reload: () -> Void
    private let checkCertificate: (() -> Void)?
    private var nextLook = MonotonicInstant.distantPast

    /// How often the TLS files are checked.
    static let certificatePeriod = Duration.seconds(10)

    /// - Parameter checkCertificate: nil without TLS.
    init(_ signals: Signals, reload: @escaping () -> Void, checkCertificate: (() -> Void)?) {
        self.signals = signals
        self.reload = reload
        self.checkCertificate = checkCertificate
    }

    func turn(at now: MonotonicInstant) -> MonotonicInstant? {
        while let signal = signals.take() {
            if signal == .stop { return nil }
            reload()
            nextLook = now
        }
        guard let checkCertificate else { return .distantFuture }
        if now >= nextLook {
            checkCertificate()
            nextLook = now + Self.certificatePeriod
        }
        return nextLook
    }

    func wait(until deadline: MonotonicInstant) -> Bool { signals.wait(until: deadline) }
}
