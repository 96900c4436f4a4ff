import PosternConformance
import PosternSimulatorKit
import PosternTestKit
import Testing

@testable import AppServicesSimulator

private let u1 = "ffffffff54d00d1e0b07c0de5eed0011"
private let d1 = "c0ffee11-2233-4455-8677-8899aabbccdd"
private let base = "/appservices/acme/campus-dev"
private let addition = vector(10).with(path: base + "/groups/bio/users/\(u1)")
private let lookUp = vector(8).with(path: base + "/groups/bio")
private let creation = vector(9).with(body: #"{"path":"bio","title":"bio"}"#)
private let removal = vector(11).with(path: base + "/groups/bio/users/\(u1)")

/// Which requests may follow which (specification, sections 3.4, 4.11, 5 and 6).
@Suite struct AppServicesSequenceTests {
    private func sending(_ requests: SimulatedRequest..., control: String = "") -> [String] {
        let client = AppServicesClient(control)
        for request in requests { client.send(request) }
        return client.violations
    }

    private func connect(_ user: String, token: String) -> SimulatedRequest {
        vector(3).with(path: base + "/users/\(user)/devices/\(d1)").with(token: token)
    }
    private func disconnect(_ user: String, token: String) -> SimulatedRequest {
        vector(12).with(path: base + "/users/\(user)/devices/\(d1)").with(token: token)
    }
    private func registerUser(_ user: String, token: String) -> SimulatedRequest {
        vector(2).with(body: #"{"username":"\#(user)"}"#).with(token: token)
    }

    // MARK: Registration

    @Test func connect_needsARegisteredDevice() {
        let violation = ["connect: the device is not registered"]
        #expect(sending(vector(2), vector(3)) == violation)
        #expect(sending(vector(2), vector(1), vector(3)).isEmpty)
        #expect(sending(vector(1).lost, vector(2), vector(3)) == violation)
        #expect(sending(vector(1).lost, vector(1), vector(2), vector(3).lost, vector(3)).isEmpty)
        #expect(sending(vector(1), vector(2), vector(3), vector(12), vector(13), vector(3)) == violation)
        #expect(sending(vector(2), vector(3), control: #"{"devices":{"\#(d1)":{}}}"#).isEmpty)
    }

    @Test func connect_afterNotFound_needsANewRegistration() {
        let client = AppServicesClient()
        #expect(client.statuses(vector(1), vector(3), vector(1), vector(2), vector(3)) == [200, 404, 200, 200, 200])
        #expect(client.violations.isEmpty)
        client.control(#"{"remove":{"users":["\#(u1)"]}}"#)
        client.statuses(vector(3), vector(1), vector(3), vector(1), vector(3))
        #expect(client.violations.isEmpty)
        client.send(vector(3))
        #expect(client.violations == ["connect: not found before, and the device was not registered again"])
    }

    @Test func preferences_needARegisteredDevice_andItsConnect() {
        #expect(sending(vector(4)) == ["preferences: the device was never registered"])
        #expect(
            sending(vector(1), vector(2), vector(4)) == ["preferences: the registration of \(d1) is not connected yet"])
        #expect(
            sending(vector(1), vector(2), vector(3).lost, vector(4)) == [
                "preferences: the registration of \(d1) is not connected yet"
            ])
        #expect(sending(vector(1), vector(2), vector(3), vector(4), vector(1), vector(5), vector(3), vector(4)).isEmpty)
        // Ended as permanent: the next item of the device may come.
        #expect(sending(vector(1), vector(3), vector(4)).isEmpty)
    }

    @Test func preferences_doNotWait_forAnotherUsersRegistration() {
        #expect(
            sending(
                vector(1), vector(2), vector(3), vector(1).with(token: "b"), registerUser("b", token: "b"), vector(4),
                connect("b", token: "b")
            )
            .isEmpty)
        #expect(
            sending(
                vector(1).with(token: "b"), registerUser("b", token: "b"), vector(4).with(token: "c"),
                control: """
                    {"tokens":[{"token":"b","user":"b"},{"token":"c","user":"B"}]}
                    """) == ["preferences: the registration of \(d1) is not connected yet"])
    }

    @Test func refusedConnect_isResumed_withANewToken() {
        let client = AppServicesClient()
        client.statuses(vector(1), vector(2))
        client.control(#"{"invalidateToken":["PiTok-7f.abc_DEF~123"]}"#)
        #expect(client.send(vector(3)).usergridError == "auth_bad_access_token")
        #expect(client.statuses(vector(3).with(token: "new"), vector(4).with(token: "new")) == [200, 200])
        #expect(client.violations.isEmpty)
    }

    @Test func step_thatIsRefusedTwice_orUnreadable_isGivenUp() {
        func violations(_ answers: String, tokens: [String]) -> [String] {
            let client = AppServicesClient(
                #"{"answers":[\#(answers)],"tokens":[{"token":"last","user":"\#(u1)"}]}"#)
            client.statuses(vector(1), vector(2))
            for token in tokens { client.send(vector(3).with(token: token)) }
            client.send(vector(4).with(token: "last"))
            return client.violations
        }
        let refusal = #"{"step":"connect","status":401,"times":2}"#
        #expect(violations(refusal, tokens: ["a"]) == ["preferences: the registration of \(d1) is not connected yet"])
        #expect(violations(refusal, tokens: ["a", "b"]).isEmpty)
        #expect(violations(#"{"step":"connect","status":200,"body":"<html>"}"#, tokens: ["a"]).isEmpty)
    }

    // MARK: Unregistration

    @Test func blanking_needsADisconnectBefore() {
        let violation = ["unregister_device: the user was not disconnected before"]
        #expect(sending(vector(1), vector(2), vector(3), vector(13)) == violation)
        #expect(sending(vector(1), vector(2), vector(3), vector(12), vector(1), vector(13)) == violation)
        #expect(sending(vector(1), vector(2), vector(3), vector(12).lost, vector(13)) == violation)
        #expect(sending(vector(1), vector(2), vector(3), vector(12), vector(13).lost, vector(13)).isEmpty)
        // Neither of the two exists: not found means done.
        #expect(sending(vector(12), vector(13)).isEmpty)
        #expect(sending(vector(13)) == violation)
    }

    @Test func blanking_usesTheNotifierOfTheRegistration() {
        let other = vector(13).with(body: #"{"mi-dist.notifier.id":"","type":"device","uuid":"\#(d1)"}"#)
        #expect(
            sending(vector(1), vector(2), vector(3), vector(12), other) == [
                "unregister_device: another notifier than the device is registered with"
            ])
    }

    @Test func blanking_isLeftOut_whenAnotherUserHasTheDevice() {
        let client = AppServicesClient()
        client.register()
        client.statuses(vector(1).with(token: "b"), registerUser("b", token: "b"), connect("b", token: "b"))
        client.send(vector(12))
        #expect(client.violations.isEmpty)
        client.send(vector(13))
        #expect(client.violations == ["unregister_device: another user has registered the device since"])
    }

    @Test func blanking_isExcused_whileTheOtherRegistrationHasJustBegun() {
        for (pause, isNoted) in [(50, false), (150, true)] {
            let client = AppServicesClient(
                #"{"tokens":[{"token":"b","user":"b"},{"token":"PiTok-7f.abc_DEF~123","user":"\#(u1)"}]}"#)
            client.register()
            client.statuses(vector(12), vector(1).with(token: "b"))
            client.time.advance(by: .milliseconds(pause))
            client.send(vector(13))
            #expect(client.violations.isEmpty != isNoted)
        }
    }

    // MARK: Tokens

    @Test func refusedToken_isNotSentAgain() {
        let client = AppServicesClient(#"{"invalidateToken":["PiTok-7f.abc_DEF~123"]}"#)
        client.send(vector(1))
        #expect(client.violations.isEmpty)
        client.send(vector(1))
        #expect(client.violations == ["register_device: a refused token is sent again"])
        // A user's registration may be in flight next to the device's.
        client.send(vector(2))
        #expect(client.violations.count == 1)
        client.time.advance(by: .milliseconds(101))
        client.send(vector(2))
        #expect(client.violations.count == 2)
    }

    @Test func refusedToken_isExcused_whenTheAnswerWasLost_orWhileInFlightInAnotherLane() {
        let client = AppServicesClient(#"{"invalidateToken":["PiTok-7f.abc_DEF~123"]}"#)
        client.statuses(vector(1).lost, vector(1), vector(8))
        #expect(client.violations.isEmpty)
        client.time.advance(by: .milliseconds(101))
        client.send(vector(8))
        #expect(client.violations == ["get_group: a refused token is sent again"])
    }

    @Test func tokenOfAnotherUser_isRefused_andIsAViolation() {
        let client = AppServicesClient(#"{"tokens":[{"token":"b","user":"b"}]}"#)
        client.send(vector(1).with(token: "b"))
        let answer = client.send(vector(2).with(token: "b"))
        #expect(answer.usergridError == "unauthorized")
        #expect(client.violations == ["register_user: one user's token for another user"])
        client.control(#"{"reset":true,"bindTokens":true}"#)
        client.statuses(vector(2), registerUser("b", token: "PiTok-7f.abc_DEF~123"))
        #expect(client.violations.count == 2)
    }

    @Test func statusMadeUp_isAnAnswer_likeTheOthers() {
        let client = AppServicesClient()
        #expect(client.simulator.answer(status: 401, to: vector(1)).status == 401)
        client.send(vector(1))
        #expect(client.violations == ["register_device: a refused token is sent again"])
        let other = AppServicesClient(#"{"users":["\#(u1)"]}"#)
        _ = other.simulator.answer(status: 503, to: lookUp)
        #expect(other.violations(of: creation) == ["create_group: no look-up said that the group is missing"])
        _ = other.simulator.answer(status: 404, to: lookUp)
        #expect(other.violations(of: creation).isEmpty)
        _ = other.simulator.answer(status: 403, to: vector(12))
        #expect(other.violations(of: vector(13)).isEmpty)
    }

    // MARK: Groups

    @Test func creation_needsALookUpThatFoundNothing() {
        let violation = ["create_group: no look-up said that the group is missing"]
        let users = #"{"users":["\#(u1)"]}"#
        #expect(sending(creation, addition, control: users) == violation)
        #expect(sending(lookUp.lost, creation, control: users) == violation)
        #expect(sending(lookUp, creation.lost, creation, addition, control: users).isEmpty)
        #expect(
            sending(lookUp, creation, control: #"{"invalidateToken":["PiTok-7f.abc_DEF~123"],"graceMilliseconds":0}"#)
                == ["create_group: a refused token is sent again"] + violation)
        #expect(
            sending(lookUp, creation, control: #"{"onlyExistingGroups":true}"#) == [
                "create_group: only existing groups are to be used"
            ])
    }

    @Test func creation_isRight_inBothStylesOfNotFound() {
        for style in ["401", "404"] {
            let client = AppServicesClient(#"{"style":"\#(style)","users":["\#(u1)"]}"#)
            #expect(client.statuses(lookUp, creation, addition) == [Int(style), 200, 200])
            #expect(client.violations.isEmpty)
        }
    }

    @Test func group_thatIsMissing_getsNothingMore() {
        let users = #"{"users":["\#(u1)"]}"#
        #expect(sending(lookUp, addition, control: users) == ["add_user: the group is missing"])
        #expect(sending(lookUp, removal, control: users) == ["remove_user: the group is missing"])
        #expect(sending(lookUp, creation, removal, control: users).isEmpty)
        // Remembered.
        #expect(sending(addition, control: #"{"users":["\#(u1)"],"groups":{"bio":[]}}"#).isEmpty)
    }

    @Test func addition_afterNotFound_needsALookUp_once() {
        let group = #"{"groups":{"bio":[]}}"#
        let violation = ["add_user: not found before, and the group was not looked up again"]
        #expect(sending(addition, addition, control: group) == violation)
        #expect(sending(addition, lookUp, addition, addition, control: group).isEmpty)
        #expect(sending(addition, lookUp, addition, addition, addition, control: group) == violation)
    }

    // MARK: Metrics

    @Test func metrics_areNotRepeated_whenTheAnswerIsUnclear() {
        let violation = ["metrics: metrics are sent again"]
        #expect(sending(vector(15), vector(15)).isEmpty)
        #expect(sending(vector(15).lost, vector(15)) == violation)
        #expect(
            sending(vector(15), vector(15), control: #"{"answers":[{"step":"metrics","status":500}]}"#) == violation)
        let client = AppServicesClient()
        _ = client.simulator.answer(status: 503, to: vector(15))
        #expect(client.violations(of: vector(15)) == violation)
    }

    // MARK: What an answer tells (V17 and section 10)

    static let answers: [(Int, String, Call.Step, KnownResult)] = [
        (200, #"{"entities":[{"uuid":"x","type":"device"}]}"#, .connect, .ok),
        (200, #"{"application":"x","timestamp":1,"duration":1}"#, .connect, .refusedToken),
        (200, #"{"entities":[]}"#, .connect, .refusedToken),
        (400, #"{"error":"duplicate_unique_property_exists"}"#, .registerUser, .done),
        (400, #"{"error":"duplicate_unique_property_exists"}"#, .createGroup, .done),
        (400, #"{"error":"duplicate_unique_property_exists"}"#, .connect, .permanent),
        (401, #"{"error":"service_resource_not_found"}"#, .getGroup, .notFound),
        (404, #"{"error":"entity_not_found"}"#, .getGroup, .notFound),
        (401, #"{"error":"expired_token"}"#, .getGroup, .refusedToken),
        (200, #"{"error":"expired_token","entities":[{}]}"#, .getGroup, .refusedToken),
        (404, #"{"error":"organization_application_not_found"}"#, .getGroup, .configuration),
        (401, #"{"fault":{"detail":{"errorcode":"oauth.v2.InvalidApiKey"}}}"#, .getGroup, .configuration),
        (
            401, #"{"fault":{"detail":{"errorcode":"keymanagement.service.access_token_expired"}}}"#, .getGroup,
            .refusedToken
        ),
        (500, #"{"fault":{"detail":{"errorcode":"policies.ratelimit.QuotaViolation"}}}"#, .getGroup, .retry),
        (404, #"{"fault":{"detail":{"errorcode":"CLASSIFICATION_FAILURE"}}}"#, .getGroup, .configuration),
        (403, #"{"fault":{"detail":{"errorcode":"other"}}}"#, .getGroup, .permanent),
        (401, "", .getGroup, .refusedToken), (403, #"{"error":"forbidden_service_operation"}"#, .connect, .permanent),
        (503, "<html>", .connect, .retry), (500, #"{"error":"other"}"#, .connect, .retry),
        (429, "", .connect, .retry), (404, "", .getGroup, .notFound), (302, "", .connect, .configuration),
        (422, "", .connect, .permanent), (200, "<html>", .connect, .unreadable),
    ]

    @Test func answers_tellTheBodyBeforeTheStatus() {
        for (status, body, step, told) in Self.answers {
            #expect(
                KnownResult(SimulatedAnswer(status: status, body: Array(body.utf8)), to: step) == told,
                "\(status) \(body)")
        }
    }
}
