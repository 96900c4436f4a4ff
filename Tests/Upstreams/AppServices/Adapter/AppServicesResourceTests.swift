import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import AppServicesAdapter

/// The resources of AppServices.
@Suite struct AppServicesResourceTests {
    private typealias Items = AppServicesItems
    private typealias Harness = AppServicesHarness

    private func resource(_ method: UpstreamRoute.Method, _ path: String) throws -> (UpstreamRoute, [String: String]) {
        let segments = path.split(separator: "/")
        for resource in try Harness().upstream.traits.routes where resource.method == method {
            if let parameters = resource.parameters(matching: segments) { return (resource, parameters) }
        }
        throw NoSuchResource()
    }

    private struct NoSuchResource: Error {}

    private func read(
        _ method: UpstreamRoute.Method, _ path: String, _ body: String = "",
        _ state: DictionaryState = DictionaryState(), query: [String: String] = [:]
    ) throws -> UpstreamRouteResponse {
        let (resource, parameters) = try resource(method, path)
        let request = UpstreamRouteRequest(
            parameters: parameters, query: query, body: Array(body.utf8), receivedAt: UpstreamFixture.now)
        guard case .read(let respond) = resource.response else { throw NoSuchResource() }
        return respond(request, state)
    }

    private func change(
        _ path: String, _ body: String, _ state: DictionaryState = DictionaryState()
    ) throws -> UpstreamRouteChange {
        let (resource, parameters) = try resource(.put, path)
        let request = UpstreamRouteRequest(
            parameters: parameters, body: Array(body.utf8), receivedAt: UpstreamFixture.now)
        guard case .change(let respond) = resource.response else { throw NoSuchResource() }
        return respond(request, state)
    }

    // MARK: Registrations

    private func flags(_ harness: Harness, _ user: String = Items.u1) throws -> [Bool] {
        let path = "registrations/\(user)/\(Items.deviceID)"
        guard case .json(let text, 200, _) = try read(.get, path, "", harness.state) else { return [] }
        return try JSONParser().parse(Array(text.utf8)) { root in
            [
                "applicationIsRegisteredForNotifications", "userIsRegisteredWithAppServices",
                "deviceIsRegisteredWithAppServices", "userIsConnectedToDevice",
            ].map { root[named: $0]?.kind == .true }
        }.get()
    }

