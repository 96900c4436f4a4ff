import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import AppServicesAdapter

/// The kinds that are one step of the SDK each: what they send, in which order, and with whose token.
@Suite struct AppServicesSingleStepTests {
    private typealias Items = AppServicesItems
    private typealias Harness = AppServicesHarness

    private static let missing = Harness.error(404, "entity_not_found")
    private static let expired = Harness.error(401, "expired_token")
    private static let other = "20981743"
    private static let otherToken = "MITOK:00042|a9b8c7d6"

    private func connect(_ harness: inout Harness, _ user: String = Items.u1, token: String = Items.u1Token) throws
        -> MessageID
    {
        try harness.post("connect", Items.item(user, token: token))
    }

    private func register(
        _ harness: inout Harness, token: String = Items.u1Token, push: String = Items.pushToken
    ) throws -> MessageID {
        try harness.post("device", Items.registrationStep(push: push, token: token))
    }

    private func waits(_ harness: Harness, _ id: MessageID) throws -> Bool {
        if case .wait(.order, _) = try harness.plan(id) { true } else { false }
    }

    private func token(_ request: UpstreamRequest?) -> String? {
        request?.headers.first { $0.name == "Authorization" }?.value
    }

    // MARK: Requests and results

    @Test func eachStep_isItsRequest_andItsResult() throws {
        var harness = try Harness()
        let registered = Items.registrationStep(push: Items.pushToken.uppercased(), Items.details)
        let steps: [(kind: String, payload: String, step: String, vector: Int)] = [
            ("device", registered, "registerDevice", 1), ("user", Items.item(device: nil), "registerUser", 2),
            ("connect", Items.item(), "connect", 3), ("disconnect", Items.item(), "disconnect", 12),
            ("device_unregister", Items.step(#""notifier":"apple""#), "blankToken", 13),
            ("group", #"{"group":"Fall-2014-Biology","auth":{"token":"\#(Items.u1Token)"}}"#, "createGroup", 8),
        ]
        for step in steps {
            let id = try harness.post(step.kind, step.payload)
            let requests = try harness.run(id, answer: Harness.usual)
            #expect(requests.map(\.spelledOut) == [try Fixture.bytes("v\(step.vector).http")], "\(step.kind)")
            #expect(harness.results[id]?.map(\.step) == [step.step])
            #expect(harness.results[id]?.map(\.outcome) == [.done] && harness.results[id]?.first?.status == 200)
        }
    }

    @Test func missingGroup_isCreated_alsoIfOthersAreToJoinExistingOnesOnly() throws {
        var harness = try Harness(["onlyAddUserToExistingGroups": .bool(true)])
        let id = try harness.post("group", #"{"group":"Fall-2014-Biology","auth":{"token":"\#(Items.u1Token)"}}"#)
        let requests = try harness.run(id) { $0.step == "findGroup" ? Self.missing : Harness.usual($0) }
        #expect(requests.map(\.spelledOut) == [try Fixture.bytes("v8.http"), try Fixture.bytes("v9.http")])
        #expect(harness.results[id]?.map(\.step) == ["createGroup"])
    }

    @Test func idOfAUser_isKnownSinceTheUserWasCreated() throws {
        var harness = try Harness()
        for answer in [
            Harness.response(200, #"{"entities":[{"uuid":"6f1a94a0","type":"user"}]}"#),
            Harness.error(400, "duplicate_unique_property_exists"),
        ] {
            let id = try harness.post("user", Items.item(device: nil))
            let owner = harness.owner(of: id)
            #expect(try harness.run(id) { _ in answer }.count == 1)
            #expect(harness.state.userID(owner) == "6f1a94a0")
        }
    }

    @Test func rejectedStep_failsWithTheFrameworksCode_andNothingFollows() throws {
        var harness = try Harness()
        for (kind, step, code) in [
            ("connect", "connect", 1), ("disconnect", "disconnect", 1), ("user", "registerUser", 7),
        ] {
            let id = try harness.post(kind, Items.item())
            #expect(try harness.steps(id) { _ in Harness.error(403, "forbidden_service_operation") } == [step])
            #expect(harness.ended[id]?.state == .failed)
            #expect(harness.ended[id]?.reason.hasSuffix("(code \(code))") == true)
            #expect(harness.results[id]?.map(\.outcome) == [.failed])
        }
    }

    @Test func connect_thatFindsNothing_registersDeviceAndUserOnceMore() throws {
        var harness = try Harness()
        _ = try harness.steps(try register(&harness))
        let id = try connect(&harness)
        var answers = [Self.missing]
        let requests = try harness.run(id) { answers.popLast() ?? Harness.usual($0) }
        #expect(requests.map(\.step) == ["connect", "registerDevice", "registerUser", "connect"])
        let body = #"{"apple.notifier.id":"\#(Items.pushToken)","type":"device","uuid":"\#(Items.device)"}"#
        #expect(requests[1].body == Array(body.utf8))
        #expect(harness.results[id]?.map(\.step) == ["connect"] && harness.ended[id]?.state == .delivered)
        let second = try connect(&harness)
        #expect(try harness.steps(second) { _ in Self.missing }.prefix(2) == ["connect", "registerDevice"])
    }

    @Test func preferences_withoutAUser_areSentForADeviceThatWasNeverRegisteredHere() throws {
        var harness = try Harness()
        let payload = Items.step(
            #""userId":null,"preferences":{"whitelist":{"forum":["chat","polls"],"assignments":[]}}"#)
        let id = try harness.post("preferences", payload)
        #expect(try harness.run(id, answer: Harness.usual).map(\.spelledOut) == [try Fixture.bytes("v4.http")])
    }

    @Test func crash_withAName_isItsTextAlone() throws {
        var harness = try Harness(["monitoring.enabled": .bool(true)])
        let id = try harness.post("crash", #"{"name":"\#(Items.deviceID).crash","text":"it broke"}"#)
        let requests = try harness.run(id) { _ in Harness.response(200, "") }
        #expect(requests.map(\.step) == ["uploadCrashLog"])
        #expect(requests[0].url.hasSuffix("/acme/campus-dev/apm/crashLogs/\(Items.deviceID).crash"))
        #expect(requests[0].body == Array("it broke".utf8) && harness.ended[id]?.state == .delivered)
    }

    // MARK: Order

    @Test func stepsOfADevice_areSentInTheirOrder_acrossUsers() throws {
        var harness = try Harness()
        let device = try register(&harness)
        let first = try connect(&harness)
        let second = try connect(&harness, Self.other, token: "T2")
        let left = try harness.post("disconnect", Items.item(Self.other, token: "T2"))
        #expect(try waits(harness, first) && waits(harness, second))
        _ = try harness.steps(device)
        #expect(harness.lastChanges.contains(.wake(lane: "\(Items.u1)/\(Items.device)")))
        #expect(try !waits(harness, first) && waits(harness, second))
        _ = try harness.steps(first)
        #expect(harness.lastChanges.contains(.wake(lane: "\(Self.other)/\(Items.device)")))
        #expect(try !waits(harness, second))
        #expect(try harness.steps(second) == ["connect"] && harness.steps(left) == ["disconnect"])
    }

    /// The app names no user in its preferences, so they are in another lane than the connection before them.
    @Test(arguments: [false, true]) func replacedPreferences_keepThePlaceOfThoseBehindThem(isCancelled: Bool) throws {
        var harness = try Harness()
        func save(_ name: String) throws -> MessageID {
            try harness.post("preferences", Items.step(#""userId":null,"preferences":{"whitelist":{"\#(name)":[]}}"#))
        }
        _ = try harness.steps(try register(&harness))
        let connection = try connect(&harness)
        let replaced = try save("a")
        if isCancelled { harness.cancel(replaced) }
        let preferences = try save("b")
        #expect(try (isCancelled || waits(harness, replaced)) && waits(harness, preferences))
        _ = try harness.steps(connection)
        if !isCancelled {
            #expect(try harness.steps(replaced) == [] && harness.ended[replaced]?.state == .cancelled)
        }
        #expect(try harness.steps(preferences) == ["savePreferences"])
    }

    @Test func connectAndGroupAdd_waitForAQueuedUser() throws {
        var harness = try Harness()
        _ = try harness.steps(try register(&harness))
        let user = try harness.post("user", Items.item(device: nil))
        let connection = try connect(&harness)
        let group = try harness.post("group_add", Items.group())
        #expect(try waits(harness, connection) && waits(harness, group))
        _ = try harness.steps(user)
        #expect(harness.lastChanges.contains(.wake(lane: "\(Items.u1)/\(Items.device)")))
        #expect(harness.lastChanges.contains(.wake(lane: "\(Items.u1)/groups")))
        #expect(try !waits(harness, connection) && !waits(harness, group))
    }

    /// Which may be of the token's lane, since it names no user.
    @Test func groupAdd_waitsForTheCreationOfItsGroup_unlessThatWaitsForAToken() throws {
        var harness = try Harness(["onlyAddUserToExistingGroups": .bool(true)])
        let creation = #"{"group":"fall-2014-biology","auth":{"token":"T1"}}"#
        let created = try harness.post("group", creation)
        let (group, other) = (
            try harness.post("group_add", Items.group()), try harness.post("group_add", Items.group(Items.u1, "b"))
        )
        #expect(try waits(harness, group) && !waits(harness, other))
        _ = try harness.steps(created)
        #expect(harness.lastChanges.contains(.wake(lane: "\(Items.u1)/groups")))
        #expect(try !waits(harness, group))
        let parked = try harness.post("group", creation)
        let removal = try harness.post("group_remove", Items.group())
        #expect(try waits(harness, removal))
        _ = try harness.steps(parked) { _ in Self.expired }
        #expect(try harness.isOpen(parked) && !waits(harness, removal))
    }

    @Test func messageThatWaitsForAToken_delaysNoOtherUser_andDoesNotUndoWhatCameAfterIt() throws {
        var harness = try Harness()
        _ = try harness.steps(try register(&harness))
        let first = try connect(&harness)
        _ = try harness.steps(first) { _ in Self.expired }
        let second = try connect(&harness, Self.other, token: "T2")
        #expect(try harness.steps(second) == ["connect"])
        harness.hold("PiTok-new", of: Items.u1)
        #expect(try harness.steps(first) == [])
        #expect(harness.ended[first]?.state == .cancelled)
    }

    // MARK: Devices

    @Test func laterDevice_replacesAnUnsentOne() throws {
        var harness = try Harness()
        let first = try register(&harness, push: String(repeating: "a", count: 64))
        let second = try register(&harness)
        #expect(try harness.steps(first) == [] && harness.ended[first]?.state == .cancelled)
        #expect(try harness.steps(second) == ["registerDevice"])
    }

    @Test func laterDevice_replacesTheOnesBeforeIt_downToWhatNeedsOne() throws {
        var harness = try Harness()
        let first = try register(&harness, push: String(repeating: "a", count: 64))
        let connection = try connect(&harness)
        let second = try register(&harness, push: String(repeating: "b", count: 64))
        let third = try register(&harness)
        #expect(try harness.steps(first) == ["registerDevice"])
        #expect(try harness.steps(connection) == ["connect"])
        #expect(try harness.steps(second) == [] && harness.ended[second]?.state == .cancelled)
        #expect(try harness.steps(third) == ["registerDevice"])
    }

    /// Each launch of an app whose tokens are refused leaves one, and the token of each comes with no user.
    @Test func devicesThatWaitForATokenOfNoUser_end_onceTheDeviceIsRegistered() throws {
        var harness = try Harness()
        var refused: [MessageID] = []
        for number in 1...3 {
            let device = try register(&harness, token: "PiTok-\(number)")
            _ = try harness.steps(device) { _ in Self.expired }
            refused.append(device)
        }
        #expect(harness.parked.count == 3)
        let last = try register(&harness, token: "PiTok-new")
        #expect(try harness.steps(last) == ["registerDevice"] && harness.parked.isEmpty)
        for device in refused {
            #expect(try harness.steps(device) == [] && harness.ended[device]?.state == .cancelled)
        }
    }

    @Test func connectThatWaitsForAToken_ends_onceAnotherUserIsConnected() throws {
        var harness = try Harness()
        _ = try harness.steps(try register(&harness))
        let first = try connect(&harness)
        _ = try harness.steps(first) { _ in Self.expired }
        let second = try connect(&harness, Self.other, token: "T2")
        #expect(try harness.steps(second) == ["connect"] && !harness.parked.contains(Items.u1))
        #expect(try harness.steps(first) == [] && harness.ended[first]?.state == .cancelled)
    }

    @Test func preferencesThatWaitForAToken_end_onceLaterOnesAreSaved() throws {
        var harness = try Harness()
        _ = try harness.steps(try register(&harness))
        func save(_ token: String) throws -> MessageID {
            try harness.post(
                "preferences",
                Items.step(#""userId":null,"preferences":{"whitelist":{"\#(token)":[]}}"#, token: token))
        }
        let first = try save("T1")
        _ = try harness.steps(first) { _ in Self.expired }
        let second = try save("T2")
        #expect(try harness.steps(second) == ["savePreferences"] && harness.parked.isEmpty)
        #expect(try harness.steps(first) == [] && harness.ended[first]?.state == .cancelled)
    }

    @Test func connect_afterADeviceThatWasCancelled_registersTheDeviceFirst() throws {
        var harness = try Harness()
        let device = try register(&harness)
        let connection = try connect(&harness)
        _ = try register(&harness, push: String(repeating: "a", count: 64))
        harness.state.open.remove(device)
        #expect(try harness.steps(connection) == ["registerDevice", "connect"])
    }

    @Test func unregistration_isNotSent_onceAnotherUserRegisteredTheDevice() throws {
        var harness = try Harness()
        for id in [try register(&harness), try connect(&harness), try harness.post("disconnect", Items.item())] {
            _ = try harness.steps(id)
        }
        let left = try harness.post("device_unregister", Items.step(#""notifier":"apple""#))
        let taken = try register(&harness, token: "T2")
        // Whose token that is shows with the next step.
        try harness.post("user", Items.item(Self.other, token: "T2", device: nil))
        #expect(try harness.steps(left) == [] && harness.ended[left]?.state == .cancelled)
        #expect(try harness.steps(taken) == ["registerDevice"])
    }

    @Test func unregistration_isSent_ifTheSameUserRegistersTheDeviceAgain() throws {
        var harness = try Harness()
        for id in [try register(&harness), try connect(&harness), try harness.post("disconnect", Items.item())] {
            _ = try harness.steps(id)
        }
        let left = try harness.post("device_unregister", Items.step(#""notifier":"apple""#))
        let again = try register(&harness)
        #expect(try harness.steps(left) == ["blankToken"] && harness.steps(again) == ["registerDevice"])
    }

    @Test func unregistration_thatOthersHavePassed_blanksNothing() throws {
        var harness = try Harness()
        let left = try harness.post("device_unregister", Items.step(#""notifier":"apple""#))
        _ = try harness.steps(left) { _ in Self.expired }
        _ = try harness.steps(try register(&harness, token: "T2"))
        try harness.post("user", Items.item(device: nil))
        harness.hold(Credential(owner: harness.owner(of: left), value: Array("T3".utf8), note: "pi"))
        #expect(try harness.steps(left) == [] && harness.ended[left]?.state == .cancelled)
    }

    // MARK: Tokens

    @Test func deviceWithoutAUser_waitsForTheTokenOfTheUserWhoseTokenItCameWith() throws {
        var harness = try Harness()
        let device = try register(&harness)
        try harness.post("user", Items.item(device: nil))
        _ = try harness.steps(device) { _ in Self.expired }
        #expect(harness.isOpen(device) && harness.parked == [harness.owner(of: device)])
        // Not sent again for the user either.
        #expect(harness.state.credential(of: Items.u1)?.isRefused == true)
        try harness.post("user", Items.item(token: "PiTok-new", device: nil))
        #expect(token(try harness.run(device, answer: Harness.usual).first) == "Bearer PiTok-new")
    }

    /// Also once what came with the same token for a group is over.
    @Test(arguments: [["device", "group", "user"], ["device", "user", "group"]])
    func deviceWithoutAUser_waitsForTheTokenOfItsUser_afterOtherLanesOfTheTokenHaveEnded(kinds: [String]) throws {
        var harness = try Harness()
        let payloads = [
            "device": Items.registrationStep(push: Items.pushToken, token: Items.u1Token),
            "group": #"{"group":"g","auth":{"token":"\#(Items.u1Token)"}}"#, "user": Items.item(device: nil),
        ]
        var ids: [String: MessageID] = [:]
        for kind in kinds { ids[kind] = try harness.post(kind, payloads[kind] ?? "") }
        let device = try #require(ids["device"])
        harness.cancel(try #require(ids["group"]))
        harness.state.expire(at: harness.now)
        _ = try harness.steps(device) { _ in Self.expired }
        try harness.post("user", Items.item(token: "PiTok-new", device: nil))
        #expect(token(try harness.run(device, answer: Harness.usual).first) == "Bearer PiTok-new")
    }

    @Test func tokenThatWasRefusedForADevice_isNotSentForTheUserWhoBringsIt() throws {
        var harness = try Harness()
        let device = try register(&harness)
        _ = try harness.steps(device) { _ in Self.expired }
        let user = try harness.post("user", Items.item(device: nil))
        #expect(try harness.steps(user) == [] && harness.isOpen(user))
    }

    /// Whose it is shows too late for what came before, but it is the same token.
    @Test func tokenThatWasRefusedForAUser_isNotSentForADeviceFromLongBefore() throws {
        var harness = try Harness()
        let device = try register(&harness)
        harness.now = harness.now + .seconds(61)
        let user = try harness.post("user", Items.item(device: nil))
        _ = try harness.steps(user) { _ in Self.expired }
        #expect(try harness.steps(device) == [] && harness.isOpen(device))
    }

    @Test func tokenThatWasRefusedForAUser_isNotSentForTheDevice() throws {
        var harness = try Harness()
        let user = try harness.post("user", Items.item(device: nil))
        _ = try harness.steps(user) { _ in Self.expired }
        let device = try register(&harness)
        #expect(try harness.steps(device) == [] && harness.isOpen(device))
        harness.hold("PiTok-new", of: Items.u1)
        try harness.post("user", Items.item(token: "PiTok-new", device: nil))
        #expect(token(try harness.run(device, answer: Harness.usual).first) == "Bearer PiTok-new")
    }

    /// It is not stored for the user again, who brings it with the device.
    @Test(arguments: [false, true]) func tokenThatWasRefusedForAUsersGroup_isNotSentForTheDevice(isFirst: Bool) throws {
        var harness = try Harness()
        var device: MessageID?
        if isFirst { device = try register(&harness) }
        let group = try harness.post("group_add", Items.group())
        _ = try harness.steps(group) { _ in Self.expired }
        if !isFirst { device = try register(&harness) }
        try harness.post("user", Items.item(device: nil))
        #expect(try harness.steps(try #require(device)) == [] && harness.isOpen(try #require(device)))
        try harness.post("user", Items.item(token: "PiTok-new", device: nil))
        #expect(token(try harness.run(try #require(device), answer: Harness.usual).first) == "Bearer PiTok-new")
    }

    @Test func tokenThatCameWithNoUser_isTheOneOfTheUserWhoWasConnectedLast() throws {
        var harness = try Harness()
        _ = try harness.steps(try register(&harness))
        _ = try harness.steps(try connect(&harness))
        let left = try harness.post("device_unregister", Items.step(#""notifier":"apple""#, token: "T2"))
        _ = try harness.steps(left) { _ in Self.expired }
        #expect(harness.isOpen(left))
        try harness.post("user", Items.item(token: "PiTok-new", device: nil))
        #expect(token(try harness.run(left, answer: Harness.usual).first) == "Bearer PiTok-new")
    }

    @Test(arguments: ["user", "group_add", "group_remove"])
    func tokenOfAnotherUser_doesNotServeADeviceWhoseUserIsKnown(kind: String) throws {
        var harness = try Harness()
        _ = try harness.steps(try register(&harness))
        _ = try harness.steps(try connect(&harness))
        let taken = try register(&harness, token: "T2")
        let members = kind == "user" ? "" : #","group":"g""#
        try harness.post(kind, #"{"userId":"\#(Self.other)"\#(members),"auth":{"token":"T2"}}"#)
        _ = try harness.steps(taken) { _ in Self.expired }
        try harness.post("user", Items.item(token: "PiTok-new", device: nil))
        #expect(try harness.steps(taken) == [] && harness.isOpen(taken))
    }
}
