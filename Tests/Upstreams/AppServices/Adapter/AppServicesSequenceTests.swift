import PosternConformance
import PosternCore
import PosternTestKit
import Testing

@testable import AppServicesAdapter

/// Sections 5 and 6 of the specification: what follows what, and what follows a failure.
@Suite struct AppServicesSequenceTests {
    private typealias Items = AppServicesItems
    private typealias Desk = AppServicesDesk

    private static func answers(_ special: [String: UpstreamResponse]) -> (UpstreamRequest) -> UpstreamResponse {
        { special[$0.step ?? ""] ?? Desk.usual($0) }
    }

    private static let refusal = Desk.error(400, "illegal_argument")
    private static let missing = Desk.error(404, "entity_not_found")
    private static let full = ["register_device", "register_user", "connect", "save_preferences"]

    // MARK: Registration

    @Test(arguments: [("register_device", 9), ("register_user", 7), ("connect", 1)])
    func refusedStep_endsTheRegistration(step: String, code: Int) throws {
        var desk = try Desk()
        let id = try desk.post("register", Items.registration(Items.u1, Items.lists))
        let steps = try desk.steps(id, answer: Self.answers([step: Self.refusal]))
        #expect(steps == Array(Self.full.prefix(through: try #require(Self.full.firstIndex(of: step)))))
        #expect(desk.ended[id]?.state == .failed)
        #expect(
            desk.ended[id]?.reason == "\(step): HTTP 400: illegal_argument: words (code \(code))")
    }

    @Test func refusedPreferences_leaveTheRegistrationComplete() throws {
        var desk = try Desk()
        let id = try desk.post("register", Items.registration(Items.u1, Items.lists))
        #expect(try desk.steps(id, answer: Self.answers(["save_preferences": Self.refusal])) == Self.full)
        #expect(desk.ended[id]?.state == .failed)
        #expect(desk.ended[id]?.reason.contains("the registration itself is complete") == true)
        let pair = try desk.state.pair(Items.u1, Items.device)
        #expect(try pair.isConnected && pair.isDeviceRegistered && desk.state.isUserKnown(Items.u1))
    }

    @Test func missingDeviceOrUser_isRegisteredOnceMore_andThenRefused() throws {
        for kind in ["register", "reregister"] {
            var desk = try Desk()
            let id = try desk.post(kind, Items.registration())
            let steps = try desk.steps(id, answer: Self.answers(["connect": Self.missing]))
            let first = kind == "register" ? Array(Self.full.prefix(3)) : ["register_device", "connect"]
            #expect(steps == first + Self.full.prefix(3))
            #expect(desk.ended[id]?.state == .failed)
        }
    }

    @Test func missingDevice_foundInTheSecondRound_isConnected() throws {
        var desk = try Desk()
        let id = try desk.post("reregister", Items.registration())
        var connects = 0
        let steps = try desk.steps(id) { request in
            guard request.step == "connect" else { return Desk.usual(request) }
            connects += 1
            return connects == 1 ? Self.missing : Desk.usual(request)
        }
        #expect(steps == ["register_device", "connect"] + Self.full.prefix(3))
        #expect(desk.ended[id]?.state == .delivered)
    }

    @Test(arguments: 0..<4)
    func outage_isResumedAtItsStep(failingAt: Int) throws {
        var desk = try Desk()
        let id = try desk.post("register", Items.registration(Items.u1, Items.lists))
        let outage = Desk.response(503, "<html>")
        let before = try desk.steps(id, answer: Self.answers([Self.full[failingAt]: outage]))
        #expect(before == Array(Self.full.prefix(failingAt + 1)))
        #expect(try desk.steps(id) == Array(Self.full.dropFirst(failingAt)))
        #expect(desk.ended[id]?.state == .delivered)
    }

    @Test func storedPreferences_arePostedAgain_byEveryRegistration() throws {
        var desk = try Desk()
        let first = try desk.post("register", Items.registration(Items.u1, Items.lists))
        _ = try desk.steps(first)
        let second = try desk.post("reregister", Items.registration())
        #expect(try desk.steps(second) == ["register_device", "connect", "save_preferences"])
        // The lists belong to the device: the next user inherits them.
        let third = try desk.post("register", Items.registration("20981743", token: "another"))
        let requests = try desk.run(third, answer: Desk.usual)
        #expect(requests.map(\.step) == Self.full)
        #expect(requests[3].body == (try Fixture.bytes("v4.http")).suffix(107))
    }

    // MARK: Unregistration

    @Test func refusedDisconnect_isFollowedByBlanking_andReported() throws {
        var desk = try Desk()
        let id = try desk.post("unregister", Items.item())
        let forbidden = Desk.error(403, "forbidden_service_operation")
        #expect(try desk.steps(id, answer: Self.answers(["disconnect": forbidden])) == ["disconnect", "blank_token"])
        #expect(desk.ended[id]?.state == .failed)
        #expect(desk.ended[id]?.reason.contains("disconnect HTTP 403") == true)
        #expect(desk.ended[id]?.reason.contains("the push token is blanked") == true)
        #expect(try desk.state.pair(Items.u1, Items.device).isConnected, "as far as it is known")
    }

    @Test func refusedToken_parksDisconnectAndBlanking() throws {
        var desk = try Desk()
        let id = try desk.post("unregister", Items.item())
        #expect(
            try desk.steps(id, answer: Self.answers(["disconnect": Desk.error(401, "expired_token")])) == ["disconnect"]
        )
        #expect(try desk.plan(id) == .park)
        desk.hold("new", of: Items.u1)
        #expect(try desk.steps(id) == ["disconnect", "blank_token"])
    }

    @Test func outage_isResumedAtDisconnect() throws {
        var desk = try Desk()
        let id = try desk.post("unregister", Items.item())
        #expect(try desk.steps(id, answer: Self.answers(["disconnect": Desk.response(503, "")])) == ["disconnect"])
        #expect(try desk.steps(id) == ["disconnect", "blank_token"])
    }

    @Test func blanking_usesTheNotifierThatTheDeviceWasRegisteredWith() throws {
        var desk = try Desk()
        let register = try desk.post("register", Items.registration(Items.u1, #","notifier":"apple-distribution""#))
        _ = try desk.steps(register)
        func body(_ members: String) throws -> String {
            let id = try desk.post("unregister", Items.item(Items.u1, members))
            return String(decoding: try #require(try desk.run(id, answer: Desk.usual).last).body, as: UTF8.self)
        }
        #expect(try body("").hasPrefix(#"{"apple-distribution.notifier.id":"""#))
        #expect(try body(#","notifier":"other""#).hasPrefix(#"{"other.notifier.id":"""#))
    }

    // MARK: What later items make pointless (5.4)

    @Test func laterRegistration_replacesAnUnsentOne() throws {
        var desk = try Desk()
        let first = try desk.post("register", Items.registration(Items.u1, Items.lists))
        let second = try desk.post("register", Items.registration())
        #expect(try desk.steps(first) == [])
        #expect(desk.ended[first]?.state == .cancelled)
        #expect(try desk.steps(second) == Self.full, "the lists were stored with the first")
    }

    @Test func laterReregistration_doesNotReplaceARegistration_whichAlsoRegistersTheUser() throws {
        var desk = try Desk()
        let first = try desk.post("register", Items.registration())
        let second = try desk.post("reregister", Items.registration())
        #expect(try desk.steps(first) == Array(Self.full.prefix(3)))
        #expect(try desk.steps(second) == ["register_device", "connect"])
        let third = try desk.post("reregister", Items.registration())
        let fourth = try desk.post("reregister", Items.registration())
        #expect(try desk.steps(third) == [])
        #expect(try desk.steps(fourth) == ["register_device", "connect"])
    }

    @Test func begunRegistration_isNotReplaced() throws {
        var desk = try Desk()
        let first = try desk.post("register", Items.registration())
        _ = try desk.steps(first, answer: Self.answers(["connect": Desk.response(503, "")]))
        try desk.post("register", Items.registration())
        try desk.post("unregister", Items.item())
        #expect(try desk.steps(first) == ["connect"])
        #expect(desk.ended[first]?.state == .delivered)
    }

    @Test func laterUnregistration_makesAnUnsentRegistrationPointless_exceptForTheUser() throws {
        var desk = try Desk()
        let register = try desk.post("register", Items.registration())
        let unregister = try desk.post("unregister", Items.item())
        #expect(try desk.steps(register) == ["register_user"])
        #expect(desk.ended[register]?.state == .cancelled)
        #expect(try desk.steps(unregister) == ["disconnect", "blank_token"])
    }

    /// Both register the same device while the platform is away; the first user's group comes later.
    @Test func supersededRegistration_stillRegistersItsUser_whomLaterItemsNeed() throws {
        var desk = try Desk()
        let other = "ffffffff54d00d1e0b07c0de5eed0022"
        let first = try desk.post("register", Items.registration())
        let second = try desk.post("register", Items.registration(other))
        #expect(try desk.steps(first) == ["register_user"])
        #expect(desk.ended[first]?.state == .cancelled)
        #expect(try desk.steps(second).prefix(3) == Self.full.prefix(3))
        let group = try desk.post("group_add", Items.group())
        #expect(try desk.steps(group) == ["find_group", "add_to_group"])
        let again = try desk.post("register", Items.registration())
        try desk.post("register", Items.registration(other))
        #expect(try desk.steps(again) == [], "the user is known")
    }

    @Test func pointlessRegistration_stillRegistersAUserWhomGroupsWaitFor() throws {
        var desk = try Desk()
        let register = try desk.post("register", Items.registration())
        let group = try desk.post("group_add", Items.group())
        try desk.post("unregister", Items.item())
        #expect(try desk.plan(group) == .wait(.order, until: desk.now + .seconds(5)))
        #expect(try desk.steps(register) == ["register_user"])
        #expect(desk.ended[register]?.state == .cancelled)
        #expect(try desk.steps(group) == ["find_group", "add_to_group"])
    }

    @Test func cancelledLaterItem_replacesNothing() throws {
        var desk = try Desk()
        let first = try desk.post("register", Items.registration())
        let second = try desk.post("register", Items.registration())
        desk.state.open.remove(second)
        #expect(try desk.steps(first) == Array(Self.full.prefix(3)))
    }

    @Test func laterPreferences_replaceUnsentOnes_ofTheDevice() throws {
        var desk = try Desk()
        let register = try desk.post("register", Items.registration())
        _ = try desk.steps(register)
        let first = try desk.post("preferences", Items.item(Items.u1, #","preferences":{}"#))
        let second = try desk.post("preferences", Items.item(Items.u1, Items.lists))
        #expect(try desk.steps(first) == [])
        #expect(desk.ended[first]?.state == .cancelled)
        let requests = try desk.run(second, answer: Desk.usual)
        #expect(requests.map(\.spelledOut) == [try Fixture.bytes("v4.http")])
        #expect(try desk.state.preferences(of: Items.device)?.isSent == true)
    }

    // MARK: Preferences

    @Test func preferences_needARegistration() throws {
        var desk = try Desk()
        let text = Items.item(Items.u1, Items.lists)
        #expect(throws: Refusal(.conflict, "the device was never registered here; send a register item first")) {
            try desk.post("preferences", text)
        }
        let register = try desk.post("register", Items.registration())
        let preferences = try desk.post("preferences", text)
        #expect(try desk.plan(preferences) == .wait(.order, until: desk.now + .seconds(5)))
        _ = try desk.steps(register, answer: Self.answers(["register_device": Self.refusal]))
        #expect(try desk.steps(preferences) == [])
        #expect(desk.ended[preferences]?.state == .failed, "a PUT would make a device without a push token")
    }

    @Test func preferencesBetweenAReplacedRegistrationAndTheNext_areLeftToThatOne() throws {
        var desk = try Desk()
        let first = try desk.post("register", Items.registration())
        let preferences = try desk.post("preferences", Items.item(Items.u1, Items.lists))
        let second = try desk.post("register", Items.registration())
        #expect(try desk.steps(first) == [])
        #expect(try desk.steps(preferences) == [], "it does not wait for what is behind it")
        #expect(desk.ended[preferences]?.state == .cancelled)
        let requests = try desk.run(second, answer: Desk.usual)
        #expect(requests.map(\.step) == Self.full)
        #expect(requests[3].body == (try Fixture.bytes("v4.http")).suffix(107))
    }

    @Test func preferencesOfADevice_thatWasUnregisteredBeforeItWasRegistered_areKept() throws {
        var desk = try Desk()
        let register = try desk.post("register", Items.registration())
        let unregister = try desk.post("unregister", Items.item())
        let preferences = try desk.post("preferences", Items.item(Items.u1, Items.lists))
        #expect(try desk.steps(register) == ["register_user"])
        #expect(try desk.steps(unregister) == ["disconnect", "blank_token"])
        #expect(try desk.steps(preferences) == [])
        #expect(desk.ended[preferences]?.state == .cancelled)
        let again = try desk.post("register", Items.registration())
        #expect(try desk.steps(again) == Self.full)
    }

    @Test func revision_isSentOnlyWhenItIsTheOneThatWasTaken() throws {
        var desk = try Desk()
        _ = try desk.steps(try desk.post("register", Items.registration()))
        let first = try desk.post("preferences", Items.item(Items.u1, Items.lists))
        guard case .send(let request, _) = try desk.plan(first) else { return #expect(Bool(false)) }
        let second = try desk.post("preferences", Items.item(Items.u1, #","preferences":{}"#))
        try desk.judge(Desk.usual(request), to: request, of: first)
        #expect(try desk.state.preferences(of: Items.device)?.isSent == false)
        _ = try desk.steps(second)
        #expect(try desk.state.preferences(of: Items.device)?.isSent == true)
    }

    // MARK: Groups

    @Test func group_isNotCreated_afterALookUpThatFailedOtherwise() throws {
        for answer in [Desk.response(503, ""), Desk.error(401, "expired_token"), Desk.error(403, "x")] {
            var desk = try Desk()
            let id = try desk.post("group_add", Items.group())
            #expect(try desk.steps(id, answer: Self.answers(["find_group": answer])) == ["find_group"])
        }
    }

    @Test func memberNotFound_isLookedForOnceMore() throws {
        var desk = try Desk()
        let id = try desk.post("group_add", Items.group())
        let steps = try desk.steps(id, answer: Self.answers(["add_to_group": Self.missing]))
        #expect(steps == ["find_group", "add_to_group", "find_group", "add_to_group"])
        #expect(desk.ended[id]?.state == .failed)
    }

    @Test func groupItem_waitsForTheUsersRegistration_unlessTheUserIsKnown() throws {
        var desk = try Desk()
        let register = try desk.post("register", Items.registration())
        let group = try desk.post("group_add", Items.group("FFFFFFFF54d00d1e0b07c0de5eed0011"))
        #expect(try desk.plan(group) == .wait(.order, until: desk.now + .seconds(5)))
        _ = try desk.steps(register)
        #expect(try desk.steps(group) == ["find_group", "add_to_group"])
        try desk.post("register", Items.registration())
        let another = try desk.post("group_remove", Items.group())
        #expect(try desk.steps(another) == ["find_group", "remove_from_group"])
    }

    // MARK: Tokens

    @Test func doubtfulRefusal_isPermanent_whenAFreshTokenGetsItToo() throws {
        for body in [#"{"timestamp":1}"#, #"{"error":"unauthorized"}"#] {
            var desk = try Desk()
            let id = try desk.post("group_add", Items.group())
            let answer = Desk.response(body.contains("error") ? 401 : 200, body)
            #expect(try desk.steps(id) { _ in answer } == ["find_group"])
            #expect(desk.isOpen(id) && desk.parked == [Items.u1])
            desk.hold("second", of: Items.u1)
            #expect(try desk.steps(id) { _ in answer } == ["find_group"])
            #expect(desk.ended[id]?.state == .failed)
            #expect(desk.state.credential(of: Items.u1)?.isRefused == false, "it is not the token")
        }
    }

    @Test func plainRefusals_areNeverTheMessagesFault() throws {
        var desk = try Desk()
        let id = try desk.post("group_add", Items.group())
        for number in 0..<10 {
            _ = try desk.steps(id) { _ in Desk.error(401, "expired_token") }
            #expect(desk.isOpen(id))
            desk.hold("token-\(number)", of: Items.u1)
        }
        #expect(try desk.steps(id) == ["find_group", "add_to_group"])
    }

    @Test func refusedToken_isNeverSentAgain_whoeverHandsItIn() throws {
        var desk = try Desk()
        let first = try desk.post("group_add", Items.group())
        _ = try desk.steps(first) { _ in Desk.error(401, "expired_token") }
        let second = try desk.post("group_remove", Items.group())
        #expect(try desk.plan(first) == .park)
        #expect(try desk.plan(second) == .park)
        let other = try desk.post("group_add", Items.group("20981743"))
        #expect(try desk.steps(other) == ["find_group", "add_to_group"], "of another user it is another token")
    }

    @Test func newestToken_servesAllItemsOfItsUser_andNobodyElses() throws {
        var desk = try Desk()
        let first = try desk.post("group_add", Items.group(token: "old"))
        let other = try desk.post("group_add", Items.group("20981743", token: "others"))
        try desk.post("group_add", Items.group(token: "new"))
        func token(_ id: MessageID) throws -> String? {
            guard case .send(let request, _) = try desk.plan(id) else { return nil }
            return request.headers.first { $0.name == "Authorization" }?.value
        }
        #expect(try token(first) == "Bearer new")
        #expect(try token(other) == "Bearer others")
    }

    @Test func announcedExpiry_parksWithoutFindingOut() throws {
        var desk = try Desk()
        let text = #"{"userId":"u","group":"g","auth":{"token":"T","expiresIn":"1799"}}"#
        let id = try desk.post("group_add", text)
        desk.now = desk.now + .seconds(1798)
        guard case .send = try desk.plan(id) else { return #expect(Bool(false)) }
        desk.now = desk.now + .seconds(1)
        #expect(try desk.plan(id) == .park)
    }

    @Test func lateAnswerToAFormerToken_refusesThatOne() throws {
        var desk = try Desk()
        let id = try desk.post("group_add", Items.group())
        guard case .send(let request, _) = try desk.plan(id) else { return #expect(Bool(false)) }
        desk.hold("new", of: Items.u1)
        let version = desk.state.credential(of: Items.u1)?.version
        let judgement = try desk.judge(Desk.error(401, "expired_token"), to: request, of: id)
        #expect(judgement.verdict == .park)
        #expect(request.credentialVersion != version)
        #expect(
            desk.lastChanges == [.refuse(credentialOf: Items.u1, version: try #require(request.credentialVersion))])
        #expect(desk.state.credential(of: Items.u1)?.isRefused == false)
        #expect(try desk.steps(id) == ["find_group", "add_to_group"])
    }

    @Test func tokenThatAnAnswerEchoes_isNotInTheReason() throws {
        var desk = try Desk()
        let id = try desk.post("group_add", Items.group())
        let answer = Desk.response(
            400, #"{"error":"illegal_argument","error_description":"\#(Items.u1Token) and \#(Desk.key)"}"#)
        _ = try desk.steps(id) { _ in answer }
        #expect(desk.ended[id]?.reason == "find_group: HTTP 400: illegal_argument: *** and *** (code 4)")
    }

    // MARK: Admission

    @Test func storedText_isThePayload_withoutItsToken() throws {
        var desk = try Desk()
        let text = #"{"auth":{"token":"T"}, "userId" : "u\u002e1","x":[1e400, {"auth":7}] ,"group":"g"}"#
        let id = try desk.post("group_add", text)
        let message = try #require(desk.messages[id])
        #expect(
            String(decoding: message.payload, as: UTF8.self)
                == #"{"userId":"u\u002e1","x":[1e400, {"auth":7}],"group":"g"}"#)
        #expect(message.lane == .named("u.1/groups", group: "u.1"))
    }

    @Test func lanes_arePerUserAndDevice_andGroupedByTheUserWhateverItsCase() throws {
        var desk = try Desk()
        let register = try desk.post("register", Items.registration("Pat.Lee@Example.edu"))
        let group = try desk.post("group_add", Items.group("pat.lee@example.EDU"))
        let owner = "pat.lee@example.edu"
        #expect(desk.messages[register]?.lane == .named("\(owner)/\(Items.device)", group: owner))
        #expect(desk.messages[group]?.lane == .named("\(owner)/groups", group: owner))
        #expect(desk.upstream.exclusion(ofLane: "\(owner)/\(Items.device)") == Items.device)
        #expect(desk.upstream.exclusion(ofLane: "\(owner)/groups") == nil)
        #expect(desk.upstream.exclusion(ofLane: "metrics") == nil)
    }

    @Test func unregistration_isKeptLongest() throws {
        let upstream = try Desk().upstream
        func days(_ kind: Kind, _ text: String) throws -> Duration? {
            try UpstreamFixture.appservices.admit(.init(kind, text), to: upstream).admission.expiresAt
                .map { $0 - UpstreamFixture.now }
        }
        #expect(try days("group_add", Items.group()) == .seconds(7 * 86400))
        #expect(try days("unregister", Items.item()) == .seconds(28 * 86400))
        let patient = try Desk(["giveUpAfterSeconds": .integer(0)]).upstream
        #expect(
            try UpstreamFixture.appservices.admit(.init("unregister", Items.item()), to: patient).admission.expiresAt
                == nil)
    }

    // MARK: Progress

    @Test func progress_isReadAsItWasWritten() {
        var progress = AppServicesProgress.secondRound.adding(.registerDevice).adding(.connect)
        #expect(AppServicesProgress(progress.stored) == progress)
        progress = progress.lackingGroup().refusingDisconnect("why! 2 0 A")
        #expect(AppServicesProgress(progress.stored) == progress)
        #expect(AppServicesProgress(nil) == AppServicesProgress())
        #expect(Set(Step.allCases.map(\.letter)).count == Step.allCases.count)
    }
}
