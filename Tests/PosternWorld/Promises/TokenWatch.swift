import PosternCore
import PosternSimulatorKit
import PosternScenarios
import PosternTestKit
import PosternUpstream

/// The token of one upstream in one run of the gateway: as long as it is good, no other is fetched.
final class TokenWatch {
    /// The token that the gateway got last, if it was not refused since.
    private var held: (text: String, since: MonotonicInstant)?
    private let service: Service
    private unowned let world: World
    /// Whether the gateway has fetched a token for its deliveries.
    private(set) var wasFetched = false
    /// Probes that were not answered yet. Their tokens are not used, and cannot be distinguished from others.
    private var probes = 0
    private var beganAt = MonotonicInstant.distantPast

    init(_ service: Service, _ world: World) { (self.service, self.world) = (service, world) }

    func willSend(_ request: SimulatedRequest) {
        guard service.type.asksForToken(request), let held, probes == 0, !world.wasClockSet else { return }
        let age = world.time.instant - held.since
        // It is renewed before it expires.
        guard age < service.tokenLife / 2 else { return }
        world.promises.fail("a good token is not fetched again", "another was fetched after \(age)")
    }

    /// Another worker fetches a token of its own, and does not get what its predecessor has asked for.
    func workerBegan() { (held, beganAt) = (nil, world.time.instant) }

    func probeBegins() { probes += 1 }

    func probeEnds() { probes -= 1 }

    func ended(_ request: SimulatedRequest, with response: UpstreamResponse) {
        if service.type.asksForToken(request) {
            guard response.status == 200, request.sentAt.map({ $0 >= beganAt }) ?? true else { return }
            wasFetched = true
            guard probes == 0 else { return held = nil }
            held = Self.token(in: String(decoding: response.body, as: UTF8.self)).map { ($0, world.time.instant) }
        } else if [401, 403].contains(response.status), let text = held?.text,
            request.header("Authorization") == "Bearer \(text)"
        {
            held = nil
        }
    }

    private static func token(in text: String) -> String? {
        text.firstBytes(of: #""access_token":""#).map {
            String(text[$0.upperBound...].prefix { $0 != "\"" }).replacing(#"\/"#, with: "/")
        }
    }
}
