import PosternCore
import PosternDelivery
import PosternHTTP
import PosternStore
import PosternThreads
import Synchronization

/// The response to a flush with `Prefer: wait=N`: `200` with counts when it is over, `502` if messages could not be sent,
/// `202` if it continues after that time.
final class FlushReply: PendingReply {
    private let upstream: ConfiguredUpstream
    private let seconds: Int
    private let responder: MeteredResponder
    private let context: APIContext
    private let queued: Int
    private let isAnswered = Mutex(false)

    /// Empty: a flush waits for no particular message.
    var ids: [MessageID] { [] }

    init(_ upstream: ConfiguredUpstream, seconds: Int, _ responder: MeteredResponder, _ context: APIContext) {
        self.upstream = upstream
        self.seconds = seconds
        self.responder = responder
        self.context = context
        queued = context.outbox.ledger(of: upstream.queue.number).queued
    }

    func settled(_ notice: SettledNotice) -> Bool { false }

    func ended(_ report: FlushReport) {
        guard isFirst else { return }
        context.readers.run { [self] in
            let remaining = try? context.outbox.queued(of: upstream.queue.number, through: report.through)
            if let error = report.error, remaining != 0 {
                return responder.send(failure(error, report, remaining: remaining), isCarriedOut: true)
            }
            send(200) { json in
                json.number("sent", report.sent)
                json.number("delivered", report.delivered)
                json.number("failed", report.failed)
                json.number("remaining", remaining)
                if let token = report.token { json.string("token", token.rawValue) }
            }
        }
    }

    /// Messages of the flush are still queued because they could not be sent.
    private func failure(_ error: AttemptError, _ report: FlushReport, remaining: Int?) -> Problem {
        var members = [
            ("sent", "\(report.sent)"), ("delivered", "\(report.delivered)"), ("failed", "\(report.failed)"),
            ("remaining", remaining.map { "\($0)" } ?? "null"), ("lastError", MessageJSON.error(error)),
        ]
        if let token = report.token { members.append(("token", JSONEscapes.quoted(token.rawValue))) }
        if let status = error.status { members.append(("upstreamStatus", "\(status)")) }
        return Problem(
            slug: .deliveryFailed, status: 502,
            detail: "Not every message could be sent: \(error.detail). The others stay queued.",
            members: members, headers: preferenceApplied)
    }

    func onHangUp(_ action: @escaping @Sendable () -> Void) { responder.onHangUp(action) }

    func finishNow() {
        if isFirst { send(202) { _ in } }
    }

    private var isFirst: Bool {
        isAnswered.withLock { isAnswered in
            defer { isAnswered = true }
            return !isAnswered
        }
    }

    private func send(_ status: Int, _ counts: (inout JSONWriter) -> Void) {
        responder.send(
            .json(
                status,
                JSONWriter.object { json in
                    json.string("upstream", upstream.name.description)
                    json.string("action", "flush")
                    json.number("queued", queued)
                    counts(&json)
                }, headers: preferenceApplied))
    }

    private var preferenceApplied: [(String, String)] { [("Preference-Applied", "wait=\(seconds)")] }
}
