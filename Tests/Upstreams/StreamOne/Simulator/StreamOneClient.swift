import Crypto
import Foundation
import PosternConformance
import PosternCore
import PosternSimulatorKit
import PosternTestKit
import Testing

@testable import StreamOneSimulator

/// The simulator at 1450000000, and a client that writes and signs requests without help from it.
struct StreamOneClient: SimulatorClient {
    static let application = "9yC-4pQxT_2a"
    static let applicationKey = "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu"
    static let user = "Cmv8fnKfjF2l"
    static let userKey = "abcdefghijklmnopqrstuvwxyzABCDEF"
    /// The lowest cost that bcrypt allows, for tests that log in often.
    static let quickSalt = "$2y$04$gmdjitkypwyd4d1mkeefiv"
    /// The hash of `password` with that salt.
    static let quickForm = Password.bcrypt(Password.md5("password"), salt: quickSalt) ?? ""

    let time = ManualTime(now: Timestamp(milliseconds: 1_450_000_000_000))
    let simulator: StreamOneSimulator
    /// The time that a request takes to arrive; nil for none.
    var delay: Duration?

    init(_ control: String = "{}") {
        simulator = StreamOneSimulator(seed: 1, time: time)
        #expect(self.control(control)?.status == 200)
    }

    // MARK: Requests

    /// Sends a request unchanged.
    func send(
        _ path: String, _ query: String?, _ body: String = "", method: String = "POST",
        type: String? = "application/x-www-form-urlencoded", headers: [(name: String, value: String)] = [],
        poisons: [Faults.Poison] = [], isLost: Bool = false
    ) -> SimulatedResult {
        var all = headers
        if let type { all.append(("Content-Type", type)) }
        if !headers.contains(where: { $0.name == "No-Length" }) { all.append(("Content-Length", "\(body.utf8.count)")) }
        var request = SimulatedRequest(
            method: method, path: path, query: query, headers: all, body: Array(body.utf8), isAnswerLost: isLost)
        request.sentAt = delay.map { time.instant + (.zero - $0) }
        return simulator.judge(request, poisons: poisons)
    }

    /// Sends `parameters`, followed by their signature.
    func signed(
        _ name: String, _ parameters: String, _ body: String, key: String, poisons: [Faults.Poison] = [],
        isLost: Bool = false
    ) -> SimulatedResult {
        let signature = Self.signature(of: "/api/\(name)?\(parameters)&\(body)", key: key)
        return send("/api/\(name)", "\(parameters)&signature=\(signature)", body, poisons: poisons, isLost: isLost)
    }

    /// A call as the application, in a session if there is one. `scope` is e.g. `account=A1&`.
    func call(
        _ name: String, _ body: String = "", scope: String = "", session: (id: String, key: String)? = nil,
        poisons: [Faults.Poison] = [], isLost: Bool = false
    ) -> SimulatedResult {
        let id = session.map { "&session=\($0.id)" } ?? ""
        return signed(
            name,
            "api=3&format=json&authentication_type=application&\(scope)timestamp=\(now)&application=\(Self.application)\(id)",
            body, key: Self.applicationKey + (session?.key ?? ""), poisons: poisons, isLost: isLost)
    }

    func callAsUser(_ name: String, _ body: String = "", scope: String = "") -> SimulatedResult {
        signed(
            name, "api=3&format=json&authentication_type=user&\(scope)timestamp=\(now)&user=\(Self.user)", body,
            key: Self.userKey)
    }

    var now: Int64 { time.now.milliseconds / 1000 }

    // MARK: Logging in

    func challenge(user: String = "jan%40example.nl", address: String = "10.0.0.1") -> (
        judged: SimulatedResult, text: String
    ) {
        let judged = call("session/initialize", "user=\(user)&userip=\(address)")
        return (judged, judged.json["body"]["challenge"].string ?? "")
    }

    func create(challenge: String, form: String = Self.quickForm, hash: String? = nil) -> SimulatedResult {
        let response = Self.response(form: form, challenge: challenge).replacing("+", with: "%2B").replacing(
            "/", with: "%2F")
        return call(
            "session/create", "challenge=\(challenge)&response=\(response)" + (hash.map { "&v2hash=\($0)" } ?? ""))
    }

    func login() throws -> (id: String, key: String) {
        let body = create(challenge: challenge().text).json["body"]
        return (try #require(body["id"].string), try #require(body["key"].string))
    }

    static func signature(of text: String, key: String) -> String {
        HMAC<Insecure.SHA1>.authenticationCode(
            for: Array(text.utf8), using: SymmetricKey(data: Array(key.utf8))
        ).hexadecimal
    }

    static func response(form: String, challenge: String) -> String {
        let kept = SHA256.hash(data: Array(form.utf8)).hexadecimal
        let mask = SHA256.hash(data: Array((kept + challenge).utf8)).hexadecimal
        return Data(zip(mask.utf8, form.utf8).map { $0 ^ $1 }).base64EncodedString()
    }
}

extension SimulatedResult {
    /// The status in a response with HTTP 200.
    var apiStatus: Int? { answer?.status == 200 ? json["header"]["status"].int : nil }
    /// The call as `/received` shows it.
    var call: String? { items.ranges.first.map { String(decoding: items.text[$0], as: UTF8.self) } }
}
