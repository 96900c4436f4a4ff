import PosternCore
import PosternUpstream

/// Whether a request of an SDK is let in, decided in the transaction that stores what it brings: first its session, then its
/// content.
struct SDKEntry: Sendable {
    let settings: CurioSettings
    let request: CurioSDKRequest
    let receivedAt: Timestamp
    /// Why nothing of the request can be taken.
    var fault: String?

    func changes(_ state: any UpstreamState) throws(AcceptanceError) -> [StateChange] {
        let session = try session(in: state)
        if let fault { throw AcceptanceError(.invalidPayload, fault) }
        let isAlone = request.visitor.map { state.queued(inLane: $0, atMost: 1) == 0 } ?? false
        let arrival = SDKArrival(
            device: request.call == .batch ? session?.device ?? request.device : request.device,
            timeoutMinutes: request.call == .batch ? session?.timeoutMinutes : request.timeoutMinutes, isAlone: isAlone)
        guard var session, let code = request.session, session.isLive(at: receivedAt, settings) else {
            return [.draft(arrival)]
        }
        session.touchedAt = receivedAt
        return [session.change(of: code, at: receivedAt, settings), .draft(arrival)]
    }

    /// The session that the request quotes; nil if it begins one, or quotes none.
    func session(in state: any UpstreamState) throws(AcceptanceError) -> Session? {
        if request.call == .offline { return nil }
        let begins = request.call == .report(.sessionStart)
        guard let visitor = request.visitor, let code = request.session, let session = state.session(code) else {
            if begins { return nil }
            throw Self.unknown
        }
        let isLive = session.isLive(at: receivedAt, settings)
        guard session.isOf(visitor), session.hasStarted, !session.isEnded, isLive || !needsLiveSession else {
            throw Self.unknown
        }
        return session
    }

    /// Also to begin a session again, which is a repeat.
    private var needsLiveSession: Bool { request.call.needsLiveSession || request.call.needsAPIKey }

    private static let unknown = AcceptanceError(
        .unknownSession, "no live session of this visitor has this sessionCode")
}

/// What the items of a request of an SDK have in common, while they are stored.
final class SDKArrival: StateChange.Draft, @unchecked Sendable {
    // @unchecked: it is constant.
    let device: Device
    let timeoutMinutes: Int?
    /// Whether nothing of the visitor was queued before.
    let isAlone: Bool

    init(device: Device, timeoutMinutes: Int?, isAlone: Bool) {
        (self.device, self.timeoutMinutes, self.isAlone) = (device, timeoutMinutes, isAlone)
        super.init()
    }
}
