import Crypto
import Foundation
import PosternConformance
import PosternCore
import PosternSimulatorKit
import PosternTestKit
import Testing

@testable import WebhookSimulator

@Suite struct WebhookSimulatorTests {
    private static let now = Timestamp(milliseconds: 1_479_988_864_057)
    private static let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    private let time = ManualTime(now: now)
    private let simulator: WebhookSimulator

    init() { simulator = WebhookSimulator(time: time) }

    /// A good request; a value of nil takes a header away.
    private func judge(
        _ body: String = "{}", _ others: [String: String?] = [:], method: String = "POST", path: String = "/",
        poisons: [Faults.Poison] = []
    ) -> SimulatedResult {
        var headers: [String: String?] = [
            "Content-Type": "application/json", "Idempotency-Key": "k-\(body.hashValue)",
            "Content-Length": "\(body.utf8.count)",
        ]
        headers.merge(others) { $1 }
        return simulator.judge(
            SimulatedRequest(
                method: method, path: path, headers: headers.compactMap { name, value in value.map { (name, $0) } },
                body: Array(body.utf8)), poisons: poisons)
    }

    private func control(_ text: String) throws { try simulator.change(Array(text.utf8)) }

    // MARK: Golden requests

    @Test(arguments: [
        ("single", "none", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", 1), ("array", "array", secret, 2),
        ("ndjson", "ndjson", secret, 2),
    ])
    func golden_isTaken_withItsSignatureVerified(file: String, batch: String, secret: String, count: Int) throws {
        try control(#"{"batch":"\#(batch)","signingSecrets":["\#(secret)"]}"#)
        let result = simulator.judge(try SimulatedRequest(golden: "\(file).http"), poisons: [])
        #expect(result.answer == .json(200, #"{"accepted":\#(count)}"#))
        #expect(result.items.ranges.count == count)
        #expect(result.violations.isEmpty)
    }

    @Test func golden_isTaken_withTheSecretThatFollows() throws {
        let next = Data((0..<64).map { UInt8($0) }).base64EncodedString()
        try control(#"{"batch":"array","signingSecrets":["whsec_\#(next)"]}"#)
        #expect(simulator.judge(try SimulatedRequest(golden: "array.http"), poisons: []).answer?.status == 200)
    }

    @Test func golden_isTaken_wrapped() throws {
        try control(#"{"batch":"wrapped","wrapIn":"the \"items\""}"#)
        let result = simulator.judge(try SimulatedRequest(golden: "wrapped.http"), poisons: [])
        #expect(result.items.ranges.count == 2)
        #expect(result.violations.isEmpty)
    }

    // MARK: Signatures

    private func signed(_ id: String, at seconds: Int64, _ body: String, with secret: String = secret) -> [String:
        String?]
    {
        let key = SymmetricKey(data: Data(base64Encoded: String(secret.dropFirst(6)))!)
        let code = HMAC<SHA256>.authenticationCode(for: Data("\(id).\(seconds).\(body)".utf8), using: key)
        return [
            "webhook-id": id, "webhook-timestamp": "\(seconds)",
            "webhook-signature": "v1,\(Data(code).base64EncodedString())",
        ]
    }

    @Test func signature_isRequired_andVerified() throws {
        try control(#"{"signingSecrets":["\#(Self.secret)"]}"#)
        let now: Int64 = 1_479_988_864
        let good = signed("m", at: now, "{}")
        #expect(judge("{}", good).violations.isEmpty)
        #expect(judge("{}", good).answer?.status == 200)
        let other = "whsec_" + Data(repeating: 9, count: 24).base64EncodedString()
        let bad: [([String: String?], String)] = [
            ([:], "a request that is not signed"),
            (good.merging(["webhook-id": nil]) { $1 }, "a signed request without some of its three headers"),
            (good.merging(["webhook-id": "n"]) { $1 }, "a signature that does not match"),
            (signed("m", at: now, "[]"), "a signature that does not match"),
            (signed("m", at: now, "{}", with: other), "a signature that does not match"),
            (signed("m", at: now - 301, "{}"), "a webhook-timestamp that is not the time of the request"),
            (signed("m", at: now + 301, "{}"), "a webhook-timestamp that is not the time of the request"),
            (signed("m.n", at: now, "{}"), "a webhook-id that cannot be signed"),
            (good.merging(["webhook-signature": "v2,abc"]) { $1 }, "a webhook-signature of another form"),
        ]
        for (headers, violation) in bad {
            let result = judge("{}", headers)
            #expect(result.answer?.status == 401)
            #expect(result.violations.contains(violation), "\(result.violations)")
            #expect(result.items.ranges.isEmpty)
        }
        let both = "v1,\(Data(repeating: 1, count: 32).base64EncodedString()) " + (good["webhook-signature"]! ?? "")
        #expect(judge("{}", good.merging(["webhook-signature": both]) { $1 }).answer?.status == 200)
    }

    // MARK: Bodies

    static let bodies: [(batch: String, type: String, body: String, count: Int?)] = [
        ("any", "application/json", "{}", 1), ("any", "application/json", "[1,2]", 1),
        ("any", "application/x-ndjson", "1\n[2]\n", 2), ("any", "application/json", "1\n2\n", nil),
        ("none", "application/json", " null ", 1), ("none", "application/x-ndjson", "1\n", nil),
        ("array", "application/json", "[1, {}]", 2), ("array", "application/json", "{}", nil),
        ("array", "application/json", "[]", nil), ("array", "application/json", "[1]x", nil),
        ("ndjson", "application/x-ndjson", "1\n2", nil), ("ndjson", "application/x-ndjson", "1\n\n", nil),
        ("ndjson", "application/json", "1\n", nil), ("wrapped", "application/json", #"{"items":[1,2,3]}"#, 3),
        ("wrapped", "application/json", #"{"items":[]}"#, nil), ("wrapped", "application/json", #"{"items":1}"#, nil),
        ("wrapped", "application/json", #"{"other":[1]}"#, nil), ("any", "application/json", "", nil),
        ("wrapped", "application/json", #"{"items":[1],"more":2}"#, nil), ("any", "application/json", "{\"a\":}", nil),
    ]

    @Test(arguments: bodies)
    func body_isReadAsConfigured(batch: String, type: String, body: String, count: Int?) throws {
        try control(#"{"batch":"\#(batch)"}"#)
        let result = judge(body, ["Content-Type": type])
        #expect(result.answer?.status == (count == nil ? 400 : 200))
        #expect(result.items.ranges.count == count ?? 0)
        #expect(result.violations.isEmpty == (count != nil))
    }

    static let heads: [(name: String, value: String?, status: Int)] = [
        ("Content-Type", "text/plain", 415), ("Content-Type", nil, 415), ("Idempotency-Key", nil, 400),
        ("Idempotency-Key", "", 400),
    ]

    @Test(arguments: heads) func head_isRefused_andIsAViolation(name: String, value: String?, status: Int) {
        let result = judge("{}", [name: value])
        #expect(result.answer?.status == status)
        #expect(result.violations.count == 1)
    }

    @Test(arguments: ["Content-Encoding", "Transfer-Encoding", "Expect"])
    func framing_isAViolation(name: String) {
        #expect(judge("{}", [name: "x"]).violations == ["a request with \(name)"])
    }

    @Test(arguments: ["GET", "DELETE"]) func otherMethods_areNotAllowed(method: String) {
        #expect(judge("{}", method: method).answer?.status == 405)
        #expect(!judge("{}", method: method).violations.isEmpty)
        #expect(judge("{}", method: "PATCH").answer?.status == 200)
    }

    @Test func paths_areAny_orThoseOfTheControl() throws {
        #expect(judge("1", path: "/a/b").answer?.status == 200)
        try control(#"{"paths":["/a"],"status":202}"#)
        #expect(judge("2", path: "/a").answer?.status == 202)
        #expect(judge("3", path: "/b").answer?.status == 404)
        #expect(judge("3", path: "/b").violations == ["POST /b: there is no such endpoint"])
    }

    // MARK: Repeated requests

    @Test func repeatedRequest_isAnsweredAgain_andNotTakenTwice() {
        let key = ["Idempotency-Key": "one"] as [String: String?]
        #expect(judge("[1]", key).items.ranges.count == 1)
        let again = judge("[1]", key)
        #expect(again.answer?.status == 200)
        #expect(again.items.ranges.isEmpty)
        #expect(again.violations.isEmpty)
        for other in [judge("[2]", key), judge("[1]", key, path: "/x"), judge("[1]", key, method: "PUT")] {
            #expect(other.answer?.status == 422)
            #expect(other.violations == ["an Idempotency-Key of another request"])
        }
    }

    @Test func refusedRequest_doesNotUseItsKey() {
        let key = ["Idempotency-Key": "one"] as [String: String?]
        let poison = Faults.Poison(field: "a", value: "bad", answer: .refusal)
        #expect(judge(#"{"a":"bad"}"#, key, poisons: [poison]).answer?.status == 400)
        #expect(judge(#"{"a":"good"}"#, key, poisons: [poison]).items.ranges.count == 1)
    }

    // MARK: Tokens

    /// `login`: nil for a request without `Authorization`.
    private func tokenRequest(_ login: String?, _ body: String = "grant_type=client_credentials&scope=a%20b")
        -> SimulatedResult
    {
        judge(
            body,
            [
                "Content-Type": "application/x-www-form-urlencoded", "Idempotency-Key": nil,
                "Authorization": login.map { "Basic \(Data($0.utf8).base64EncodedString())" },
            ])
    }

    @Test func token_isIssued_checked_andExpires() throws {
        try control(#"{"clientId":"a:b","clientSecret":"c d","scope":"a b","tokenLifeSeconds":100}"#)
        #expect(judge("1", ["Authorization": nil]).answer?.status == 200)
        #expect(tokenRequest("a:b:c d").answer?.status == 401)
        #expect(tokenRequest("a%3Ab:c%20d", "grant_type=password").answer?.status == 400)
        let answer = try #require(tokenRequest("a%3Ab:c%20d").answer)
        #expect(answer.status == 200)
        let token = try #require(JSONTree.read(answer.body)?.value["access_token"]?.string)
        #expect(judge("2", ["Authorization": "Bearer \(token)"]).answer?.status == 200)
        #expect(judge("3", ["Authorization": "Bearer other"]).answer?.status == 401)
        #expect(judge("3", ["Authorization": nil]).answer?.status == 401)
        time.advance(by: .seconds(101))
        #expect(judge("4", ["Authorization": "Bearer \(token)"]).answer?.status == 401)
    }

    @Test func tokenRequest_hasItsCredentials_inOnePlaceOnly() throws {
        let inForm = "grant_type=client_credentials&client_id=a&client_secret=b+c"
        #expect(tokenRequest("a:b%20c", inForm).violations == ["credentials in the header and in the form"])
        #expect(tokenRequest(nil).violations == ["a token request without credentials"])
        try control(#"{"clientId":"a","clientSecret":"b c"}"#)
        #expect(tokenRequest(nil, inForm).answer?.status == 200)
        #expect(tokenRequest(nil, inForm.replacing("b+c", with: "b")).answer?.status == 401)
        for (expected, header, form) in [("basic", 200, 401), ("post", 401, 200)] {
            try control(#"{"clientAuthentication":"\#(expected)"}"#)
            #expect(tokenRequest("a:b%20c").answer?.status == header)
            #expect(tokenRequest(nil, inForm).answer?.status == form)
        }
    }

    @Test func tokenRequest_hasEachParameter_once() throws {
        try control(#"{"tokenParameters":["audience=https://a/?b=c"]}"#)
        let body = "grant_type=client_credentials&audience=https%3A%2F%2Fa%2F%3Fb%3Dc"
        #expect(tokenRequest("a:b").answer?.status == 400)
        #expect(tokenRequest("a:b", body).violations.isEmpty)
        #expect(
            tokenRequest("a:b", body + "&audience=other").violations.last == "the parameter audience more than once")
    }

    @Test func authorization_isTheOneOfTheControl() throws {
        try control(#"{"authorization":"Bearer seven"}"#)
        #expect(judge("1", ["Authorization": "Bearer seven"]).answer?.status == 200)
        #expect(judge("2", ["Authorization": "Bearer eight"]).answer?.status == 401)
        #expect(judge("2", ["Authorization": nil]).violations.isEmpty)
    }

    @Test func control_isRefused_whenItIsNotValid() {
        for (text, problem) in [
            (#"{"status":600}"#, "status: must be from 200 to 499"),
            (#"{"signingSecrets":["x"]}"#, "signingSecrets: each must be whsec_ followed by 24 to 64 bytes in Base64"),
        ] {
            #expect(throws: ControlProblem(problem)) { try control(text) }
        }
    }
}
