import PosternConformance
import PosternCore
import PosternSimulatorKit
import PosternTestKit
import Testing

@testable import SeerSimulator

private typealias V = SeerVectors

@Suite struct SeerSimulatorTests {
    private let client = SeerClient()

    // MARK: Examples and vectors

    @Test func tokenRequest_ofTheExample_isAnsweredWithATokenAndItsDateInMilliseconds() throws {
        let judged = client.askForToken(query: "apikey=KEY123")
        #expect(judged.violations.isEmpty)
        #expect(judged.answer?.status == 200)
        #expect(judged.items.ranges.isEmpty)
        #expect(judged.json["expiration_date"].int == Int(client.time.now.milliseconds) + 3_600_000)
        #expect(judged.json["token_type"].string == "BearerToken")
        let token = try #require(judged.json["access_token"].string)
        #expect(client.report("/tincan", V.t1, token: token, query: "apikey=KEY123").answer?.status == 200)
    }

    @Test func digitsAndEscapes_areShown_asTheyCame() {
        let item =
            #"{"a":[9007199254740993,18446744073709551617,0.1234567890123456789012345,0.95,1e-7,1234567890123456.78,true,1],"b":"zo\u00eb \/"}"#
        client.control(#"{"customPaths":["c"]}"#)
        #expect(client.report("/c", item, token: client.token()).texts == [item])
    }

    @Test func identity_isTextAndKind() {
        let token = client.token()
        let batch = client.report("/sactivity/batch", V.batch([V.a1, V.a2, V.a1]), token: token).items.identities
        #expect(batch[0] == batch[2])
        #expect(Set(batch).count == 2)
        #expect(client.report("/sactivity", V.a1, token: token).items.identities == [batch[0]])
        #expect(client.report("/sinstrumentation", V.a1, token: token).items.identities != [batch[0]])
    }

    // MARK: Endpoints and queries

    @Test(arguments: [
        "/", "/sactivity/", "//sactivity", "/sinstrumentation/batch", "/tincan/batch/", "/Tincan", "/customendpoint",
        "/customendpoint/batch", "/oauth/access_token/", "/p/tincan", "/elsewhere",
    ]) func otherPath_isNotFound(path: String) {
        let judged = client.report(path, V.t1, token: client.token())
        #expect(judged.answer?.status == 404)
        #expect(judged.violations == ["POST \(path): there is no such endpoint"])
    }

    @Test(arguments: ["GET", "PUT", "HEAD", "post"]) func otherMethod_isNotAllowed(method: String) {
        for judged in [
            client.askForToken(method: method), client.report("/tincan", V.t1, token: client.token(), method: method),
        ] {
            #expect(judged.answer?.status == 405)
            #expect(judged.answer?.headers.last?.value == "POST")
            #expect(judged.violations.count == 1)
        }
    }

    static let queries: [(query: String?, status: Int, violations: [String])] = [
        ("apikey=a%20b%26c", 200, []),
        ("apikey=a+b%26c", 200, ["an apikey that is not percent-encoded"]),
        ("apikey=%61%20b%26c", 200, []),
        ("apikey=a b%26c", 200, ["an apikey that is not percent-encoded"]),
        ("x=1&apikey=a%20b%26c", 200, ["a query other than one apikey"]),
        ("apikey=a%20b%26c&x=1", 200, ["a query other than one apikey"]),
        ("apikey=a%20b&c", 403, ["a query other than one apikey"]),
        ("apikey=K1", 403, []),
        ("apikey=", 403, ["an empty apikey"]),
        ("apikey=%zz%2", 403, ["an apikey that is not percent-encoded"]),
        ("apikey=%ff", 403, ["an apikey that is not percent-encoded"]),
        (nil, 403, ["a request without the apikey"]),
        ("", 403, ["a query other than one apikey", "a request without the apikey"]),
        ("Apikey=a%20b%26c", 403, ["a query other than one apikey", "a request without the apikey"]),
    ]

    @Test(arguments: queries) func apiKey_thatIsSet_isWantedOnEveryURL(
        query: String?, status: Int, violations: [String]
    ) {
        client.control(#"{"apiKey":"a b&c"}"#)
        let token = client.token(query: "apikey=a%20b%26c")
        for judged in [client.askForToken(query: query), client.report("/tincan", V.t1, token: token, query: query)] {
            #expect(judged.answer?.status == status)
            #expect(judged.violations == violations)
        }
    }

    @Test func apiKey_thatIsNotSet_isTheSameInEveryRequest() {
        let token = client.token(query: "apikey=K1")
        #expect(client.report("/tincan", V.t1, token: token, query: "apikey=K1").violations.isEmpty)
        for query in [nil, "apikey=K2"] {
            let judged = client.report("/tincan", V.t1, token: token, query: query)
            #expect(judged.answer?.status == 200)
            #expect(judged.violations == ["an apikey other than in the first request"])
        }
        client.control(#"{"apiKey":""}"#)
        #expect(client.report("/tincan", V.t1, token: token).violations.isEmpty)
        #expect(!client.report("/tincan", V.t1, token: token, query: "apikey=K1").violations.isEmpty)
    }

    @Test func customPath_mayHaveAQueryOfItsOwn() {
        client.control(#"{"customPaths":["//a/b?v=1/","c?"]}"#)
        let token = client.token(query: "apikey=K1")
        func violations(_ query: String?) -> [String] {
            client.report("/a/b", "{}", token: token, query: query).violations
        }
        #expect(violations("v=1/&apikey=K1") == [])
        #expect(violations("v=1/") == ["an apikey other than in the first request"])
        #expect(violations("v=1/?apikey=K1").contains("a query that does not begin with the custom path's own"))
        #expect(violations("v=1/&v=1/&apikey=K1") == ["a query other than one apikey"])
        #expect(client.report("/c", "{}", token: token, query: "&apikey=K1").violations.isEmpty)
    }

    // MARK: Token requests

    static let tokenRequests: [(changed: SeerClient.Headers, body: String, status: Int, violations: [String])] = [
        ([("Accept", "*/*")], "grant_type=client_credentials", 200, []),
        (
            [("Accept", "application/json")], "grant_type=client_credentials", 200, ["an Accept on a token request"]
        ),
        (
            [("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")], "grant_type=client_credentials",
            400,
            ["a token request whose Content-Type is not application/x-www-form-urlencoded"]
        ),
        (
            [("Content-Type", "")], "grant_type=client_credentials", 400,
            ["a token request whose Content-Type is not application/x-www-form-urlencoded"]
        ),
        ([], "", 400, ["a token request whose body is not grant_type=client_credentials"]),
        (
            [], "grant_type=client_credentials&client_id=x", 400,
            ["a token request whose body is not grant_type=client_credentials"]
        ),
        ([("Expect", "100-continue")], "grant_type=client_credentials", 200, ["a request with Expect"]),
        ([("Content-Encoding", "gzip")], "grant_type=client_credentials", 200, ["a request with Content-Encoding"]),
        (
            [("Transfer-Encoding", "chunked"), ("Content-Length", "")], "grant_type=client_credentials", 200,
            ["a request with Transfer-Encoding", "a request without Content-Length"]
        ),
    ]

    @Test(arguments: tokenRequests) func tokenRequest_isChecked(
        changed: SeerClient.Headers, body: String, status: Int, violations: [String]
    ) {
        let judged = client.askForToken(changed, body: body)
        #expect(judged.answer?.status == status)
        #expect(judged.violations == violations)
    }

    /// Invalid encodings of `c:s`, `Zoë:s`, and others.
    @Test(arguments: [
        "", "Basic", "Basic ", "basic Yzpz", "Bearer Yzpz", "Basic  Yzpz", "Basic Yzpz ", "Basic Yzpz,Basic Yzpz",
        "Basic Y3M=", "Basic Yzpzcw", "Basic Yzpzcx==", "Basic Yzpz\nYzpz", "Basic Wm/rOnM=", "Basic Wm_DqzpzX-E=",
        "Basic ====", "Basic Yzpz====",
    ]) func credentials_areRefused_whenTheyAreNotBasic(authorization: String) {
        let judged = client.askForToken([("Authorization", authorization)])
        #expect(judged.answer?.status == 401)
        #expect(judged.violations == ["a token request without Basic credentials"])
        #expect(!"\(judged)".contains("Yzpz"))
    }

    @Test(arguments: [("Basic Wm/Dqzpz", "Zoë", "s"), ("Basic Yzo=", "c", ""), ("Basic OnM6dA==", "", "s:t")])
    func login_isRead_asUTF8_upToTheFirstColon(authorization: String, id: String, secret: String) throws {
        let login = try #require(Login(authorization: authorization))
        #expect(login.clientId == id)
        #expect(login.clientSecret == secret)
    }

    @Test func credentials_mustBeThoseThatAreSet() {
        client.control(#"{"clientId":"gw-client","clientSecret":"gw:secret/1"}"#)
        #expect(client.askForToken().answer?.status == 200)
        for change in [#"{"clientId":"gw"}"#, #"{"clientId":"","clientSecret":"no"}"#] {
            client.control(change)
            let judged = client.askForToken()
            #expect(judged.answer == Answer.badLogin)
            #expect(judged.violations.isEmpty)
        }
    }

    @Test func credentials_thatAreNotSet_areTheSameInEveryRequest() {
        #expect(client.askForToken().violations.isEmpty)
        let other = client.askForToken([("Authorization", "Basic Yzpz")])
        #expect(other.answer?.status == 200)
        #expect(other.violations == ["credentials other than in the first request"])
        client.control(#"{"clientId":""}"#)
        #expect(client.askForToken([("Authorization", "Basic Yzpz")]).violations.isEmpty)
    }

    // MARK: Reports

    static let reports: [(changed: SeerClient.Headers, status: Int, violations: [String])] = [
        ([("Accept", "")], 200, ["a report whose Accept is not application/json"]),
        ([("Accept", "*/*")], 200, ["a report whose Accept is not application/json"]),
        (
            [("Content-Type", "application/json; charset=utf-8")], 200,
            ["a report whose Content-Type is not application/json"]
        ),
        ([("Content-Type", "Application/JSON")], 200, ["a report whose Content-Type is not application/json"]),
        ([("Content-Type", "text/json")], 415, ["a report whose Content-Type is not application/json"]),
        ([("Content-Type", "")], 415, ["a report whose Content-Type is not application/json"]),
        ([("Content-Encoding", "gzip")], 415, ["a request with Content-Encoding"]),
        ([("Content-Encoding", "identity")], 200, ["a request with Content-Encoding"]),
        ([("Expect", "100-continue")], 200, ["a request with Expect"]),
        (
            [("Transfer-Encoding", "chunked"), ("Content-Length", "")], 200,
            ["a request with Transfer-Encoding", "a request without Content-Length"]
        ),
        ([("Authorization", "")], 401, ["a report without Authorization"]),
        ([("Authorization", "Bearer ")], 401, ["an Authorization that is not a Bearer token"]),
        ([("Authorization", V.basic)], 401, ["an Authorization that is not a Bearer token"]),
        ([("Authorization", "bearer x")], 401, ["an Authorization that is not a Bearer token"]),
        ([("Authorization", "Bearer  x")], 401, ["an Authorization that is not a Bearer token"]),
        ([("Authorization", "BearerToken x")], 401, ["an Authorization that is not a Bearer token"]),
        ([("Authorization", "Bearer madeUp")], 401, ["a token that was never issued"]),
    ]

    @Test func refusedToken_mayBeUsed_untilTheGatewayHearsOfIt() {
        let token = client.token()
        client.control(#"{"revokeNow":true}"#)
        for isLost in [true, true, false] {
            #expect(client.report("/tincan", V.t1, token: token, isLost: isLost).violations.isEmpty)
            client.time.advance(by: .seconds(6))
        }
        let violations = client.report("/tincan", V.t1, token: token).violations
        #expect(violations == ["a token that was refused more than five seconds before"])
    }

    @Test func refusedToken_isJudgedByWhenItWasSent_onASlowNetwork() {
        var client = client
        let token = client.token()
        client.control(#"{"revokeNow":true}"#)
        client.network = (there: .zero, back: .seconds(10))
        #expect(client.report("/tincan", V.t1, token: token).violations.isEmpty)
        client.time.advance(by: .seconds(30))
        client.network = (there: .seconds(15), back: .zero)
        #expect(client.report("/tincan", V.t1, token: token).violations.isEmpty)
        client.network = (there: .seconds(14), back: .zero)
        let violations = client.report("/tincan", V.t1, token: token).violations
        #expect(violations == ["a token that was refused more than five seconds before"])
    }

    @Test(arguments: reports) func report_isChecked(changed: SeerClient.Headers, status: Int, violations: [String]) {
        let judged = client.report("/tincan", V.t1, token: client.token(), changed)
        #expect(judged.answer?.status == status)
        #expect(judged.violations == violations)
        #expect(judged.texts == (status == 200 ? [V.t1] : []))
    }

    static let bodies: [(path: String, body: String, status: Int, violation: String)] = [
        ("/tincan", "", 400, "a body that is not JSON"),
        ("/tincan", "\u{feff}\(V.t1)", 400, "a body that is not JSON"),
        ("/tincan", "\(V.t1)x", 400, "a body that is not JSON"),
        ("/tincan", String(V.t1.dropLast()), 400, "a body that is not JSON"),
        ("/tincan", V.t1.replacing("sally", with: "sal\u{1}ly"), 400, "a body that is not JSON"),
        ("/tincan", " \(V.t1)", 200, "white space around the object"),
        ("/tincan", "\(V.t1)\n", 200, "white space around the object"),
        ("/tincan", V.batch([V.t1]), 400, "an item the rules refuse"),
        ("/tincan/batch", "", 400, "a body that is not JSON"),
        ("/tincan/batch", V.batch([V.t1]) + "]", 400, "a body that is not JSON"),
        ("/tincan/batch", #"{"activities":[\#(V.t1)"#, 400, "a body that is not JSON"),
        ("/tincan/batch", #"{"activities":[\#(V.t1),]}"#, 400, "a body that is not JSON"),
        ("/tincan/batch", "[\(V.t1)]", 400, "a batch that is not an object"),
        ("/tincan/batch", V.t1, 400, "a batch without exactly one array called activities"),
        ("/tincan/batch", "{}", 400, "a batch without exactly one array called activities"),
        ("/tincan/batch", #"{"activities":\#(V.t1)}"#, 400, "a batch without exactly one array called activities"),
        (
            "/tincan/batch", #"{"activities":[],"activities":[]}"#, 400,
            "a batch without exactly one array called activities"
        ),
        ("/tincan/batch", V.batch([]), 400, "an empty batch"),
        ("/tincan/batch", #"{"activities":[ ]}"#, 400, "an empty batch"),
        ("/tincan/batch", V.batch([V.t1, V.a1]), 400, "an item the rules refuse"),
        ("/sactivity/batch", V.batch([V.a1, V.t1]), 400, "an item the rules refuse"),
        ("/sactivity/batch", V.batch([V.a1, "[]"]), 400, "an item the rules refuse"),
        ("/tincan/batch", V.batch([V.t1]) + " ", 200, "bytes in a batch besides items and wrapper"),
        ("/tincan/batch", " " + V.batch([V.t1]), 200, "bytes in a batch besides items and wrapper"),
        ("/tincan/batch", V.batch([V.t1, " \(V.t1)"]), 200, "bytes in a batch besides items and wrapper"),
        ("/tincan/batch", #"{ "activities":[\#(V.t1)]}"#, 200, "bytes in a batch besides items and wrapper"),
        ("/tincan/batch", #"{"\u0061ctivities":[\#(V.t1)]}"#, 200, "bytes in a batch besides items and wrapper"),
        ("/tincan/batch", #"{"activities":[\#(V.t1)],"count":1}"#, 200, "a member next to activities in a batch"),
        ("/tincan/batch", #"{"id":7,"activities":[\#(V.t1)]}"#, 200, "a member next to activities in a batch"),
    ]

    @Test(arguments: bodies) func body_isChecked(path: String, body: String, status: Int, violation: String) {
        let judged = client.report(path, body, token: client.token())
        #expect(judged.answer?.status == status)
        #expect(judged.violations == [violation])
        #expect(judged.texts.isEmpty == (status != 200))
    }

    @Test func whiteSpaceInsideAnItem_isTheApps() {
        let item = V.t1.replacing(",", with: " ,\n")
        #expect(client.report("/tincan/batch", V.batch([item, V.t1]), token: client.token()).violations.isEmpty)
    }

    @Test func body_thatIsNoUTF8_isRefused() {
        let body = Array(V.t1.utf8.map { $0 == UInt8(ascii: "y") ? 0xff : $0 })
        let judged = client.report("/tincan", body, token: client.token())
        #expect(judged.answer?.status == 400)
        #expect(judged.violations == ["a body that is not UTF-8"])
    }

    /// Any cut, any changed byte, and a few thousand brackets.
    @Test func judging_survives_whateverComes() {
        client.control(#"{"customPaths":["c"]}"#)
        let token = client.token()
        let batch = Array(V.batch([V.a2, V.t1]).utf8)
        for path in ["/tincan/batch", "/sactivity/batch", "/tincan", "/c", "/oauth/access_token"] {
            for index in batch.indices {
                _ = client.report(path, Array(batch[..<index]), token: token)
                for byte in [0, 0x22, 0x5c, 0x7b, 0x5d, 0xff] as [UInt8] {
                    var changed = batch
                    changed[index] = byte
                    _ = client.report(path, changed, token: token)
                    _ = client.control(String(decoding: changed, as: UTF8.self))
                }
            }
            let deep = String(repeating: "[", count: 5000)
            #expect(client.report(path, #"{"activities":\#(deep)"#, token: token).answer?.status == 400)
        }
    }

    // MARK: Poison

    @Test(arguments: [
        (Faults.Poison.Answer.failure, 500), (.tooLarge, 413), (.refusal, 400), (.naming, 400),
    ]) func poison_refusesTheWholeRequest_byAMemberAtAnyDepth(answer: Faults.Poison.Answer, status: Int) {
        let token = client.token()
        let poisons = [Faults.Poison(field: "/object/id", value: "objectId", answer: answer)]
        let judged = client.report("/sactivity/batch", V.batch([V.a2, V.a1]), token: token, poisons: poisons)
        #expect(judged.answer?.status == status)
        #expect(judged.violations.isEmpty)
        #expect(judged.texts.isEmpty)
        #expect(client.report("/sactivity", V.a2, token: token, poisons: poisons).answer?.status == 200)
    }

    @Test func faultStatus_isAnsweredInJSON_andARedirectLeadsElsewhere() {
        #expect(client.simulator.answer(status: 503) == Answer.json(503, #"{"error":"simulated"}"#))
        #expect(client.simulator.answer(status: 307).headers.last?.value == "/elsewhere")
    }
}
