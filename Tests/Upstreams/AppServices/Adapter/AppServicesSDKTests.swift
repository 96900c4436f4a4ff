import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import AppServicesAdapter

/// Requests as the Apigee SDK sends them: what they become, and what it gets.
@Suite struct AppServicesSDKTests {
    private typealias Items = AppServicesItems
    private typealias Harness = AppServicesHarness

    /// An answer, as far as the SDK reads it.
    private struct Text: Equatable {
        let status: Int
        let body: String

        init(status: Int, body: String) { (self.status, self.body) = (status, body) }
        init(_ answer: SDKAnswer) {
            self.init(status: answer.status, body: String(decoding: answer.body, as: UTF8.self))
        }
        init?(_ answer: SDKAnswer?) {
            guard let answer else { return nil }
            self.init(answer)
        }
    }

    private static let now = UpstreamFixture.now

    private func endpoint(_ more: [String: SettingValue] = [:]) throws -> SDKEndpoint {
        SDKEndpoint(try AppServicesSettings(Harness.settings.merging(more) { $1 }))
    }

    /// `text`: the request line without a version, headers, an empty line, and the body.
    private func received(_ text: String) -> IncomingCall.Received {
        let parts = text.split(separator: "\n\n", maxSplits: 1, omittingEmptySubsequences: false)
        let lines = parts[0].split(separator: "\n")
        let words = lines[0].split(separator: " ", maxSplits: 1)
        let (path, query) = URLQuery.split(String(words[1]))
        let headers = lines.dropFirst().map { line in
            let colon = line.firstIndex(of: ":") ?? line.endIndex
            return (name: String(line[..<colon]), value: String(line[colon...].dropFirst(2)))
        }
        return .init(
            method: String(words[0]), path: path, query: query, headers: headers,
            body: parts.count > 1 ? Array(parts[1].utf8) : [], at: Self.now)
    }

    private func fixture(_ vector: Int) throws -> IncomingCall.Received {
        received(String(decoding: try Fixture.bytes("sdk-v\(vector).http"), as: UTF8.self))
    }

    /// What the SDK gets if the request is refused.
    private func refusal(
        _ line: String, _ body: String = "", token: String = "Authorization: Bearer T\nX-Auth-Provider: pi",
        _ more: [String: SettingValue] = [:]
    ) throws -> Text? {
        let request = received("\(line)\n\(token)\n\n\(body)")
        let endpoint = try endpoint(more)
        do {
            _ = try IncomingCall.read(request, at: endpoint)
            return nil
        } catch {
            return Text(error)
        }
    }

    private static let key = "?api_key=" + Harness.key

    // MARK: Requests

    /// With the calls, by the numbers of the vectors.
    private static let calls: [(vector: Int, call: SDKCall)] = [
        (1, .device), (2, .user), (3, .connect), (4, .preferences), (5, .user), (6, .device), (7, .preferences),
        (9, .createGroup), (10, .addToGroup), (11, .removeFromGroup), (12, .disconnect), (13, .unregisterDevice),
        (14, .connect),
    ]