    @Test func requirements_followTheSequence() throws {
        var harness = try Harness()
        #expect(
            try read(.get, "registrations/u/\(Items.device)", "", harness.state)
                == .notFound("No message was accepted here for that user and device."))
        let id = try harness.post("register", Items.registration())
        var seen = [try flags(harness)]
        while harness.isOpen(id), case .send(let request, _) = try harness.plan(id) {
            try harness.judge(Harness.usual(request), to: request, of: id)
            seen.append(try flags(harness))
        }
        #expect(
            seen == [
                [true, false, false, false], [true, false, true, false], [true, true, true, false],
                [true, true, true, true],
            ])
        let unregister = try harness.post("unregister", Items.item())
        _ = try harness.steps(unregister)
        #expect(try flags(harness) == [true, true, false, false])
    }

    @Test func connection_goesWithTheDevice() throws {
        var harness = try Harness()
        _ = try harness.steps(try harness.post("register", Items.registration()))
        _ = try harness.steps(try harness.post("register", Items.registration("20981743", token: "another")))
        #expect(try flags(harness) == [true, true, true, false])
        #expect(try flags(harness, "20981743") == [true, true, true, true])
    }

    @Test func registration_saysThatATokenIsNeeded() throws {
        var harness = try Harness()
        let id = try harness.post("register", Items.registration())
        func text() throws -> String {
            guard
                case .json(let text, _, _) = try read(
                    .get, "registrations/\(Items.u1)/\(Items.device)", "", harness.state)
            else { return "" }
            return text
        }
        #expect(try text().contains(#""needsToken":false"#))
        _ = try harness.steps(id) { _ in Harness.error(401, "expired_token") }
        #expect(try text().contains(#""needsToken":true"#))
        harness.hold("new", of: Items.u1)
        #expect(try text().contains(#""needsToken":false"#))
    }

    @Test func registration_says_whetherThePreferencesAreDelivered() throws {
        var harness = try Harness()
        func isUpdated() throws -> Bool {
            let path = "registrations/\(Items.u1)/\(Items.device)"
            guard case .json(let text, _, _) = try read(.get, path, "", harness.state) else { return false }
            return text.contains(#""notificationPreferencesHaveBeenUpdated":true"#)
        }
        _ = try harness.steps(try harness.post("register", Items.registration()))
        #expect(try !isUpdated())
        let id = try harness.post("preferences", Items.item(Items.u1, Items.lists))
        #expect(try !isUpdated())
        _ = try harness.steps(id)
        #expect(try isUpdated())
        try harness.post("preferences", Items.item(Items.u1, #","preferences":{}"#))
        #expect(try !isUpdated())
    }

    // MARK: Preferences

    /// The preferences of `user` as they were accepted and delivered last.
    private func preferences(_ harness: Harness, _ user: String = Items.u1) throws -> [String] {
        let path = "preferences/\(user)/\(Items.deviceID)"
        guard case .json(let text, 200, _) = try read(.get, path, "", harness.state) else { return [] }
        return try JSONParser().parse(Array(text.utf8)) { root in
            ["accepted", "delivered"].map { root[named: $0].map { String(decoding: $0.bytes, as: UTF8.self) } ?? "" }
        }.get()
    }

    @Test func preferences_areShown_asAcceptedAndAsDelivered() throws {
        let first = #"{"blacklist":{},"whitelist":{"assignments":[],"forum":["chat","polls"]}}"#
        let second = #"{"blacklist":{"a":[]},"whitelist":{}}"#
        var harness = try Harness()
        #expect(try preferences(harness) == [], "404")
        let registration = try harness.post("register", Items.registration())
        #expect(try preferences(harness) == ["null", "null"])
        _ = try harness.steps(registration)
        let id = try harness.post("preferences", Items.item(Items.u1, Items.lists))
        #expect(try preferences(harness) == [first, "null"])
        _ = try harness.steps(id)
        #expect(try preferences(harness) == [first, first])
        let next = try harness.post(
            "preferences", Items.item(Items.u1, #","preferences":{"blacklist":{"a":[]}}"#))
        #expect(try preferences(harness) == [second, first])
        _ = try harness.steps(next)
        #expect(try preferences(harness) == [second, second])
    }

    // MARK: Tokens

    @Test func token_isHeldForItsUser() throws {
        let change = try change("users/Pat.Lee/token", #"{"token":"Bearer T1","expiresIn":60}"#)
        #expect(
            change.changes == [
                .hold(
                    Credential(
                        owner: "pat.lee", value: Array("T1".utf8), note: "pi",
                        expiresAt: UpstreamFixture.now + .seconds(60)))
            ])
        #expect(
            change.answer
                == .json(#"{"userId":"Pat.Lee","provider":"pi","expiresAt":"2016-11-24T12:02:04.057Z"}"#))
    }

    @Test func refusedToken_isNotTakenAgain() throws {
        var harness = try Harness()
        let id = try harness.post("group_add", Items.group())
        _ = try harness.steps(id) { _ in Harness.error(401, "expired_token") }
        let again = try change("users/\(Items.u1)/token", #"{"token":"\#(Items.u1Token)"}"#, harness.state)
        #expect(again.changes.isEmpty)
        guard case .problem(.conflict, 409, _, _) = again.answer else { return #expect(Bool(false)) }
        #expect(try change("users/\(Items.u1)/token", #"{"token":"new"}"#, harness.state).changes.count == 1)
    }

    @Test(arguments: [
        ("users/me/token", #"{"token":"T"}"#, [""]), ("users/u/token", #"{"token":"(null)"}"#, ["/token"]),
        ("users/u/token", #"{"token":"private key"}"#, ["/token"]), ("users/u/token", "{}", ["/token"]),
        ("users/u/token", #"{"provider":"x","token":"T"}"#, ["/provider"]),
        ("users/u/token", #"{"provider":"mi","token":"Bearer private"}"#, ["/token"]),
        ("users/u/token", #"{"token":"T","expiresAt":"soon","expiresIn":-1}"#, ["/expiresAt", "/expiresIn"]),
        ("users/u/token", "[]", [""]),
    ])
    func badToken_isRefused_withEveryFaultAndNoValue(path: String, body: String, pointers: [String]) throws {
        let change = try change(path, body)
        #expect(change.changes.isEmpty)
        guard case .problem(.invalidPayload, 422, let detail, let faults) = change.answer else {
            return #expect(Bool(false), "\(change.answer)")
        }
        #expect(faults.kept.map(\.pointer) == pointers)
        #expect(!"\(detail)\(faults)".contains("private"))
    }

    @Test(arguments: [("{", 1), (#"{"token":"T","token":"T"}"#, 13)])
    func brokenJSON_is400_withItsOffset(body: String, offset: Int) throws {
        for answer in [try change("users/u/token", body).answer, try read(.post, "notifications/parse", body)] {
            guard case .invalidJSON(_, let found) = answer else { return #expect(Bool(false), "\(answer)") }
            #expect(found == offset)
        }
    }

    // MARK: Notifications (section 7)

    @Test(arguments: [
        (
            #"{"aps":{"alert":"Hi","badge":3,"sound":"s.caf"},"a":1,"b":{"c":[]}}"#,
            #""alert":"Hi","badge":3,"sound":"s.caf","customPayload":{"a":1,"b":{"c":[]}},"#
        ),
        (#"{"aps":{}}"#, ""),
        (#"{"aps":{"alert":{"body":"B"},"badge":"5"}}"#, #""alertDict":{"body":"B"},"badge":5,"#),
        (#"{"aps":{"alert":["B"],"badge":"many"}}"#, #""alertDict":["B"],"badge":0,"#),
        (#"{"aps":{"alert":7}}"#, #""alertDict":7,"#), (#"{"aps":{"alert":true}}"#, #""alertDict":true,"#),
        (#"{"aps":{"alert":null}}"#, #""alertDict":null,"#),
        (#"{"aps":{"badge":" -12 apples","content-available":"1"}}"#, #""badge":-12,"contentAvailable":1,"#),
        (#"{ "aps" : {"badge":2.9,"other":true} }"#, #""badge":2,"#),
        (#"{"aps":{"alert":"\u00dc\/"},"\u0061":"\n"}"#, #""alert":"\u00dc\/","customPayload":{"\u0061":"\n"},"#),
    ])
    func notification_becomesTheFrameworksObject(payload: String, members: String) throws {
        let reception = #""timestamp":"2016-11-24T12:01:04.057Z","hasBeenRead":false"#
        #expect(
            try read(.post, "notifications/parse", payload)
                == .json("{\(members)\(reception),\"incomingNotification\":\(payload)}"))
    }

    @Test(arguments: [
        (
            ["userID": "pat \"lee\"", "applicationState": "background"],
            #""timestamp":"2016-11-24T12:01:04.057Z","userID":"pat \"lee\"","applicationState":"background""#
        ),
        (
            ["timestamp": "2016-11-24T13:00:00+01:00", "applicationState": "2"],
            #""timestamp":"2016-11-24T12:00:00.000Z","applicationState":2"#
        ),
    ])
    func notification_hasWhatTheQuerySaysOfItsReception(query: [String: String], members: String) throws {
        let payload = #"{"aps":{},"userID":"other"}"#
        let answer = try read(.post, "notifications/parse", payload, query: query)
        let end = #""hasBeenRead":false,"incomingNotification":\#(payload)"#
        #expect(answer == .json(#"{"customPayload":{"userID":"other"},\#(members),\#(end)}"#))
    }

    @Test(arguments: [("timestamp", "yesterday"), ("userID", ""), ("applicationState", "3"), ("applicationState", "")])
    func invalidReception_is400_andNamesTheParameter(name: String, value: String) throws {
        let answer = try read(.post, "notifications/parse", #"{"aps":{}}"#, query: [name: value])
        guard case .problem(.badRequest, 400, let detail, _) = answer else { return #expect(Bool(false), "\(answer)") }
        #expect(detail.contains("`\(name)`"))
    }

    /// In the words of other bodies.
    @Test func bodyThatIsNotJSON_isExplained() throws {
        let comma = try read(.post, "notifications/parse", #"{"aps":{},}"#)
        #expect(comma == .invalidJSON("a comma after the last element at byte 10", offset: 10))
        let token = try change("users/\(Items.u1)/token", #"{"a":1,"a":2}"#).answer
        #expect(token == .invalidJSON(#"duplicate member name "a" at byte 7"#, offset: 7))
    }

    @Test(arguments: [
        ("[]", [""]), ("{}", ["/aps"]), (#"{"aps":"x"}"#, ["/aps"]),
        (
            #"{"aps":{"badge":{},"sound":[],"content-available":true}}"#,
            ["/aps/badge", "/aps/sound", "/aps/content-available"]
        ),
    ])
    func invalidNotification_is422(payload: String, pointers: [String]) throws {
        guard case .problem(.invalidPayload, 422, _, let faults) = try read(.post, "notifications/parse", payload)
        else { return #expect(Bool(false)) }
        #expect(faults.kept.map(\.pointer) == pointers)
    }
}
