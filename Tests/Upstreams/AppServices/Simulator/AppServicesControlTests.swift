import PosternConformance
import PosternSimulatorKit
import PosternTestKit
import Testing

@testable import AppServicesSimulator

private let u1 = "ffffffff54d00d1e0b07c0de5eed0011"
private let d1 = "c0ffee11-2233-4455-8677-8899aabbccdd"

@Suite struct AppServicesControlTests {
    // MARK: Asking

    @Test func control_showsTheSettings() throws {
        let client = AppServicesClient(#"{"tokens":[{"token":"t","user":"Ann","valid":false}],"style":"401"}"#)
        let answer = try #require(client.control())
        #expect(answer.status == 200)
        #expect(
            answer.text.hasPrefix(
                #"{"answers":[],"apiKey":null,"application":null,"basePath":null,"bindTokens":false,"#
                    + #""errorStatus":null,"errorStyle":"usergrid","exclusiveDevices":true,"graceMilliseconds":100,"#
                    + #""invalidateRate":0,"monitoring":{"appName":"campus-dev","#))
        #expect(
            answer.text.hasSuffix(
                #""notFoundError":"service_resource_not_found","onlyDeclaredTokens":false,"onlyExistingGroups":false,"#
                    + #""organization":null,"seed":7,"style":"401","tokenLifeSeconds":0,"#
                    + #""tokens":[{"provider":null,"token":"t","user":"ann","valid":false}]}"#))
        #expect(client.control("{}")?.text == answer.text)
        #expect(client.control(method: "PUT")?.status == 405)
        #expect(client.control("", at: "/control/state")?.status == 405)
        #expect(client.control(at: "/control/x") == nil)
    }

    static let problems: [(String, String)] = [
        ("", "the body is not a JSON object"), ("[]", "the body is not a JSON object"),
        ("{} x", "the body is not a JSON object"),
        (#"{"colour":1}"#, #"unknown member "colour"; known are answers, apiKey, application, basePath,"#),
        (#"{"style":404}"#, "style: "), (#"{"style":"x"}"#, "style: must be one of 401, 404"),
        (#"{"notFoundError":"x"}"#, "notFoundError: must be one of service_resource_not_found, entity_not_found"),
        (#"{"errorStyle":"x"}"#, "errorStyle: must be one of usergrid, fault, empty, html, errorIn200, noEntities,"),
        (#"{"errorStatus":99}"#, "errorStatus: must be from 100 to 599"),
        (#"{"organization":5}"#, "organization: "), (#"{"basePath":"x/"}"#, "basePath: must begin with a"),
        (#"{"invalidateRate":1.5}"#, "invalidateRate: must be from 0.0 to 1.0"),
        (#"{"tokenLifeSeconds":-1}"#, "tokenLifeSeconds: must be from 0 to"), (#"{"bindTokens":1}"#, "bindTokens: "),
        (#"{"monitoring":1}"#, "monitoring: must be true, false or an object"), (#"{"seed":"x"}"#, "seed: "),
        (#"{"tokens":"t"}"#, "tokens: "), (#"{"tokens":[{"user":"a"}]}"#, "tokens[0].token: is missing"),
        (#"{"tokens":[{"token":"Bearer x"}]}"#, "tokens: token must have no spaces"),
        (#"{"tokens":[{"token":"t","x":1}]}"#, "tokens[0].x: there is no such member"),
        (#"{"tokens":{"token":"t"}}"#, "tokens: "),
        (#"{"tokens":[{"token":"t","provider":"x"}]}"#, "tokens: provider must be pi or mi"),
        (#"{"tokens":[{"token":"t","expiresInSeconds":-1}]}"#, "tokens: expiresInSeconds must be from 0"),
        (#"{"invalidateToken":1}"#, "invalidateToken: "),
        (#"{"users":[""]}"#, "users: none may be empty"), (#"{"users":"a"}"#, "users: "),
        (#"{"devices":{"x":{}}}"#, "devices: must be an object of objects, by UUID"),
        (#"{"groups":{"a":["b"]}}"#, "groups and connections must name existing users"),
        (#"{"groups":{"a":"b"}}"#, "groups.a: "),
        (#"{"connections":{"x":[]}}"#, "connections: there is no such device"),
        (#"{"remove":{"x":[]}}"#, "remove.x: there is no such member"),
        (#"{"answers":[{}]}"#, "answers[0].status: is missing"), (#"{"answers":{}}"#, "answers: "),
        (#"{"answers":[{"status":99}]}"#, "answers: status: must be from 100 to 599"),
        (
            #"{"answers":[{"status":200,"step":"x"}]}"#,
            "answers[0].step: must be one of register_device, register_user,"
        ),
        (#"{"answers":[{"status":200,"headers":{"a":1}}]}"#, "answers[0].headers.a: "),
    ]

    @Test func problems_areReportedInASentence_andChangeNothing() throws {
        for (body, sentence) in Self.problems {
            let client = AppServicesClient()
            let before = client.shown.description + client.state
            // The valid members next to it are not applied either.
            let rest = body.hasPrefix("{\"") ? #"{"users":["z"],"apiKey":"z","# + body.dropFirst() : body
            for body in [body, body.contains("users") ? body : rest] {
                let answer = try #require(client.control(body))
                #expect(answer.status == 400, "\(body)")
                #expect(answer.text.hasPrefix(sentence), "\(answer.text)")
            }
            #expect(client.shown.description + client.state == before)
        }
    }

    @Test func state_canBePostedBack() {
        let client = AppServicesClient(
            """
            {"users":["Ann","bob"],"devices":{"\(d1)":{"b":[1.50,null,true],"apple.notifier.id":"00"}},
             "groups":{"Bio":["ann"],"art":[]},"connections":{"\(d1)":["BOB","ann"]}}
            """)
        #expect(
            client.state == """
                {"connections":{"\(d1)":["Ann","bob"]},"crashLogs":[],\
                "devices":{"\(d1)":{"apple.notifier.id":"00","b":[1.50,null,true]}},\
                "groups":{"Bio":["Ann"],"art":[]},"metrics":0,"users":["Ann","bob"]}
                """)
        let other = AppServicesClient(
            client.state.replacing(#""crashLogs":[],"#, with: "").replacing(#""metrics":0,"#, with: ""))
        #expect(other.state == client.state)
        other.control(#"{"remove":{"users":["ANN"],"groups":["bio"]}}"#)
        #expect(other.state.contains(#""connections":{"\#(d1)":["bob"]}"#))
        #expect(other.state.contains(#""groups":{"art":[]}"#))
        other.control(#"{"remove":{"devices":["\#(d1)"]}}"#)
        #expect(other.state.contains(#""devices":{}"#))
        other.control(#"{"reset":true}"#)
        #expect(other.state == AppServicesClient().state)
    }

    // MARK: Styles of errors

    @Test func notFound_hasItsStatusAndItsCode() {
        let client = AppServicesClient()
        for (status, code) in [
            (404, "service_resource_not_found"), (401, "service_resource_not_found"), (404, "entity_not_found"),
        ] {
            client.control(#"{"style":"\#(status)","notFoundError":"\#(code)"}"#)
            let answer = client.send(vector(8))
            #expect(answer.status == status)
            #expect(answer.usergridError == code)
        }
    }

    @Test func errorStatus_replacesTheStatusOfUsergridErrors() {
        let client = AppServicesClient(#"{"errorStatus":200}"#)
        client.register()
        let answer = client.send(vector(5))
        #expect(answer.status == 200)
        #expect(answer.usergridError == "duplicate_unique_property_exists")
        #expect(client.received.count == 4)
        client.control(#"{"errorStatus":null}"#)
        #expect(client.send(vector(5)).status == 400)
    }

    static let styles: [(style: String, status: Int, body: String)] = [
        ("usergrid", 401, #"{"error":"auth_bad_access_token","#), ("errorIn200", 200, #"{"error":"auth_bad_access_"#),
        ("fault", 401, #"{"fault":{"faultstring":"Invalid Access Token","detail":{"errorcode":"keymanagement."#),
        ("empty", 401, ""), ("html", 401, "<html>"), ("emptyEntities", 200, #"{"entities":[]}"#),
        ("noEntities", 200, #"{"application":"b616dfc1-bd09-5707-82b6-1e6b7b661c4e","timestamp":1767225600000,"#),
    ]

    @Test(arguments: styles) func refusedToken_isReportedInEachStyle(style: String, status: Int, body: String) {
        let client = AppServicesClient(
            #"{"errorStyle":"\#(style)","tokens":[{"token":"PiTok-7f.abc_DEF~123","valid":false}]}"#)
        let answer = client.send(vector(1))
        #expect(answer.status == status)
        #expect(answer.text.hasPrefix(body))
        #expect(body.isEmpty == answer.body.isEmpty)
        #expect(KnownResult(answer, to: .registerDevice) == .refusedToken)
        #expect(client.state.contains(#""devices":{}"#))
        #expect(client.received.isEmpty)
        #expect(client.violations(of: vector(1)) == ["register_device: a refused token is sent again"])
    }

    @Test func scriptedAnswers_comeInPlaceOfTheRealOnes() {
        let client = AppServicesClient(
            """
            {"answers":[
             {"step":"connect","user":"\(u1)","status":403,"error":"forbidden_service_operation","times":2},
             {"step":"register_user","status":200,"body":"<html>","taken":true,"headers":{"X-A":"b"}},
             {"device":"\(d1.uppercased())","status":500,"fault":"policies.ratelimit.QuotaViolation"}]}
            """)
        let first = client.send(vector(1))
        #expect(first.status == 500)
        #expect(first.json["fault"]["detail"]["errorcode"].string == "policies.ratelimit.QuotaViolation")
        client.send(vector(1))
        let user = client.send(vector(2))
        #expect(user.text == "<html>")
        #expect(user.headers.contains { $0 == ("X-A", "b") })
        #expect(client.state.contains(#""users":["\#(u1)"]"#))
        #expect(client.statuses(vector(3), vector(3), vector(3)) == [403, 403, 200])
        #expect(client.violations.isEmpty)
        #expect(client.received.count == 3)
        #expect(client.shown["answers"].description == "[]")
    }

    @Test func scriptedRefusal_makesATokenRefused() {
        let client = AppServicesClient(#"{"answers":[{"status":401,"error":"expired_token"}]}"#)
        client.statuses(vector(1), vector(1))
        #expect(client.violations == ["register_device: a refused token is sent again"])
    }

    // MARK: Tokens

    @Test func declaredTokens_areValidOrNot_forTheirUserAndProvider() {
        let client = AppServicesClient(
            #"{"tokens":[{"token":"a","user":"\#(u1)"},{"token":"b","valid":false},{"token":"c","provider":"mi"}]}"#)
        #expect(client.send(vector(2).with(token: "a")).status == 200)
        #expect(client.send(vector(2).with(token: "b")).status == 401)
        #expect(client.send(vector(2).with(token: "c")).status == 401)
        #expect(client.send(vector(2).with(token: "undeclared")).status == 400)
        client.control(#"{"tokens":[{"token":"b"}],"onlyDeclaredTokens":true}"#)
        #expect(client.send(vector(2).with(token: "b")).status == 400)
        #expect(client.send(vector(2).with(token: "other")).status == 401)
        #expect(client.violations.isEmpty)
    }

    @Test func tokens_expire() {
        let client = AppServicesClient(
            #"{"tokenLifeSeconds":1799,"tokens":[{"token":"short","expiresInSeconds":5}]}"#)
        #expect(client.statuses(vector(1), vector(1).with(token: "short"), vector(6)) == [200, 200, 200])
        client.time.advance(by: .seconds(5))
        #expect(client.send(vector(1).with(token: "short")).usergridError == "expired_token")
        client.time.advance(by: .seconds(1793.9))
        #expect(client.send(vector(1)).status == 200)
        client.time.advance(by: .seconds(0.1))
        client.control(#"{"errorStyle":"fault"}"#)
        #expect(
            client.send(vector(1)).json["fault"]["detail"]["errorcode"].string
                == "keymanagement.service.access_token_expired")
        #expect(client.send(vector(6)).status == 200)
        #expect(client.violations.isEmpty)
    }

    @Test func invalidateRate_refusesTokens_repeatablyWithASeed() {
        func statuses(seed: UInt64) -> [Int] {
            let client = AppServicesClient(#"{"invalidateRate":0.3}"#, seed: seed)
            return (0..<40).map { client.send(vector(1).with(token: "t\($0)")).status }
        }
        #expect(statuses(seed: 1) == statuses(seed: 1))
        #expect(statuses(seed: 1) != statuses(seed: 2))
        #expect(Set(statuses(seed: 1)) == [200, 401])
        let client = AppServicesClient(#"{"seed":1,"invalidateRate":0.3}"#, seed: 9)
        #expect((0..<40).map { client.send(vector(1).with(token: "t\($0)")).status } == statuses(seed: 1))
    }

    // MARK: Others

    @Test func basePath_isWantedExactly_whenSet() {
        let client = AppServicesClient(#"{"basePath":"/a/b"}"#)
        let path = "/acme/campus-dev/device/\(d1)"
        #expect(client.send(vector(1).with(path: "/a/b" + path)).status == 200)
        #expect(client.violations.isEmpty)
        let answer = client.send(vector(1))
        #expect(answer.status == 404)
        #expect(answer.json["fault"]["detail"]["errorcode"].string?.hasSuffix("ApplicationNotFound") == true)
        #expect(client.violations.count == 1)
        client.control(#"{"basePath":""}"#)
        #expect(client.send(vector(1).with(path: path)).status == 200)
    }

    @Test func monitoring_isOfferedAsWanted() {
        let client = AppServicesClient(#"{"monitoring":{"instaOpsApplicationId":5,"customUploadUrl":"http://x"}}"#)
        let configuration = vector(15).with(method: "GET", path: "/acme/campus-dev/apm/apigeeMobileConfig", body: "")
        #expect(client.send(configuration).json["customUploadUrl"].string == "http://x")
        #expect(client.send(vector(15)).status == 400)
        client.control(#"{"monitoring":true}"#)
        #expect(client.send(vector(15)).status == 200)
        client.control(#"{"monitoring":false}"#)
        #expect(client.send(vector(15)).status == 404)
    }
}
