import PosternConformance
import PosternCore
import PosternSimulatorKit
import PosternTestKit
import Testing

@testable import AppServicesSimulator

private let u1 = "ffffffff54d00d1e0b07c0de5eed0011"
private let d1 = "c0ffee11-2233-4455-8677-8899aabbccdd"
private let d2 = "5d3a1f77-0b1c-4e8e-9f10-62a4c1d7e902"
private let d3 = "19f0c2a4-6b7d-4f31-8a55-d0e1f2a3b403"
private let pushToken = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"

/// Test vectors, responses, and malformed requests.
@Suite struct AppServicesSimulatorTests {
    // MARK: Vectors and sequences (section 13)

    @Test func register_firstTime_isTakenStepByStep() {
        let client = AppServicesClient(
            #"{"organization":"acme","application":"campus-dev","apiKey":"SAMPLEKEY7Q2W9E4R6T1Y8U3I5O0PAS1"}"#)
        #expect(client.statuses(vector(1), vector(2), vector(3), vector(4)) == [200, 200, 200, 200])
        #expect(client.violations.isEmpty)
        #expect(
            client.state == """
                {"connections":{"\(d1)":["\(u1)"]},"crashLogs":[],"devices":{"\(d1)":{"apple.notifier.id":"\(pushToken)",\
                "deviceModel":"iPhone 5s","deviceOSVersion":"8.1.3","devicePlatform":"iPhone OS",\
                "mobileplatform":{"preferences":{"blacklist":{},"whitelist":{"assignments":[],"forum":["chat","polls"]}}}\
                }},"groups":{},"metrics":0,"users":["\(u1)"]}
                """)
    }

