import PosternConformance
import PosternCore
import PosternSimulatorKit
import PosternTestKit

@testable import SeerSimulator

/// Sends requests to a simulator of Seer as a gateway would, with the changes that a test makes.
struct SeerClient: SimulatorClient {
    typealias Headers = [(name: String, value: String)]

    let time = ManualTime()
    let simulator: SeerSimulator
    /// The time that a request and its response take; nil for none.
    var network: (there: Duration, back: Duration)?

    init(seed: UInt64 = 0) { simulator = SeerSimulator(seed: seed, time: time) }

    func judge(
        _ method: String = "POST", _ path: String, query: String? = nil, _ headers: Headers, _ body: [UInt8],
        poisons: [Faults.Poison] = [], isLost: Bool = false
    ) -> SimulatedResult {
        let length = headers.contains { $0.name == "Content-Length" } ? [] : [("Content-Length", "\(body.count)")]
        var request = SimulatedRequest(
            method: method, path: path, query: query, headers: (headers + length).filter { !$0.value.isEmpty },
            body: body, isAnswerLost: isLost)
        if let network {
            request.sentAt = time.instant + (.zero - network.there)
            request.answeredAt = time.instant + network.back
        }
        return simulator.judge(request, poisons: poisons)
    }

    // MARK: Tokens

    static let tokenHeaders: Headers = [
        ("Authorization", SeerVectors.basic), ("Content-Type", "application/x-www-form-urlencoded"),
    ]

    /// A header with an empty value is not sent.
    func askForToken(
        _ changed: Headers = [], query: String? = nil, body: String = "grant_type=client_credentials",
        method: String = "POST"
    ) -> SimulatedResult {
        judge(
            method, "/oauth/access_token", query: query, Self.changing(Self.tokenHeaders, changed), Array(body.utf8))
    }

    func token(query: String? = nil) -> String {
        askForToken(query: query).json["access_token"].string ?? "none"
    }

    // MARK: Reports

    func report(
        _ path: String, _ body: String, token: String, _ changed: Headers = [], query: String? = nil,
        method: String = "POST", poisons: [Faults.Poison] = [], isLost: Bool = false
    ) -> SimulatedResult {
        report(
            path, Array(body.utf8), token: token, changed, query: query, method: method, poisons: poisons,
            isLost: isLost)
    }

    func report(
        _ path: String, _ body: [UInt8], token: String, _ changed: Headers = [], query: String? = nil,
        method: String = "POST", poisons: [Faults.Poison] = [], isLost: Bool = false
    ) -> SimulatedResult {
        let headers: Headers = [
            ("Authorization", "Bearer \(token)"), ("Accept", "application/json"), ("Content-Type", "application/json"),
        ]
        return judge(
            method, path, query: query, Self.changing(headers, changed), body, poisons: poisons, isLost: isLost)
    }

    private static func changing(_ headers: Headers, _ changed: Headers) -> Headers {
        headers.filter { header in !changed.contains { $0.name == header.name } } + changed
    }
}
