import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import AppServicesAdapter

/// Sections 5 and 6 of the specification: the order of requests, and what follows a failure.
@Suite struct AppServicesSequenceTests {
    private typealias Items = AppServicesItems
    private typealias Harness = AppServicesHarness

    private static func answers(_ special: [String: UpstreamResponse]) -> (UpstreamRequest) -> UpstreamResponse {
        { special[$0.step ?? ""] ?? Harness.usual($0) }
    }

    private static let refusal = Harness.error(400, "illegal_argument")
    private static let missing = Harness.error(404, "entity_not_found")
    private static let full = ["registerDevice", "registerUser", "connect", "savePreferences"]

    // MARK: Registration

    @Test(arguments: [("registerDevice", 9), ("registerUser", 7), ("connect", 1)])
    func refusedStep_endsTheRegistration(step: String, code: Int) throws {
        var harness = try Harness()
        let id = try harness.post("register", Items.registration(Items.u1, Items.lists))
        let steps = try harness.steps(id, answer: Self.answers([step: Self.refusal]))
        #expect(steps == Array(Self.full.prefix(through: try #require(Self.full.firstIndex(of: step)))))
        #expect(harness.ended[id]?.state == .failed)
        #expect(
            harness.ended[id]?.reason == "\(step): HTTP 400: illegal_argument: words (code \(code))")
    }

    @Test func refusedPreferences_leaveTheRegistrationComplete() throws {
        var harness = try Harness()
        let id = try harness.post("register", Items.registration(Items.u1, Items.lists))
        #expect(try harness.steps(id, answer: Self.answers(["savePreferences": Self.refusal])) == Self.full)
        #expect(harness.ended[id]?.state == .failed)
        #expect(harness.ended[id]?.reason.contains("the registration itself is complete") == true)
        let pair = harness.state.pair(Items.u1, Items.device)
        #expect(pair.isConnected && pair.isDeviceRegistered && harness.state.isUserKnown(Items.u1))
    }

    @Test func missingDeviceOrUser_isRegisteredOnceMore_andThenRefused() throws {
        for kind in ["register", "reregister"] {
            var harness = try Harness()
            let id = try harness.post(kind, Items.registration())
            let steps = try harness.steps(id, answer: Self.answers(["connect": Self.missing]))
            let first = kind == "register" ? Array(Self.full.prefix(3)) : ["registerDevice", "connect"]
            #expect(steps == first + Self.full.prefix(3))
            #expect(harness.ended[id]?.state == .failed)
        }
    }

    @Test func missingDevice_foundInTheSecondRound_isConnected() throws {
        var harness = try Harness()
        let id = try harness.post("reregister", Items.registration())
        var connects = 0
        let steps = try harness.steps(id) { request in
            guard request.step == "connect" else { return Harness.usual(request) }
            connects += 1
            return connects == 1 ? Self.missing : Harness.usual(request)
        }
        #expect(steps == ["registerDevice", "connect"] + Self.full.prefix(3))
        #expect(harness.ended[id]?.state == .delivered)
    }

    @Test(arguments: 0..<4)
    func outage_isResumedAtItsStep(failingAt: Int) throws {
        var harness = try Harness()
        let id = try harness.post("register", Items.registration(Items.u1, Items.lists))
        let outage = Harness.response(503, "<html>")
        let before = try harness.steps(id, answer: Self.answers([Self.full[failingAt]: outage]))
        #expect(before == Array(Self.full.prefix(failingAt + 1)))
        #expect(try harness.steps(id) == Array(Self.full.dropFirst(failingAt)))
        #expect(harness.ended[id]?.state == .delivered)
    }

    @Test func storedPreferences_arePostedAgain_byEveryRegistration() throws {
        var harness = try Harness()
        let first = try harness.post("register", Items.registration(Items.u1, Items.lists))
        _ = try harness.steps(first)
        let second = try harness.post("reregister", Items.registration())
        #expect(try harness.steps(second) == ["registerDevice", "connect", "savePreferences"])
        // The lists belong to the device: the next user inherits them.
        let third = try harness.post("register", Items.registration("20981743", token: "another"))
        let requests = try harness.run(third, answer: Harness.usual)
        #expect(requests.map(\.step) == Self.full)
        #expect(requests[3].body == (try Fixture.bytes("v4.http")).suffix(107))
    }

    // MARK: Unregistration

    @Test func refusedDisconnect_isFollowedByBlanking_andReported() throws {
        var harness = try Harness()
        let id = try harness.post("unregister", Items.item())
        let forbidden = Harness.error(403, "forbidden_service_operation")
        #expect(
            try harness.steps(id, answer: Self.answers(["disconnect": forbidden])) == ["disconnect", "blankToken"])
        #expect(harness.ended[id]?.state == .failed)
        #expect(harness.ended[id]?.reason.contains("disconnect HTTP 403") == true)
        #expect(harness.ended[id]?.reason.contains("the push token is blanked") == true)
        #expect(harness.state.pair(Items.u1, Items.device).isConnected, "as far as it is known")
    }

    /// What is stored with the message, and is the reason if F is left out, is not a text of AppServices.
    @Test(arguments: [
        (403, "forbidden_service_operation", "forbidden_service_operation"),
        (403, Items.u1Token, "an error that is not known"),
    ])
    func refusedDisconnect_isReportedWithoutItsText(status: Int, code: String, reason: String) throws {
        var harness = try Harness()
        let id = try harness.post("unregister", Items.item())
        try harness.post("register", Items.registration("20981743", token: "another"))
        let description = Harness.key + Items.u1Token + String(repeating: "x", count: 5000)
        let refusal = Harness.response(status, #"{"error":"\#(code)","error_description":"\#(description)"}"#)
        #expect(try harness.steps(id, answer: Self.answers(["disconnect": refusal])) == ["disconnect"])
        #expect(harness.ended[id]?.state == .failed)
        #expect(harness.ended[id]?.reason == "disconnect HTTP \(status): \(reason)")
    }

    @Test func refusedToken_parksDisconnectAndBlanking() throws {
        var harness = try Harness()
        let id = try harness.post("unregister", Items.item())
        #expect(
            try harness.steps(id, answer: Self.answers(["disconnect": Harness.error(401, "expired_token")])) == [
                "disconnect"
            ]
        )
        #expect(try harness.plan(id) == .park)
        harness.hold("new", of: Items.u1)
        #expect(try harness.steps(id) == ["disconnect", "blankToken"])
    }

    @Test func outage_isResumedAtDisconnect() throws {
        var harness = try Harness()
        let id = try harness.post("unregister", Items.item())
        #expect(
            try harness.steps(id, answer: Self.answers(["disconnect": Harness.response(503, "")])) == ["disconnect"])
        #expect(try harness.steps(id) == ["disconnect", "blankToken"])
    }

    @Test func blanking_usesTheNotifierThatTheDeviceWasRegisteredWith() throws {
        var harness = try Harness()
        let register = try harness.post("register", Items.registration(Items.u1, #","notifier":"apple-distribution""#))
        _ = try harness.steps(register)
        func body(_ members: String) throws -> String {
            let id = try harness.post("unregister", Items.item(Items.u1, members))
            return String(decoding: try #require(try harness.run(id, answer: Harness.usual).last).body, as: UTF8.self)
        }
        #expect(try body("").hasPrefix(#"{"apple-distribution.notifier.id":"""#))
        #expect(try body(#","notifier":"other""#).hasPrefix(#"{"other.notifier.id":"""#))
    }

    /// The setting may have changed since (4.6).
    @Test func blanking_usesTheDefaultNotifierOfTheRegistration() throws {
        var harness = try Harness(["notifier": .text("apple-distribution")])
        _ = try harness.steps(try harness.post("register", Items.registration()))
        var next = try Harness(["notifier": .text("other")])
        next.state = harness.state
        func body() throws -> String {
            let id = try next.post("unregister", Items.item())
            return String(decoding: try #require(try next.run(id, answer: Harness.usual).last).body, as: UTF8.self)
        }
        #expect(try body().hasPrefix(#"{"apple-distribution.notifier.id":"""#))
        // As an earlier version has recorded it.
        var device = next.state.device(Items.device)
        device.notifier = ""
        next.state.apply([.set(key: Device.key(Items.device), value: device.stored)])
        #expect(try body().hasPrefix(#"{"other.notifier.id":"""#))
    }

    // MARK: What later items make pointless (5.4)

    @Test func laterRegistration_replacesAnUnsentOne() throws {
        var harness = try Harness()
        let first = try harness.post("register", Items.registration(Items.u1, Items.lists))
        let second = try harness.post("register", Items.registration())
        #expect(try harness.steps(first) == [])
        #expect(harness.ended[first]?.state == .cancelled)
        #expect(try harness.steps(second) == Self.full, "the lists were stored with the first")
    }

    @Test func laterReregistration_doesNotReplaceARegistration_whichAlsoRegistersTheUser() throws {
        var harness = try Harness()
        let first = try harness.post("register", Items.registration())
        let second = try harness.post("reregister", Items.registration())
        #expect(try harness.steps(first) == Array(Self.full.prefix(3)))
        #expect(try harness.steps(second) == ["registerDevice", "connect"])
        let third = try harness.post("reregister", Items.registration())
        let fourth = try harness.post("reregister", Items.registration())
        #expect(try harness.steps(third) == [])
        #expect(try harness.steps(fourth) == ["registerDevice", "connect"])
    }

    @Test func begunRegistration_isNotReplaced() throws {
        var harness = try Harness()
        let first = try harness.post("register", Items.registration())
        _ = try harness.steps(first, answer: Self.answers(["connect": Harness.response(503, "")]))
        try harness.post("register", Items.registration())
        try harness.post("unregister", Items.item())
        #expect(try harness.steps(first) == ["connect"])
        #expect(harness.ended[first]?.state == .delivered)
    }

    @Test func laterUnregistration_makesAnUnsentRegistrationPointless_exceptForTheUser() throws {
        var harness = try Harness()
        let register = try harness.post("register", Items.registration())
        let unregister = try harness.post("unregister", Items.item())
        #expect(try harness.steps(register) == ["registerUser"])
        #expect(harness.ended[register]?.state == .cancelled)
        #expect(try harness.steps(unregister) == ["disconnect", "blankToken"])
    }

    /// Both register the same device while the platform is away; the first user's group comes later.
    @Test func supersededRegistration_stillRegistersItsUser_whomLaterItemsNeed() throws {
        var harness = try Harness()
        let other = "ffffffff54d00d1e0b07c0de5eed0022"
        let first = try harness.post("register", Items.registration())
        let second = try harness.post("register", Items.registration(other))
        #expect(try harness.steps(first) == ["registerUser"])
        #expect(harness.ended[first]?.state == .cancelled)
        #expect(try harness.steps(second).prefix(3) == Self.full.prefix(3))
        let group = try harness.post("group_add", Items.group())
        #expect(try harness.steps(group) == ["findGroup", "addToGroup"])
        let again = try harness.post("register", Items.registration())
        try harness.post("register", Items.registration(other))
        #expect(try harness.steps(again) == [], "the user is known")
    }

    @Test func pointlessRegistration_stillRegistersAUserWhomGroupsWaitFor() throws {
        var harness = try Harness()
        let register = try harness.post("register", Items.registration())
        let group = try harness.post("group_add", Items.group())
        try harness.post("unregister", Items.item())
        #expect(try harness.plan(group) == .wait(.order, until: harness.now + .seconds(5)))
        #expect(try harness.steps(register) == ["registerUser"])
        #expect(harness.ended[register]?.state == .cancelled)
        #expect(try harness.steps(group) == ["findGroup", "addToGroup"])
    }

    /// The later one of the new owner's registrations fails, so only the earlier one has reached AppServices.
    @Test func failedSecondRegistration_leavesTheDeviceToItsNewOwner() throws {
        var harness = try Harness()
        let unregister = try harness.post("unregister", Items.item())
        let expired = Harness.error(401, "expired_token")
        #expect(try harness.steps(unregister, answer: Self.answers(["disconnect": expired])) == ["disconnect"])
        let other = "ffffffff54d00d1e0b07c0de5eed0022"
        let first = try harness.post("register", Items.registration(other, token: "another"))
        let second = try harness.post("reregister", Items.registration(other, token: "another"))
        #expect(try harness.steps(first) == Array(Self.full.prefix(3)))
        #expect(
            try harness.steps(second, answer: Self.answers(["registerDevice": Self.refusal])) == ["registerDevice"])
        harness.hold("renewed", of: Items.u1)
        #expect(try harness.steps(unregister) == ["disconnect"])
        #expect(harness.ended[unregister]?.state == .delivered)
    }

    /// What its owner had registered before another user did is not the later registration.
    @Test func registrationFromBeforeAnotherUsers_doesNotReplaceThat() throws {
        var harness = try Harness()
        let first = try harness.post("register", Items.registration())
        let request = try harness.begin(first).request
        let other = "ffffffff54d00d1e0b07c0de5eed0022"
        let second = try harness.post("register", Items.registration(other, token: "another"))
        let third = try harness.post("reregister", Items.registration())
        try harness.judge(Harness.usual(request), to: request, of: first)
        #expect(try harness.steps(first) == ["registerUser", "connect"])
        #expect(try harness.steps(third, answer: Self.answers(["registerDevice": Self.refusal])) == ["registerDevice"])
        #expect(try harness.steps(second) == Array(Self.full.prefix(3)))
    }

    @Test func cancelledLaterItem_replacesNothing() throws {
        var harness = try Harness()
        let first = try harness.post("register", Items.registration())
        let second = try harness.post("register", Items.registration())
        harness.state.open.remove(second)
        #expect(try harness.steps(first) == Array(Self.full.prefix(3)))
    }

    @Test func laterPreferences_replaceUnsentOnes_ofTheDevice() throws {
        var harness = try Harness()
        let register = try harness.post("register", Items.registration())
        _ = try harness.steps(register)
        let first = try harness.post("preferences", Items.item(Items.u1, #","preferences":{}"#))
        let second = try harness.post("preferences", Items.item(Items.u1, Items.lists))
        #expect(try harness.steps(first) == [])
        #expect(harness.ended[first]?.state == .cancelled)
        let requests = try harness.run(second, answer: Harness.usual)
        #expect(requests.map(\.spelledOut) == [try Fixture.bytes("v4.http")])
        #expect(harness.state.preferences(of: Items.device)?.isSent == true)
    }

    // MARK: Preferences

    @Test func preferences_needARegistration() throws {
        var harness = try Harness()
        let text = Items.item(Items.u1, Items.lists)
        #expect(throws: AcceptanceError(.conflict, "the device was never registered here; send a register item first"))
        {
            try harness.post("preferences", text)
        }
        let register = try harness.post("register", Items.registration())
        let preferences = try harness.post("preferences", text)
        #expect(try harness.plan(preferences) == .wait(.order, until: harness.now + .seconds(5)))
        _ = try harness.steps(register, answer: Self.answers(["registerDevice": Self.refusal]))
        #expect(try harness.steps(preferences) == [])
        #expect(harness.ended[preferences]?.state == .failed, "a PUT would make a device without a push token")
    }

    @Test func preferencesBetweenAReplacedRegistrationAndTheNext_areLeftToThatOne() throws {
        var harness = try Harness()
        let first = try harness.post("register", Items.registration())
        let preferences = try harness.post("preferences", Items.item(Items.u1, Items.lists))
        let second = try harness.post("register", Items.registration())
        #expect(try harness.steps(first) == [])
        #expect(try harness.steps(preferences) == [], "it does not wait for what is behind it")
        #expect(harness.ended[preferences]?.state == .cancelled)
        let requests = try harness.run(second, answer: Harness.usual)
        #expect(requests.map(\.step) == Self.full)
        #expect(requests[3].body == (try Fixture.bytes("v4.http")).suffix(107))
    }

    @Test func preferencesOfADevice_thatWasUnregisteredBeforeItWasRegistered_areKept() throws {
        var harness = try Harness()
        let register = try harness.post("register", Items.registration())
        let unregister = try harness.post("unregister", Items.item())
        let preferences = try harness.post("preferences", Items.item(Items.u1, Items.lists))
        #expect(try harness.steps(register) == ["registerUser"])
        #expect(try harness.steps(unregister) == ["disconnect", "blankToken"])
        #expect(try harness.steps(preferences) == [])
        #expect(harness.ended[preferences]?.state == .cancelled)
        let again = try harness.post("register", Items.registration())
        #expect(try harness.steps(again) == Self.full)
    }

    @Test func revision_isSentOnlyWhenItIsTheOneThatWasTaken() throws {
        var harness = try Harness()
        _ = try harness.steps(try harness.post("register", Items.registration()))
        let first = try harness.post("preferences", Items.item(Items.u1, Items.lists))
        guard case .send(let request, _) = try harness.plan(first) else { return #expect(Bool(false)) }
        let second = try harness.post("preferences", Items.item(Items.u1, #","preferences":{}"#))
        try harness.judge(Harness.usual(request), to: request, of: first)
        #expect(harness.state.preferences(of: Items.device)?.isSent == false)
        _ = try harness.steps(second)
        #expect(harness.state.preferences(of: Items.device)?.isSent == true)
    }

    // MARK: Groups

    @Test func group_isNotCreated_afterALookUpThatFailedOtherwise() throws {
        for answer in [Harness.response(503, ""), Harness.error(401, "expired_token"), Harness.error(403, "x")] {
            var harness = try Harness()
            let id = try harness.post("group_add", Items.group())
            #expect(try harness.steps(id, answer: Self.answers(["findGroup": answer])) == ["findGroup"])
        }
    }

    @Test func memberNotFound_isSearchedOnceMore() throws {
        var harness = try Harness()
        let id = try harness.post("group_add", Items.group())
        let steps = try harness.steps(id, answer: Self.answers(["addToGroup": Self.missing]))
        #expect(steps == ["findGroup", "addToGroup", "findGroup", "addToGroup"])
        #expect(harness.ended[id]?.state == .failed)
    }

    @Test func groupItem_waitsForTheUsersRegistration_unlessTheUserIsKnown() throws {
        var harness = try Harness()
        let register = try harness.post("register", Items.registration())
        let group = try harness.post("group_add", Items.group("FFFFFFFF54d00d1e0b07c0de5eed0011"))
        #expect(try harness.plan(group) == .wait(.order, until: harness.now + .seconds(5)))
        _ = try harness.steps(register)
        #expect(try harness.steps(group) == ["findGroup", "addToGroup"])
        try harness.post("register", Items.registration())
        let another = try harness.post("group_remove", Items.group())
        #expect(try harness.steps(another) == ["findGroup", "removeFromGroup"])
    }

    // MARK: Tokens

    @Test func doubtfulRefusal_isPermanent_whenAFreshTokenGetsItToo() throws {
        for body in [#"{"timestamp":1}"#, #"{"error":"unauthorized"}"#] {
            var harness = try Harness()
            let id = try harness.post("group_add", Items.group())
            let answer = Harness.response(body.contains("error") ? 401 : 200, body)
            #expect(try harness.steps(id) { _ in answer } == ["findGroup"])
            #expect(harness.isOpen(id) && harness.parked == [Items.u1])
            harness.hold("second", of: Items.u1)
            #expect(try harness.steps(id) { _ in answer } == ["findGroup"])
            #expect(harness.ended[id]?.state == .failed)
            #expect(harness.state.credential(of: Items.u1)?.isRefused == false, "it is not the token")
        }
    }

    @Test func plainRefusals_areNeverTheMessagesFault() throws {
        var harness = try Harness()
        let id = try harness.post("group_add", Items.group())
        for number in 0..<10 {
            _ = try harness.steps(id) { _ in Harness.error(401, "expired_token") }
            #expect(harness.isOpen(id))
            harness.hold("token-\(number)", of: Items.u1)
        }
        #expect(try harness.steps(id) == ["findGroup", "addToGroup"])
    }

    @Test func refusedToken_isNeverSentAgain_evenIfHandedInAgain() throws {
        var harness = try Harness()
        let first = try harness.post("group_add", Items.group())
        _ = try harness.steps(first) { _ in Harness.error(401, "expired_token") }
        let second = try harness.post("group_remove", Items.group())
        #expect(try harness.plan(first) == .park)
        #expect(try harness.plan(second) == .park)
        let other = try harness.post("group_add", Items.group("20981743"))
        #expect(try harness.steps(other) == ["findGroup", "addToGroup"], "of another user it is another token")
    }

    @Test func newestToken_isUsedForAllItemsOfItsUser_andOfNoOther() throws {
        var harness = try Harness()
        let first = try harness.post("group_add", Items.group(token: "old"))
        let other = try harness.post("group_add", Items.group("20981743", token: "others"))
        try harness.post("group_add", Items.group(token: "new"))
        func token(_ id: MessageID) throws -> String? {
            guard case .send(let request, _) = try harness.plan(id) else { return nil }
            return request.headers.first { $0.name == "Authorization" }?.value
        }
        #expect(try token(first) == "Bearer new")
        #expect(try token(other) == "Bearer others")
    }

    @Test func announcedExpiry_parksWithoutFindingOut() throws {
        var harness = try Harness()
        let text = #"{"userId":"u","group":"g","auth":{"token":"T","expiresIn":"1799"}}"#
        let id = try harness.post("group_add", text)
        harness.now = harness.now + .seconds(1798)
        guard case .send = try harness.plan(id) else { return #expect(Bool(false)) }
        harness.now = harness.now + .seconds(1)
        #expect(try harness.plan(id) == .park)
    }

    @Test func lateAnswerToAFormerToken_refusesThatOne() throws {
        var harness = try Harness()
        let id = try harness.post("group_add", Items.group())
        guard case .send(let request, _) = try harness.plan(id) else { return #expect(Bool(false)) }
        harness.hold("new", of: Items.u1)
        let version = harness.state.credential(of: Items.u1)?.version
        let judgement = try harness.judge(Harness.error(401, "expired_token"), to: request, of: id)
        #expect(judgement.verdict == .park)
        #expect(request.credentialVersion != version)
        #expect(
            harness.lastChanges == [.refuse(credentialOf: Items.u1, version: try #require(request.credentialVersion))])
        #expect(harness.state.credential(of: Items.u1)?.isRefused == false)
        #expect(try harness.steps(id) == ["findGroup", "addToGroup"])
    }

    @Test func tokenThatAnAnswerEchoes_isNotInTheReason() throws {
        var harness = try Harness()
        let id = try harness.post("group_add", Items.group())
        let answer = Harness.response(
            400, #"{"error":"illegal_argument","error_description":"\#(Items.u1Token) and \#(Harness.key)"}"#)
        _ = try harness.steps(id) { _ in answer }
        #expect(harness.ended[id]?.reason == "findGroup: HTTP 400: illegal_argument: *** and *** (code 4)")
    }

    // MARK: Validation

    @Test func storedText_isThePayload_withoutItsToken() throws {
        var harness = try Harness()
        let text = #"{"auth":{"token":"T"}, "userId" : "u\u002e1","x":[1e400, {"auth":7}] ,"group":"g"}"#
        let id = try harness.post("group_add", text)
        let message = try #require(harness.messages[id])
        #expect(
            String(decoding: message.payload, as: UTF8.self)
                == #"{"userId":"u\u002e1","x":[1e400, {"auth":7}],"group":"g"}"#)
        #expect(message.lane == .named("u.1/groups", group: "u.1"))
    }

    @Test(arguments: [
        ("register", AppServicesItems.registration("me"), 7), ("register", AppServicesItems.registration(push: ""), 9),
        ("register", AppServicesItems.registration(AppServicesItems.u1, #","notifier":"a b""#), 9),
        ("reregister", "[]", 9), ("unregister", AppServicesItems.item(device: "x"), 8),
        ("group_add", AppServicesItems.group("a", "a b"), 4), ("group_remove", AppServicesItems.group("a", "a b"), 5),
        ("preferences", AppServicesItems.item("a", #","preferences":[]"#), 1),
        ("group_add", AppServicesItems.group(token: "(null)"), 1), ("metrics", "{}", 1),
    ])
    func rejection_hasTheFrameworksCode(kind: String, text: String, code: Int) throws {
        let upstream = AnyUpstream(try Harness(["monitoringEnabled": .bool(true)]).upstream)
        let rejection = #expect(throws: InvalidPayload.self) {
            try UpstreamFixture.appservices.validate(.init(Kind(kind), text), to: upstream)
        }
        #expect(rejection?.codes == ["appServicesCode": code])
    }

    @Test func lanes_arePerUserAndDevice_andGroupedByTheUserWhateverItsCase() throws {
        var harness = try Harness()
        let register = try harness.post("register", Items.registration("Pat.Lee@Example.edu"))
        let group = try harness.post("group_add", Items.group("pat.lee@example.EDU"))
        let owner = "pat.lee@example.edu"
        #expect(harness.messages[register]?.lane == .named("\(owner)/\(Items.device)", group: owner))
        #expect(harness.messages[group]?.lane == .named("\(owner)/groups", group: owner))
        let exclusion = try #require(harness.upstream.traits.exclusion)
        #expect(exclusion("\(owner)/\(Items.device)") == Items.device)
        #expect(exclusion("\(owner)/groups") == nil)
        #expect(exclusion("metrics") == nil)
    }

    @Test func unregistration_isKeptLongest() throws {
        let upstream = AnyUpstream(try Harness().upstream)
        func days(_ kind: Kind, _ text: String) throws -> Duration? {
            try UpstreamFixture.appservices.validate(.init(kind, text), to: upstream).valid.expiresAt
                .map { $0 - UpstreamFixture.now }
        }
        #expect(try days("group_add", Items.group()) == .seconds(7 * 86400))
        #expect(try days("unregister", Items.item()) == .seconds(28 * 86400))
        let patient = AnyUpstream(try Harness(["giveUpAfterSeconds": .integer(0)]).upstream)
        #expect(
            try UpstreamFixture.appservices.validate(.init("unregister", Items.item()), to: patient).valid.expiresAt
                == nil)
    }
}