    @Test func register_nextLaunch_findsTheUserThere() {
        let client = AppServicesClient()
        client.register()
        let answers = [vector(1), vector(5), vector(3)].map { client.send($0) }
        #expect(answers.map(\.status) == [200, 400, 200])
        #expect(answers[1].usergridError == "duplicate_unique_property_exists")
        #expect(
            answers[1].json["error_description"].string
                == "Entity user requires that property named username be unique, value of \(u1) exists")
        #expect(client.violations.isEmpty)
    }

    @Test func register_withMI_keepsWhatIsOutsideASCII() {
        let client = AppServicesClient()
        let user = vector(2).with(
            body: #"{"username":"20981743"}"#,
            ["Authorization": nil, "X-Authorization": "MITOK:00042|a9b8c7d6", "X-Auth-Provider": "mi"])
        let connect = vector(14).with(
            path: "/appservices/acme/campus-dev/users/20981743/devices/\(d2)",
            ["X-Authorization": "MITOK:00042|a9b8c7d6"])
        #expect(client.statuses(vector(6), user, connect, vector(7)) == [200, 200, 200, 200])
        #expect(client.violations.isEmpty)
        #expect(client.state.contains(#"{"Übungen 1/2":["Prüfung „A“","試験"]}"#))
        #expect(client.state.contains(#""apple-distribution.notifier.id":"3fc4"#))
    }

    @Test func connect_takesAnEncodedUser() {
        let client = AppServicesClient(#"{"users":["pat.lee@example.edu"],"devices":{"\#(d3)":{}}}"#)
        #expect(client.send(vector(14)).status == 200)
        #expect(client.violations.isEmpty)
        #expect(client.state.contains(#""connections":{"\#(d3)":["pat.lee@example.edu"]}"#))
    }

    @Test func group_isLookedUpCreatedAndFilled() {
        let client = AppServicesClient(#"{"users":["\#(u1)"]}"#)
        let answers = [vector(8), vector(9), vector(10), vector(8)].map { client.send($0) }
        #expect(answers.map(\.status) == [404, 200, 200, 200])
        #expect(answers[0].usergridError == "service_resource_not_found")
        #expect(answers[0].json["error_description"].string == "Service resource not found")
        #expect(answers[2].json["entities"][0]["type"].string == "user")
        #expect(answers[3].json["entities"][0]["title"].string == "Fall-2014-Biology")
        #expect(client.state.contains(#""groups":{"Fall-2014-Biology":["\#(u1)"]}"#))
        #expect(client.statuses(vector(8), vector(11), vector(11)) == [200, 200, 200])
        #expect(client.state.contains(#""groups":{"Fall-2014-Biology":[]}"#))
        #expect(client.violations.isEmpty)
    }

    @Test func group_thatAnotherCreated_isADuplicate() {
        let client = AppServicesClient(#"{"users":["\#(u1)"]}"#)
        client.send(vector(8))
        client.control(#"{"groups":{"FALL-2014-biology":[]}}"#)
        let answer = client.send(vector(9))
        #expect(answer.status == 400)
        #expect(answer.usergridError == "duplicate_unique_property_exists")
        #expect(client.send(vector(10)).status == 200)
        #expect(client.violations.isEmpty)
    }

    @Test func unregister_blanksThePushToken_andKeepsTheRest() {
        let client = AppServicesClient()
        client.register()
        #expect(client.statuses(vector(12), vector(13), vector(12)) == [200, 200, 200])
        #expect(client.violations.isEmpty)
        #expect(client.state.contains(#""connections":{}"#))
        #expect(client.state.contains(#""apple.notifier.id":"","deviceModel":"iPhone 5s""#))
    }

    @Test func metrics_areCounted() {
        let client = AppServicesClient()
        let configuration = vector(15).with(
            method: "GET", path: "/appservices/acme/campus-dev/apm/apigeeMobileConfig", body: "",
            ["Content-Type": nil, "Content-Length": nil])
        #expect(client.send(configuration).json["instaOpsApplicationId"].int == 21493)
        #expect(client.send(vector(15)).json["message"].string == "Successfully sent metrics")
        client.send(
            vector(15).with(
                body: String(decoding: vector(15).body, as: UTF8.self).replacing("80000123", with: "80000124")))
        let crash = vector(15).with(
            method: "PUT", path: "/appservices/acme/campus-dev/apm/crashLogs/\(d1).crash", body: "it broke",
            ["Content-Type": "text/plain"])
        #expect(client.send(crash).status == 200)
        #expect(client.violations.isEmpty)
        #expect(client.identities[1] == client.identities[2])
        #expect(client.state.contains(#""crashLogs":["\#(d1).crash"]"#))
        #expect(client.state.contains(#""metrics":2"#))
        client.control(#"{"monitoring":false}"#)
        #expect(client.send(configuration).usergridError == "entity_not_found")
    }

    @Test func crash_isNamedOnce_afterItsText_withTheHighestLevel() {
        func text(_ file: String) -> SimulatedRequest {
            vector(15).with(
                method: "PUT", path: "/appservices/acme/campus-dev/apm/crashLogs/\(file).crash", body: "it broke",
                ["Content-Type": "text/plain"])
        }
        func report(_ file: String, level: String = "A") -> SimulatedRequest {
            vector(15).with(
                body: String(decoding: vector(15).body, as: UTF8.self)
                    .replacing(#""logLevel":"E""#, with: #""logLevel":"\#(level)""#)
                    .replacing(#""logMessage":"timeout""#, with: #""logMessage":"\#(file).crash""#)
                    .replacing(#""tag":"sync""#, with: #""tag":"CRASH""#))
        }
        let client = AppServicesClient()
        client.send(text(d1))
        client.send(text(d1))
        client.send(report(d1))
        #expect(client.violations.isEmpty, "the text may be uploaded again")
        client.send(report(d1))
        #expect(client.violations == ["metrics: a crash is reported again"])
        let other = AppServicesClient()
        other.send(report(d1, level: "E"))
        #expect(
            other.violations == [
                "metrics: a crash that is not logged with level A",
                "metrics: a crash whose text was not uploaded before",
            ])
        let lost = AppServicesClient()
        lost.send(text(d1))
        lost.send(report(d1).lost)
        lost.send(report(d1))
        #expect(lost.violations.contains("metrics: a crash is reported again"))
    }

    @Test func base_mayBeLeftOut() {
        let client = AppServicesClient()
        #expect(client.send(vector(1).with(path: "/acme/campus-dev/device/\(d1)")).status == 200)
        #expect(client.violations.isEmpty)
    }

    // MARK: Answers

    @Test func success_hasTheWholeEnvelope() {
        let client = AppServicesClient()
        let json = client.send(vector(1)).json
        #expect(
            json.keys == [
                "action", "application", "params", "path", "uri", "entities", "timestamp", "duration", "organization",
                "applicationName",
            ])
        #expect(json["params"]["api_key"].strings == ["SAMPLEKEY7Q2W9E4R6T1Y8U3I5O0PAS1"])
        #expect(json["path"].string == "/devices")
        let entity = json["entities"][0]
        #expect(entity["uuid"].string == d1)
        #expect(entity["type"].string == "device")
        #expect(entity["created"].int == 1_767_225_600_000)
        #expect(entity["apple.notifier.id"].string == pushToken)
        #expect(entity["metadata"]["path"].string == "/devices/\(d1)")
        client.send(vector(2))
        #expect(client.send(vector(3)).json["entities"][0]["type"].string == "device")
    }

    @Test func put_mergesTopLevelMembers() {
        let client = AppServicesClient()
        client.register()
        client.send(
            vector(4).with(body: #"{"mobileplatform":{"preferences":{"whitelist":{"a":[]},"blacklist":{}}}}"#))
        #expect(client.state.contains(#""mobileplatform":{"preferences":{"blacklist":{},"whitelist":{"a":[]}}}"#))
        #expect(client.state.contains(pushToken))
    }

    @Test func names_areComparedWithoutCase() {
        let client = AppServicesClient(#"{"users":["Ann"],"groups":{"Bio":[]},"devices":{"\#(d1)":{}}}"#)
        #expect(client.send(vector(2).with(body: #"{"username":"aNN"}"#)).status == 400)
        #expect(client.send(vector(8).with(path: "/appservices/acme/campus-dev/groups/BIO")).status == 200)
        #expect(client.send(vector(3).with(path: "/appservices/acme/campus-dev/users/ANN/devices/\(d1)")).status == 200)
        #expect(client.state.contains(#""connections":{"\#(d1)":["Ann"]}"#))
    }

    @Test func connect_takesTheDeviceFromEverybodyElse_unlessToldOtherwise() {
        let client = AppServicesClient(
            #"{"users":["a","b"],"devices":{"\#(d1)":{}},"connections":{"\#(d1)":["a"]}}"#)
        let connect = vector(3).with(path: "/appservices/acme/campus-dev/users/b/devices/\(d1)")
        client.send(connect)
        #expect(client.state.contains(#""connections":{"\#(d1)":["b"]}"#))
        client.control(#"{"exclusiveDevices":false,"connections":{"\#(d1)":["a"]}}"#)
        client.send(connect)
        #expect(client.state.contains(#""connections":{"\#(d1)":["a","b"]}"#))
    }

    @Test func groupsNamedLikeCollections_areNeverFound() {
        let client = AppServicesClient(#"{"users":["\#(u1)"]}"#)
        let base = "/appservices/acme/campus-dev/groups"
        #expect(
            client.statuses(
                vector(8).with(path: base + "/roles"), vector(9).with(body: #"{"path":"roles","title":"roles"}"#),
                vector(9).with(body: #"{"path":"roles","title":"roles"}"#),
                vector(10).with(path: base + "/roles/users/\(u1)"))
                == [404, 200, 400, 404])
    }

    @Test func missingEntities_areNotFound() {
        let client = AppServicesClient()
        #expect(client.statuses(vector(3), vector(12), vector(10), vector(11)) == [404, 404, 404, 404])
    }

    @Test func groupPath_withOtherCharacters_isAnIllegalArgument() {
        let client = AppServicesClient()
        #expect(client.send(vector(9).with(body: #"{"path":"a b","title":"a b"}"#)).usergridError == "illegal_argument")
        #expect(client.send(vector(9).with(body: #"{"path":"a.b/c","title":"a.b/c"}"#)).status == 200)
    }

    static let refused: [(SimulatedRequest, Int, String)] = [
        (vector(1).with(body: "{"), 400, "json_parse"), (vector(1).with(body: "[]"), 400, "json_parse"),
        (vector(1).with(body: ""), 400, "json_parse"), (vector(1).with(body: "{\"a\":\"\u{1}\"}"), 400, "json_parse"),
        (vector(1).with(body: #"{"a":"# + String(repeating: "[", count: 5000)), 400, "json_parse"),
        (vector(2).with(body: "{}"), 400, "required_property_not_found"),
        (vector(2).with(body: #"{"username":7}"#), 400, "required_property_not_found"),
        (vector(9).with(body: "{}"), 400, "required_property_not_found"),
        (vector(1).with(path: "/appservices/acme/campus-dev/device/abc"), 400, "illegal_argument"),
        (vector(1).with(method: "GET"), 405, "unsupported_service_operation"),
        (vector(1).with(method: "DELETE"), 405, "unsupported_service_operation"),
        (vector(2).with(path: "/appservices/acme/campus-dev/notifications"), 404, "service_resource_not_found"),
    ]

    @Test func mistakes_areRefused_andAreViolations() {
        for (index, (request, status, error)) in Self.refused.enumerated() {
            let client = AppServicesClient()
            let answer = client.send(request)
            #expect(answer.status == status, "\(index)")
            #expect(answer.usergridError == error, "\(index)")
            #expect(!client.violations.isEmpty, "\(index)")
            #expect(client.received.isEmpty, "\(index)")
        }
    }

    @Test func application_isTheOneThatIsKnown() {
        let client = AppServicesClient(#"{"organization":"acme","application":"campus-dev"}"#)
        for path in ["/appservices/acme/other/users", "/appservices/other/campus-dev/users"] {
            let answer = client.send(vector(2).with(path: path))
            #expect(answer.status == 404)
            #expect(answer.usergridError == "organization_application_not_found")
        }
        #expect(client.violations.isEmpty)
    }

    @Test func apiKey_isCheckedByTheProxy() {
        let client = AppServicesClient(#"{"apiKey":"right"}"#)
        let wrong = client.send(vector(2))
        #expect(wrong.status == 401)
        #expect(wrong.json["fault"]["detail"]["errorcode"].string == "oauth.v2.InvalidApiKey")
        let none = client.send(vector(2).with(query: .some(nil)))
        #expect(none.json["fault"]["detail"]["errorcode"].string == "steps.oauth.v2.FailedToResolveAPIKey")
        #expect(client.send(vector(2).with(query: "api_key=right")).status == 200)
        #expect(client.violations == ["register_user: no api_key in the query"])
    }

    @Test func body_thatIsHuge_isNotLookedInto() {
        let client = AppServicesClient()
        let big = #"{"username":"\#(String(repeating: "x", count: 1 << 20))"}"#
        #expect(client.send(vector(2).with(body: big)).status == 413)
        #expect(client.violations == ["register_user: a body of more than 65536 bytes"])
    }

    // MARK: The wire

    private static let base = "/appservices/acme/campus-dev"
    private static let registration = String(decoding: vector(1).body, as: UTF8.self)
    private static func preferences(_ lists: String) -> SimulatedRequest {
        vector(4).with(body: #"{"mobileplatform":{"preferences":\#(lists)}}"#)
    }
    private static func registration(_ old: String, _ new: String) -> SimulatedRequest {
        vector(1).with(body: registration.replacing(old, with: new))
    }

    private static func metrics(_ old: String, _ new: String) -> SimulatedRequest {
        vector(15).with(body: String(decoding: vector(15).body, as: UTF8.self).replacing(old, with: new))
    }

    static let odd: [(SimulatedRequest, String)] = [
        (vector(1).with(["Content-Type": nil]), "register_device: no Content-Type"),
        (
            vector(8).with(["Content-Type": "application/json; charset=utf-8"]),
            "get_group: a Content-Type other than application/json"
        ),
        (vector(3).with(["Content-Length": nil]), "connect: no Content-Length"),
        (vector(3).with(["Content-Length": "5"]), "connect: a Content-Length that is not the body's"),
        (vector(3).with(body: "{}"), "connect: a body where there is none"),
        (vector(8).with(body: "{}"), "get_group: a body where there is none"),
        (vector(1).with(["Transfer-Encoding": "chunked"]), "register_device: a header Transfer-Encoding"),
        (vector(1).with(["Content-Encoding": "gzip"]), "register_device: a header Content-Encoding"),
        (vector(1).with(["Expect": "100-continue"]), "register_device: a header Expect"),
        (vector(1).with(["Cookie": "a=b"]), "register_device: a header Cookie"),
        (vector(1).with(["X-Auth-Provider": nil]), "register_device: no X-Auth-Provider"),
        (vector(1).with(["X-Auth-Provider": "PI"]), "register_device: an X-Auth-Provider other than pi and mi"),
        (vector(1).with(["Authorization": nil]), "register_device: no Authorization with provider pi"),
        (vector(1).with(["Authorization": "tok"]), "register_device: an Authorization without Bearer"),
        (vector(1).with(["Authorization": "bearer tok"]), "register_device: an Authorization without Bearer"),
        (
            vector(1).with(["Authorization": "Bearer Bearer tok"]),
            "register_device: a token that the gateway must refuse"
        ),
        (vector(1).with(["Authorization": "Bearer (null)"]), "register_device: a token that the gateway must refuse"),
        (vector(1).with(["X-Authorization": "tok"]), "register_device: X-Authorization with provider pi"),
        (vector(6).with(["X-Authorization": nil]), "register_device: no X-Authorization with provider mi"),
        (vector(6).with(["Authorization": "Bearer x"]), "register_device: Authorization with provider mi"),
        (vector(6).with(["X-Authorization": "Bearer x"]), "register_device: a token that the gateway must refuse"),
        (vector(1).with(query: .some(nil)), "register_device: no api_key in the query"),
        (vector(1).with(query: "api_key=k&access_token=t"), "register_device: a query with more than api_key"),
        (vector(1).with(query: "api_key=k&api_key=k"), "register_device: a query with more than api_key"),
        (
            vector(8).with(path: base + "/groups", query: "api_key=k/Fall-2014-Biology"),
            "GET \(base)/groups: there is no such call"
        ),
        (
            vector(1).with(query: "api_key=k/x"),
            "register_device: an api_key that is not encoded as everything but letters, digits, - . _ ~"
        ),
        (vector(1).with(path: base + "/devices/\(d1)"), "register_device: devices in the path instead of device"),
        (vector(2).with(path: base + "/user"), "register_user: user in the path instead of users"),
        (vector(3).with(path: base + "/users/\(u1)/device/\(d1)"), "connect: device in the path instead of devices"),
        (vector(1).with(path: base + "/device/\(d1.uppercased())"), "register_device: capital letters in a device id"),
        (
            vector(14).with(path: base + "/users/pat.lee@example.edu/devices/\(d3)"),
            "connect: a path segment that is not encoded as everything but letters, digits, - . _ ~"
        ),
        (
            vector(14).with(path: base + "/users/%70at/devices/\(d3)"),
            "connect: a path segment that is not encoded as everything but letters, digits, - . _ ~"
        ),
        (
            vector(14).with(path: base + "/users/%ff/devices/\(d3)"),
            "a path segment that is not percent-encoded UTF-8"
        ),
        (vector(3).with(path: base + "/users/\(d1)/devices/\(d1)"), "connect: a user id that the gateway must refuse"),
        (vector(3).with(path: base + "/users/me/devices/\(d1)"), "connect: a user id that the gateway must refuse"),
        (vector(8).with(path: base + "/groups/a%0A"), "get_group: a group name that the gateway must refuse"),
        (vector(8).with(path: base + "/groups/a_b"), "get_group: a group name that the gateway must refuse"),
        (
            vector(12).with(path: base + "/users/\(u1)/devices/"),
            "disconnect_all: no device id: this parts the user from all devices"
        ),
        (vector(2).with(method: "PUT", path: base + "/users/\(u1)"), "update_user: users are registered with POST"),
        (vector(1).with(path: base + "/device/"), "PUT \(base)/device/: there is no such call"),
        (vector(1).with(path: "/appservices//acme/campus-dev/device/\(d1)"), "there is no such call"),
        (vector(1).with(body: registration + "x"), "register_device: bytes after the JSON object"),
        (registration("{\"a", "{\"type\":\"device\",\"a"), "register_device: a member that is given twice"),
        (registration(pushToken, pushToken.uppercased()), "register_device: a push token that is not 64 to 200 small"),
        (registration(pushToken, "<740f>"), "register_device: a push token that is not 64 to 200 small"),
        (registration("apple.", "app le."), "register_device: a notifier that the gateway must refuse"),
        (registration("\"type\":\"device\"", "\"type\":\"devices\""), "register_device: a type other than device"),
        (registration("\"uuid\":\"c0", "\"uuid\":\"c1"), "register_device: a uuid that is not the path's"),
        (registration("8.1.3", ""), "register_device: deviceOSVersion that is not a text"),
        (registration("deviceModel", "model"), "register_device: a member that no device is registered with"),
        (
            registration("{\"apple", "{\"orange.notifier.id\":\"00\",\"apple"),
            "register_device: more than one notifier"
        ),
        (
            vector(1).with(body: #"{"type":"device"}"#),
            "update_device: a body that is neither registration, preferences nor"
        ),
        (vector(2).with(body: #"{"username":"a","password":"b"}"#), "register_user: more than username in the body"),
        (vector(2).with(body: #"{"username":"a b"}"#), "register_user: a user id that the gateway must refuse"),
        (vector(2).with(body: "{}"), "register_user: no username in the body"),
        (vector(9).with(body: #"{"path":"a","title":"b"}"#), "create_group: a title that is not the path"),
        (
            vector(9).with(body: #"{"path":"a","title":"a","x":1}"#),
            "create_group: more than path and title in the body"
        ),
        (
            vector(9).with(body: #"{"path":"a_b","title":"a_b"}"#),
            "create_group: a group name that the gateway must refuse"
        ),
        (
            vector(4).with(body: registration.replacing("{\"a", with: "{\"mobileplatform\":{},\"a")),
            "preferences: preferences next to other members of the device"
        ),
        (
            vector(4).with(body: #"{"mobileplatform":{}}"#),
            "preferences: a mobileplatform that is not preferences alone"
        ),
        (preferences("{}"), "preferences: preferences that are not the objects whitelist and blacklist"),
        (preferences(#"{"whitelist":{}}"#), "preferences: preferences that are not the objects whitelist and"),
        (preferences(#"{"whitelist":{"":[]},"blacklist":{}}"#), "preferences: an empty type of notification"),
        (preferences(#"{"whitelist":{"a":[""]},"blacklist":{}}"#), "preferences: exceptions that are not an array of"),
        (preferences(#"{"whitelist":{"a":[1]},"blacklist":{}}"#), "preferences: exceptions that are not an array of"),
        (preferences(#"{"whitelist":{},"blacklist":{"a":"b"}}"#), "preferences: exceptions that are not an array of"),
        (vector(15).with(query: "api_key=k"), "metrics: a query on a monitoring path"),
        (vector(15).with(["Authorization": "Bearer x"]), "metrics: Authorization on a monitoring path"),
        (vector(15).with(["Content-Type": "application/json"]), "metrics: a Content-Type other than application/json;"),
        (vector(15).with(body: "{}"), "metrics: sessionMetrics that are not an object with members"),
        (vector(15).with(body: "{}"), "metrics: logs that are not an array of objects"),
        (vector(15).with(body: "{}"), "metrics: a timeStamp that is not a text of milliseconds"),
        (vector(15).with(body: #"{"x":1}"#), "metrics: a member that no metrics have"),
        (
            vector(15).with(body: String(decoding: vector(15).body, as: UTF8.self).replacing(":21493", with: ":1")),
            "metrics: instaOpsApplicationId is not that of the monitoring configuration"
        ),
        (
            vector(15).with(
                body: String(decoding: vector(15).body, as: UTF8.self).replacing(
                    "timeout", with: String(repeating: "x", count: 201))),
            "metrics: a log message of more than 200 characters"
        ),
        (metrics("acme_campusdev", "other"), "metrics: fullAppName is not that of the monitoring configuration"),
        (
            metrics("\"metrics\":[]", "\"metrics\":[{\"url\":\"\(String(repeating: "x", count: 201))\"}]"),
            "metrics: a url of more than 200 characters"
        ),
        (
            metrics("\"logs\":[", "\"logs\":[" + String(repeating: "{},", count: 100)),
            "metrics: more than 100 log entries"
        ),
        (
            vector(15).with(
                method: "PUT", path: base + "/apm/crashLogs/\(d1).crash", body: "", ["Content-Type": "text/plain"]),
            "crash_log: an empty crash text"
        ),
        (
            vector(15).with(method: "PUT", path: base + "/apm/crashLogs/x", body: "x", ["Content-Type": "text/plain"]),
            "crash_log: a crash file that is not named <UUID>.crash"
        ),
    ]

    @Test func oddities_areViolations() {
        for (request, violation) in Self.odd {
            let violations = AppServicesClient().violations(of: request)
            #expect(violations.contains { $0.hasPrefix(violation) || $0.hasSuffix(violation) }, "\(violation)")
        }
    }

    @Test func header_thatIsThereTwice_isAViolation() {
        var request = vector(1)
        request.headers.append(("x-auth-provider", "pi"))
        #expect(
            AppServicesClient().violations(of: request) == [
                "register_device: X-Auth-Provider more than once",
                "register_device: an X-Auth-Provider other than pi and mi",
            ])
    }

    @Test func violations_tellNoSecrets() {
        let client = AppServicesClient(#"{"apiKey":"right"}"#)
        for (request, _) in Self.odd { client.send(request) }
        #expect(client.violations.count > 60)
        for secret in ["PiTok", "MITOK", "SAMPLEKEY", "7692c3", "7692C3", "right"] {
            #expect(!client.violations.contains { $0.contains(secret) }, "\(secret)")
        }
    }

    @Test func furtherHeaders_andOtherLayout_areNoOddities() {
        let client = AppServicesClient()
        client.send(vector(1).with(["Accept": "*/*", "User-Agent": "x"]))
        client.send(vector(2).with(body: "\n{ \"username\" : \"\(u1)\" }\n"))
        client.send(vector(14).with(path: Self.base + "/users/o%27neil%2bx/devices/\(d1)"))
        #expect(client.violations.isEmpty)
    }

    // MARK: What is kept

    @Test func received_showsEachRequestThatWasDone() {
        let client = AppServicesClient()
        client.register()
        client.statuses(vector(5), vector(8), vector(9), vector(10))
        #expect(
            client.received == [
                #"{"device":"\#(d1)","step":"register_device","notifier":"apple","deviceToken":"\#(pushToken)","#
                    + #""provider":"pi","token":1,"body":\#(Self.registration)}"#,
                #"{"user":"\#(u1)","step":"register_user","provider":"pi","token":1,"body":{"username":"\#(u1)"}}"#,
                #"{"user":"\#(u1)","device":"\#(d1)","step":"connect","provider":"pi","token":1}"#,
                #"{"user":"\#(u1)","device":"\#(d1)","step":"preferences","provider":"pi","token":1,"body":"#
                    + String(decoding: vector(4).body, as: UTF8.self) + "}",
                #"{"user":"\#(u1)","group":"Fall-2014-Biology","step":"create_group","provider":"pi","token":1,"body":"#
                    + String(decoding: vector(9).body, as: UTF8.self) + "}",
                #"{"user":"\#(u1)","group":"Fall-2014-Biology","step":"add_user","provider":"pi","token":1}"#,
            ])
        #expect(Set(client.identities).count == 6)
    }

    @Test func identity_forgetsTheToken() {
        let client = AppServicesClient()
        client.statuses(vector(1), vector(1).with(token: "other"), vector(2), vector(3), vector(3).with(token: "other"))
        #expect(client.identities[0] == client.identities[1])
        #expect(client.identities[3] == client.identities[4])
        #expect(Set(client.identities).count == 3)
    }

    @Test(arguments: [
        (Faults.Poison.Answer.failure, 500), (.tooLarge, 413), (.refusal, 400), (.naming, 403),
    ]) func poison_refusesItsStep(answer: Faults.Poison.Answer, status: Int) {
        let client = AppServicesClient()
        let poison = Faults.Poison(field: "step", value: "connect", answer: answer)
        #expect(
            [vector(1), vector(2), vector(3)].map { client.send($0, poisons: [poison]).status } == [200, 200, status])
        #expect(client.state.contains(#""connections":{}"#))
        #expect(client.violations.isEmpty)
    }

    // MARK: Anything

    @Test func anyBytes_areAnswered() {
        var random = SplitMix64(state: 3)
        let vectors = [1, 2, 3, 4, 6, 8, 9, 10, 12, 13, 14, 15].map(vector)
        let client = AppServicesClient()
        let pieces = [
            "", "/", "%", "%zz", "\u{0}", "é", "\"", "{", "[", "-", "null", "\\ud800", "?", "&", "=", "1e999",
        ]
        func spoiled(_ text: String) -> String {
            var bytes = Array(text.utf8)
            let index = Int(random.next() % UInt64(bytes.count + 1))
            if let piece = pieces.randomElement(using: &random) { bytes.insert(contentsOf: piece.utf8, at: index) }
            if !bytes.isEmpty, random.next() % 2 == 0 { bytes.remove(at: Int(random.next() % UInt64(bytes.count))) }
            return String(decoding: bytes, as: UTF8.self)
        }
        for _ in 0..<4000 {
            guard var request = vectors.randomElement(using: &random) else { continue }
            switch random.next() % 5 {
            case 0: request.path = spoiled(request.path)
            case 1: request.query = spoiled(request.query ?? "")
            case 2: request.body = Array(spoiled(String(decoding: request.body, as: UTF8.self)).utf8)
            case 3: request.method = spoiled(request.method)
            default:
                let index = Int(random.next() % UInt64(request.headers.count))
                request.headers[index].value = spoiled(request.headers[index].value)
            }
            #expect((200..<600).contains(client.send(request).status))
            let control = SimulatedRequest(method: "POST", path: "/control", headers: [], body: request.body)
            #expect(client.simulator.control(control)?.status == 400)
        }
        #expect(JSONTree.read(client.state.utf8) != nil)
    }
}