    @Test func requestsOfTheSDK_becomeMessages_thatAreSentAsTheVectors() throws {
        for (vector, call) in Self.calls {
            var harness = try Harness()
            let request = try IncomingCall.read(try fixture(vector), at: try endpoint())
            #expect(request.call == call)
            let id = try harness.post(try #require(call.kind).rawValue, request.payload)
            let requests = try harness.run(id) {
                $0.step == "findGroup" && call == .createGroup
                    ? Harness.error(404, "entity_not_found") : Harness.usual($0)
            }
            #expect(requests.last?.spelledOut == (try Fixture.bytes("v\(vector).http")), "V\(vector)")
        }
    }

    @Test func lookUpOfAGroup_isTaken_inBothForms_andStored_inNone() throws {
        let other = received(
            "GET /acme/campus-dev/groups/Fall-2014-Biology\(Self.key)\nX-Auth-Provider: mi\nX-Authorization: T\n\n")
        for request in [try fixture(8), other] {
            let read = try IncomingCall.read(request, at: try endpoint())
            #expect(read.call == .findGroup && read.group == "Fall-2014-Biology" && read.payload.isEmpty)
        }
    }

    @Test func monitoring_comesWithoutKeyAndToken_andIsStoredAsItCame() throws {
        let endpoint = try endpoint(["monitoringEnabled": .bool(true)])
        let metrics = try fixture(15)
        #expect(try IncomingCall.read(metrics, at: endpoint).payload == String(decoding: metrics.body, as: UTF8.self))
        let crash = try IncomingCall.read(
            received("PUT /acme/campus-dev/apm/crashLogs/\(Items.device).crash\n\nit \"broke\""), at: endpoint)
        #expect(crash.call == .crash)
        #expect(crash.payload == #"{"name":"\#(Items.device).crash","text":"it \"broke\""}"#)
        let configuration = received("GET /acme/campus-dev/apm/apigeeMobileConfig")
        #expect(try IncomingCall.read(configuration, at: endpoint).call == .configuration)
    }

    @Test func emptySegments_doNotCount_andDevicesIsDevice() throws {
        for path in ["//acme//campus-dev/devices/", "/acme/campus-dev/device/"] {
            let request = received(
                "PUT \(path)\(Items.device)\(Self.key)\nX-Auth-Provider: pi\nAuthorization: T\n\n{\"apple.notifier.id\":\"\"}"
            )
            #expect(try IncomingCall.read(request, at: try endpoint()).call == .unregisterDevice)
        }
    }

    // MARK: Refusals

    private func error(_ status: Int, _ code: String, _ text: String) -> Text {
        Text(
            status: status,
            body:
                #"{"error":"\#(code)","timestamp":\#(Self.now.milliseconds),"duration":0,"error_description":"\#(text)"}"#
        )
    }

    @Test func refusals_comeInTheirOrder_withThePlatformsBodies() throws {
        let noApplication = error(404, "organization_application_not_found", "Could not find the application")
        let noKey = Text(
            status: 401,
            body: #"{"fault":{"faultstring":"Invalid ApiKey","detail":{"errorcode":"oauth.v2.InvalidApiKey"}}}"#)
        let noToken = error(401, "auth_missing_credentials", "No authentication credentials were supplied")
        #expect(try refusal("POST /acme/other/nowhere?api_key=wrong", token: "X: y") == noApplication)
        #expect(try refusal("POST /acme") == noApplication)
        #expect(try refusal("POST /acme/campus-dev/nowhere?api_key=wrong", token: "X: y") == noKey)
        #expect(try refusal("POST /acme/campus-dev/users") == noKey)
        for token in [
            "X: y", "X-Auth-Provider: pi", "X-Auth-Provider: PI\nAuthorization: Bearer T",
            "X-Auth-Provider: pi\nAuthorization: Bearer (null)", "X-Auth-Provider: pi\nAuthorization: Bearer",
            "X-Auth-Provider: mi\nAuthorization: Bearer T", "X-Auth-Provider: mi\nX-Authorization: Bearer T",
        ] {
            #expect(try refusal("POST /acme/campus-dev/nowhere\(Self.key)", token: token) == noToken, "\(token)")
        }
        let notFound = error(404, "service_resource_not_found", "Service resource not found")
        for path in ["nowhere", "users/", "groups/a/users/b/c", "device/"] {
            #expect(try refusal("PUT /acme/campus-dev/\(path)\(Self.key)") == notFound, "\(path)")
        }
        let wrongMethod = error(405, "unsupported_service_operation", "The operation is not supported")
        #expect(try refusal("GET /acme/campus-dev/users\(Self.key)") == wrongMethod)
        let notJSON = error(400, "json_parse", "The body is not a JSON object")
        for body in ["", "{", "[]", "7"] {
            #expect(try refusal("POST /acme/campus-dev/users\(Self.key)", body) == notJSON, "\(body)")
        }
    }

    /// RFC 9110, section 15.5.6.
    @Test(arguments: [
        ("GET", "groups", "POST"), ("PUT", "groups/a", "GET, HEAD"), ("GET", "users/u/devices/d", "DELETE, POST"),
        ("DELETE", "apm/apmMetrics", "POST"),
    ])
    func wrongMethod_isAnsweredWithTheRightOnes(method: String, path: String, allowed: String) throws {
        let request = received(
            "\(method) /acme/campus-dev/\(path)\(Self.key)\nAuthorization: Bearer T\nX-Auth-Provider: pi\n\n")
        let endpoint = try endpoint([:])
        let refused = #expect(throws: SDKAnswer.self) { _ = try IncomingCall.read(request, at: endpoint) }
        #expect(refused?.headers.first { $0.name == "Allow" }?.value == allowed)
    }

    @Test func invalidFields_areIllegalArguments_thatNameTheField() throws {
        for (line, body, field) in [
            ("POST /acme/campus-dev/users", #"{"username":"me"}"#, "userId"),
            ("POST /acme/campus-dev/users", "{}", "userId"),
            ("PUT /acme/campus-dev/device/private", #"{"apple.notifier.id":""}"#, "deviceId"),
            (
                "PUT /acme/campus-dev/device/\(Items.device)",
                #"{"apple.notifier.id":"{length = 32, bytes = 0x7692}"}"#, "deviceToken"
            ),
            ("PUT /acme/campus-dev/device/\(Items.device)", #"{"type":"device"}"#, "deviceToken"),
            ("PUT /acme/campus-dev/device/\(Items.device)", #"{"mobileplatform":{}}"#, "preferences"),
            ("PUT /acme/campus-dev/device/\(Items.device)", #"{"mobileplatform":{"preferences":[]}}"#, "preferences"),
            ("POST /acme/campus-dev/groups", #"{"path":"a b"}"#, "group"),
            ("GET /acme/campus-dev/groups/a%20b", "", "group"),
            ("POST /acme/campus-dev/users/u/devices/", "", "There is no device id"),
            ("DELETE /acme/campus-dev/users/u/devices/", "", "There is no device id"),
            ("DELETE /acme/campus-dev/users/u/devices", "", "There is no device id"),
        ] {
            let answer = try refusal(line + Self.key, body)
            #expect(answer?.status == 400, "\(line)")
            #expect(answer?.body.hasPrefix(#"{"error":"illegal_argument""#) == true, "\(line)")
            #expect(answer?.body.contains("\"error_description\":\"\(field)") == true, "\(line): \(answer?.body ?? "")")
        }
    }

    @Test func monitoring_thatIsOff_isNotFound_andACrashNeedsTheNameOfAFile() throws {
        for line in ["GET apigeeMobileConfig", "POST apmMetrics", "PUT crashLogs/a.crash"] {
            let line = line.replacing(" ", with: " /acme/campus-dev/apm/")
            #expect(try refusal(line)?.body.hasPrefix(#"{"error":"entity_not_found""#) == true, "\(line)")
        }
        let crash = try refusal(
            "PUT /acme/campus-dev/apm/crashLogs/a.crash", "x", ["monitoringEnabled": .bool(true)])
        #expect(crash?.status == 400)
    }

    // MARK: Answers

    private func envelope() throws -> SDKEnvelope {
        SDKEnvelope(
            upstream: try #require(UpstreamName("push")), endpoint: try endpoint(),
            url: "http://gw/sdk/push/acme/campus-dev/device/\(Items.deviceID)", now: Self.now)
    }

    @Test func envelope_hasWhatTheNextStepsOfTheSDKNeed() throws {
        let request = try IncomingCall.read(try fixture(1), at: try endpoint())
        let answer = try envelope().answer(
            to: request, method: "PUT", known: SDKDevice(request, in: DictionaryState()))
        let at = Self.now.milliseconds
        let application = String(decoding: UUIDText.version5("push/application/campus-dev"), as: UTF8.self)
        let entity =
            #"{"uuid":"\#(Items.device)","type":"device","created":\#(at),"modified":\#(at),"#
            + #""apple.notifier.id":"\#(Items.pushToken)","deviceModel":"iPhone 5s","devicePlatform":"iPhone OS","#
            + #""deviceOSVersion":"8.1.3","metadata":{"path":"/devices/\#(Items.device)"}}"#
        let expected =
            #"{"action":"put","application":"\#(application)","params":{},"path":"/devices","#
            + #""uri":"http://gw/sdk/push/acme/campus-dev/device/\#(Items.deviceID)","entities":[\#(entity)],"#
            + #""timestamp":\#(at),"duration":0,"organization":"acme","applicationName":"campus-dev"}"#
        #expect(Text(answer) == Text(status: 200, body: expected))
    }

    @Test func entityOfADevice_hasWhatWasAcceptedForItLast() throws {
        var harness = try Harness()
        for vector in [1, 4] {
            let request = try IncomingCall.read(try fixture(vector), at: try endpoint())
            try harness.post(try #require(request.call.kind).rawValue, request.payload)
        }
        for (vector, token) in [(3, Items.pushToken), (13, "")] {
            let request = try IncomingCall.read(try fixture(vector), at: try endpoint())
            let body = Text(
                try envelope().answer(to: request, method: "POST", known: SDKDevice(request, in: harness.state))
            ).body
            #expect(body.contains(#""apple.notifier.id":"\#(token)""#), "V\(vector)")
            #expect(body.contains(#""mobileplatform":{"preferences":{"blacklist":{},"whitelist":{"assignments":[],"#))
            #expect(!body.contains(#""error""#) && !body.contains("access_token") && !body.contains(Harness.key))
        }
    }

    @Test func idsOfUsersAndGroups_areVersion5_andDoNotDependOnCase() throws {
        #expect(
            String(decoding: UUIDText.version5("push/user/ann"), as: UTF8.self)
                == "fcbdbd3d-017a-59b6-be10-53a97a1fa258")
        var group = IncomingCall(call: .createGroup)
        group.group = "Bio"
        let first = Text(try envelope().answer(to: group, method: "POST")).body
        #expect(first.contains(#""type":"group""#) && first.contains(#""path":"Bio","title":"Bio""#))
        group.group = "bio"
        #expect(try Text(envelope().answer(to: group, method: "POST")).body == first.replacing("Bio", with: "bio"))
        var user = IncomingCall(call: .user)
        user.user = "Ann"
        let body = Text(try envelope().answer(to: user, method: "POST")).body
        #expect(body.contains(#"{"uuid":"fcbdbd3d-017a-59b6-be10-53a97a1fa258","type":"user""#))
        #expect(body.contains(#""username":"Ann","activated":true"#))
    }

    private func passedOn(_ response: UpstreamResponse, to call: SDKCall, _ step: Step) -> Text? {
        Text(.passedOn(response, to: call, step, withoutKey: Harness.key, at: Self.now))
    }

    @Test func answerOfThePlatform_isPassedOn_withoutItsParametersAndSecrets() {
        let body =
            #"{"action":"put","params":{"api_key":["\#(Harness.key)"]},"uri":"u?\#(Harness.key)","entities":[{"a":1.50}]}"#
        #expect(
            passedOn(Harness.response(200, body), to: .device, .registerDevice)
                == Text(status: 200, body: #"{"action":"put","uri":"u?***","entities":[{"a":1.50}]}"#))
        let refused = #"{"error":"expired_token","duration":0}"#
        #expect(
            passedOn(Harness.response(401, refused), to: .connect, .connect) == Text(status: 401, body: refused))
        let missing = #"{"error":"service_resource_not_found"}"#
        #expect(
            passedOn(Harness.response(404, missing), to: .findGroup, .findGroup)
                == Text(status: 404, body: missing))
        #expect(passedOn(Harness.response(401, ""), to: .user, .registerUser)?.body.contains("expired_token") == true)
    }

    @Test func existingUserOrGroup_andAnOpenOutcome_areNotPassedOn() {
        for status in [200, 400] {
            let duplicate = Harness.error(status, "duplicate_unique_property_exists")
            #expect(passedOn(duplicate, to: .user, .registerUser) == nil)
            #expect(passedOn(duplicate, to: .createGroup, .createGroup) == nil)
        }
        for response in [
            Harness.response(503, "<html>"), Harness.response(200, "<html>"), Harness.error(503, "service_unavailable"),
            Harness.response(401, #"{"fault":{"detail":{"errorcode":"oauth.v2.InvalidApiKey"}}}"#),
        ] {
            #expect(passedOn(response, to: .device, .registerDevice) == nil)
        }
    }
}
