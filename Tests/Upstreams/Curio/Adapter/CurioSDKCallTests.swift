import Foundation
import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import CurioAdapter

/// An SDK in front of the endpoints, and what is behind them.
struct CurioSDKCaller {
    var harness: CurioHarness

    init(_ settings: [String: SettingValue] = [:]) throws {
        harness = try CurioHarness(
            ["sdk.enabled": .bool(true), "apiKey": .text(Self.key), "trackingCode": .text("GW7DEM01")]
                .merging(settings) { $1 })
    }

    static let key = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"

    /// Sends a request as an SDK does, from its path below the prefix to its body.
    @discardableResult
    mutating func send(_ path: String, _ body: String) throws -> SDKAnswer {
        let endpoints = try #require(harness.upstream.sdk)
        let route = try #require(endpoints.routes.first { $0.template == path }, "\(path)")
        let request = SDKRequest(path: "\(endpoints.prefix)/\(path)", body: Array(body.utf8), receivedAt: harness.now)
        guard case .store(let read) = route.response else { throw SDKAnswer(500, .refused) }
        do throws(SDKAnswer) { return harness.store(try read(request)) } catch { return error }
    }

    @discardableResult
    mutating func send(_ path: String, _ members: [String: String]) throws -> SDKAnswer {
        var form = CurioForm()
        for (name, value) in members.sorted(by: { $0.key < $1.key }) { form.add(name, value) }
        return try send(path, String(decoding: form.body, as: UTF8.self))
    }

    /// A recorded request; with other texts in it.
    @discardableResult
    mutating func replay(_ file: String, replacing: [(String, String)] = []) throws -> SDKAnswer {
        var text = String(decoding: try Fixture.bytes("sdk/\(file).http"), as: UTF8.self)
        for (old, new) in replacing { text = text.replacing(old, with: new) }
        let parts = text.split(separator: "\n\n", maxSplits: 1)
        let path = try #require(parts[0].split(separator: " ").dropFirst().first).dropFirst("/sdk/curio/".count)
        return try send(String(path), String(parts[1]))
    }

    /// What a request has that quotes a session.
    static func common(
        session: String = CurioSample.session, visitor: String = CurioSample.visitor, _ more: [String: String] = [:]
    ) -> [String: String] {
        [
            "sessionCode": session, "visitorCode": visitor, "trackingCode": "GW7DEM01", "sessionTimeout": "30",
        ].merging(more) { $1 }
    }

    @discardableResult
    mutating func begin(
        session: String = CurioSample.session, visitor: String = CurioSample.visitor, _ more: [String: String] = [:]
    ) throws -> SDKAnswer {
        try send(
            "visit/create",
            Self.common(session: session, visitor: visitor, ["apiKey": Self.key, "model": "m"].merging(more) { $1 }))
    }

    /// The kinds of what is queued.
    var kinds: [String] { harness.queue.map { "\($0.kind)" } }
}

extension SDKAnswer {
    var text: String { String(decoding: body, as: UTF8.self) }

    /// What only an answer to a success has.
    fileprivate func isOK(_ text: String = "{}", _ outcome: Outcome = .accepted) -> Bool {
        status == 200 && self.text == text && self.outcome == outcome && headers.map(\.name) == ["Content-Type"]
            && headers.map(\.value) == ["application/json"]
    }

    fileprivate func isEmpty(_ status: Int) -> Bool {
        self.status == status && body.isEmpty && headers.isEmpty && !isDropped
    }
}

/// What Curio's SDKs are answered, and what is stored.
@Suite struct CurioSDKCallTests {
    private typealias Caller = CurioSDKCaller
    private static let s = CurioSample.session
    private static let next = "6d551000-a21d-11e4-8123-03ab5c7d9e20"
    private static let screen = ["pageTitle": "t", "path": "p"]
    private static let event = ["eventKey": "k", "eventValue": "v"]
    private func caller(_ settings: [String: SettingValue] = [:]) throws -> Caller {
        var caller = try Caller(settings)
        #expect(try caller.begin().isOK())
        return caller
    }

    private func code(_ answer: SDKAnswer, _ name: String = "hitCode") throws -> String {
        let code = try #require(JSON(answer.body)[name].string)
        #expect(answer.isOK(#"{"\#(name)":"\#(code)"}"#), "\(answer.text)")
        let uuid = /[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}/
        #expect(code.wholeMatch(of: uuid) != nil, "\(code)")
        return code
    }

    // MARK: Each call, as both SDKs send it

    private static let calls: [(file: String, kind: String)] = [
        ("hit-create", "screen_start"), ("hit-end", "screen_end"), ("event-create", "event"),
        ("event-end", "event_end"), ("push-token", "push_token"), ("notification-read", "notification_read"),
        ("custom-id", "custom_id"), ("location", "location"), ("user-tags", "user_tags"),
        ("unregister", "unregister"), ("visit-end", "session_end"),
    ]

    @Test(arguments: ["ios", "android"])
    func calls_areStoredInOrder_andAnsweredByteForByte(sdk: String) throws {
        var caller = try Caller()
        #expect(try caller.replay("\(sdk)-visit-create").isOK())
        var expected = ["session_start"]
        for (file, kind) in Self.calls where !(sdk == "android" && file == "location") {
            let answer = try caller.replay("\(sdk)-\(file)")
            switch file {
            case "hit-create": _ = try code(answer)
            case "event-create": _ = try code(answer, "eventCode")
            default: #expect(answer.isOK(), "\(file) \(answer.text)")
            }
            expected.append(kind)
        }
        #expect(caller.kinds == expected && caller.harness.failures.isEmpty, "\(caller.harness.failures)")
    }

    @Test(arguments: ["ios", "android"])
    func batch_isStoredInOrder_andOnceIfItComesAgain(sdk: String) throws {
        var caller = try Caller()
        try caller.replay("\(sdk)-visit-create")
        let kinds = ["screen_start", "event", "event_end", "screen_end"]
        for outcome in [SDKAnswer.Outcome.accepted, .repeated] {
            #expect(try caller.replay("\(sdk)-batch-create").isOK("{}", outcome))
            #expect(caller.kinds == ["session_start"] + kinds)
        }
    }

    @Test(arguments: [
        ("ios", ["session_start", "screen_start", "event", "screen_end", "session_end"], ["unregister"]),
        ("android", ["session_start", "screen_start", "user_tags", "session_end"], ["event"]),
    ])
    func offlineBatch_isStoredInOrder_andOnceIfItComesAgain(sdk: String, kinds: [String], failed: [String]) throws {
        var caller = try Caller()
        for outcome in [SDKAnswer.Outcome.accepted, .repeated] {
            #expect(try caller.replay("\(sdk)-offline-create").isOK("{}", outcome))
            #expect(caller.kinds == kinds)
            #expect(caller.harness.failures.map { "\($0.kind)" } == failed)
        }
        #expect(caller.harness.failures[0].detail == "the record has a type that cannot be delivered")
    }

    @Test func settings_areNeeded_andAreThoseOfTheContract() throws {
        let endpoints = try #require(try Caller(["sdk.prefix": .text("")]).harness.upstream.sdk)
        #expect(endpoints.prefix == "/sdk/curio" && endpoints.patience == .seconds(35))
        #expect(endpoints.settings.maxBodyBytes == 4_194_304 && endpoints.settings.whenInvalid == .deadLetter)
        #expect(endpoints.routes.count == 14 && Set(endpoints.routes.map(\.call)).count == 14)
        #expect(try CurioHarness().upstream.sdk == nil)
        for settings in [["apiKey": SettingValue.text("")], ["trackingCode": .text("")]] {
            #expect(throws: (any Error).self) { try Caller(settings) }
        }
    }

    // MARK: Checks

    @Test func checks_areMadeInOrder_credentials_session_content() throws {
        var caller = try caller()
        let stored = caller.kinds
        for body in ["", "a", "{}", "a=%zz"] { #expect(try caller.send("hit/create", body).isEmpty(400), "\(body)") }
        // Of a stranger, nothing else is looked at.
        for members in [[:], ["trackingCode": "x"], ["sessionCode": Self.s], Self.screen] {
            let answer = try caller.send("hit/create", ["visitorCode": "v"].merging(members) { $1 })
            #expect(answer.isEmpty(412) && answer.isOfStranger && answer.outcome == .unauthorized)
        }
        for (path, key) in [("visit/create", "x"), ("visit/create", ""), ("offline/create", "x")] {
            #expect(try caller.send(path, Caller.common(["apiKey": key, "data": "[]"])).isEmpty(412))
        }
        for members in [
            Caller.common(session: Self.next), Caller.common(visitor: "another"), ["trackingCode": "GW7DEM01"],
            Caller.common(["sessionCode": "NULL"]),
        ] {
            for path in ["hit/create", "hit/end", "event/create", "visit/end", "batch/create", "location/set"] {
                let answer = try caller.send(path, members)
                #expect(answer.isEmpty(401) && !answer.isOfStranger, "\(path) \(members)")
            }
        }
        #expect(try caller.send("batch/create", Caller.common(["data": "{}"])).isEmpty(400))
        #expect(try caller.send("batch/create", Caller.common()).isEmpty(400))
        #expect(try caller.send("offline/create", Caller.common(["apiKey": Caller.key, "data": "x"])).isEmpty(400))
        #expect(caller.kinds == stored && caller.harness.failures.isEmpty)
    }

    @Test func itemThatBreaksARule_isADeadLetter_orRefused() throws {
        let requests: [(path: String, members: [String: String])] = [
            ("hit/create", ["pageTitle": "", "path": "p"]), ("event/create", ["eventKey": "k"]),
            ("location/set", ["lat": "91.2", "long": "0"]), ("visitor/setUserTag", ["userTags": #"{"AGE":27}"#]),
            ("visitor/setPushData", ["pushId": "p"]),
        ]
        var keeping = try caller()
        for (index, (path, members)) in requests.enumerated() {
            #expect(try keeping.send(path, Caller.common(members)).status == 200, "\(path)")
            #expect(keeping.harness.failures.count == index + 1 && keeping.kinds.count == 1, "\(path)")
        }
        var refusing = try caller(["sdk.whenInvalid": .text("refuse")])
        for (path, members) in requests { #expect(try refusing.send(path, Caller.common(members)).isEmpty(400)) }
        // The session is checked first.
        #expect(try refusing.send("hit/create", Caller.common(session: Self.next)).isEmpty(401))
        let bad = #"[{"type":2,"timestamp":1,"hitCode":"h"},{"type":4,"timestamp":2,"eventKey":"k","eventValue":"v"}]"#
        #expect(try refusing.send("batch/create", Caller.common(["data": bad])).isEmpty(400))
        #expect(refusing.kinds.count == 1 && refusing.harness.failures.isEmpty)
        // What no rule of a kind is about is kept in any case.
        #expect(try refusing.send("hit/end", Caller.common()).isOK())
        #expect(try refusing.send("batch/create", Caller.common(["data": #"[{"type":5,"timestamp":1}]"#])).isOK())
        #expect(refusing.harness.failures.count == 2)
    }

    @Test func locations_areDeadLetters_ifTheyAreNotWanted() throws {
        var caller = try caller(["fetchLocationEnabled": .bool(false)])
        #expect(try caller.send("location/set", Caller.common(["lat": "1", "long": "2"])).isOK())
        #expect(caller.harness.failures.first?.detail.contains("fetchLocationEnabled") == true)
    }

    @Test func refusals_areEmpty_andWithoutRoomThereIsNone() throws {
        for (reason, status) in [
            (SDKRefusal.notFound, 404), (.unauthorized, 401), (.forbidden, 403), (.malformed, 400), (.tooLarge, 413),
        ] { #expect(CurioSDK.refusal(reason).isEmpty(status)) }
        let wrong = CurioSDK.refusal(.methodNotAllowed("POST"))
        #expect(wrong.status == 405 && wrong.body.isEmpty && wrong.headers.elementsEqual([("Allow", "POST")], by: ==))
        #expect(CurioSDK.refusal(.noRoom).isDropped)
    }

    // MARK: Codes

    @Test func code_isIssued_andItsEndQuotesWhatThePlatformGave() throws {
        var caller = try caller()
        let code = try code(try caller.send("hit/create", Caller.common(Self.screen)))
        let event = try self.code(try caller.send("event/create", Caller.common(Self.event)), "eventCode")
        #expect(code != event)
        // iOS sends both texts empty.
        let ends = [
            ("event/end", ["eventCode": event, "eventKey": "", "eventValue": "", "eventDuration": "7"]),
            ("hit/end", ["hitCode": code, "pageTitle": "", "path": ""]),
        ]
        for (path, members) in ends { #expect(try caller.send(path, Caller.common(members)).isOK()) }
        for (path, members) in ends {
            #expect(try caller.send(path, Caller.common(members)).isOK("{}", .repeated), "\(path)")
        }
        try play(&caller, "{}", #"{"hitCode":"h1"}"#, #"{"eventCode":"e1"}"#, "{}", "{}")
        #expect(
            caller.harness.trace == [
                "/visit/create \(Self.s)", "/hit/create \(Self.s)", "/event/create \(Self.s)",
                "/event/end \(Self.s) e1", "/hit/end \(Self.s) h1",
            ])
        #expect(caller.harness.sent[4].form["pageTitle"] == "t" && caller.harness.sent[3].form["eventKey"] == "k")
    }

    private func play(_ caller: inout Caller, _ bodies: String...) throws {
        for body in bodies { try caller.harness.turn { _ in UpstreamResponse(status: 200, body: Array(body.utf8)) } }
    }

    @Test func endWithoutACode_closesTheNewest_orThatWithItsTexts() throws {
        var caller = try caller()
        for path in ["a", "b"] { try caller.send("hit/create", Caller.common(["pageTitle": "t", "path": path])) }
        for key in ["x", "y", "x", "z"] {
            try caller.send("event/create", Caller.common(["eventKey": key, "eventValue": key == "z" ? "" : "1"]))
        }
        let opens = caller.harness.queue.map(\.id)
        var closed: [MessageID?] = []
        func end(_ path: String, _ members: [String: String], _ caller: inout Caller) throws {
            #expect(try caller.send(path, Caller.common(members)).isOK())
            let end = try #require(caller.harness.queue.last)
            closed.append(caller.harness.state.open(at: Key.closing(end.id, of: Self.s))?.id)
        }
        try end("hit/end", ["hitCode": "UNKNOWN", "pageTitle": "t", "path": "a"], &caller)
        try end("hit/end", ["hitCode": "", "pageTitle": "", "path": ""], &caller)
        try end(
            "event/end", ["eventKey": "x", "eventValue": "1", "eventDuration": "1", "eventCode": "UNKNOWN"], &caller)
        try end("event/end", ["eventDuration": "1", "eventCode": "(null)"], &caller)
        try end("event/end", ["eventKey": "x", "eventValue": "1", "eventDuration": "1"], &caller)
        #expect(closed == [opens[2], opens[1], opens[5], opens[6], opens[3]])
        let before = caller.kinds
        for (path, members) in [
            ("hit/end", [:]), ("event/end", ["eventKey": "x", "eventValue": "1", "eventDuration": "1"]),
        ] {
            #expect(try caller.send(path, Caller.common(members)).isOK())
            #expect(caller.harness.failures.last?.detail == "closes nothing that was started")
        }
        #expect(caller.kinds == before && caller.harness.failures.count == 2)
    }

    @Test func endOfAnUnknownCode_isForwardedWithIt_alsoIfItIsAnotherVisitors() throws {
        var caller = try caller()
        try caller.begin(session: Self.next, visitor: "other")
        let theirs = try code(
            try caller.send("hit/create", Caller.common(session: Self.next, visitor: "other", Self.screen)))
        caller.harness.queue.removeAll { $0.lane != .named(CurioSample.visitor) }
        #expect(
            try caller.send("hit/end", Caller.common(["hitCode": theirs, "pageTitle": "a", "path": "b"])).isOK())
        try play(&caller, "{}", "{}")
        #expect(caller.harness.trace.last == "/hit/end \(Self.s) \(theirs)")
        #expect(caller.harness.sent.last?.form["pageTitle"] == "a" && caller.harness.sent.last?.form["path"] == "b")
    }

    // MARK: Sessions

    @Test func session_isLive_forItsTimeoutAfterTheLastRequest() throws {
        var caller = try Caller()
        try caller.begin(["sessionTimeout": "7"])
        for seconds in [420, 420, 420] {
            caller.harness.now = caller.harness.now + .seconds(seconds)
            #expect(try caller.send("event/create", Caller.common(Self.event)).status == 200)
        }
        // What is refused does not renew it, and neither does the timeout that a later request has.
        caller.harness.now = caller.harness.now + .seconds(300)
        #expect(try caller.send("hit/create", Caller.common(["trackingCode": "x"])).isEmpty(412))
        caller.harness.now = caller.harness.now + .milliseconds(120_001)
        for path in ["event/create", "hit/end", "batch/create", "visitor/unregister"] {
            #expect(try caller.send(path, Caller.common(Self.event)).isEmpty(401), "\(path)")
        }
        #expect(try caller.begin().isEmpty(401))
        // Only its end is taken. The SDK would report a refused one as a record.
        #expect(try caller.send("visit/end", Caller.common()).isOK())
        #expect(try caller.send("visit/end", Caller.common()).isEmpty(401))
        #expect(try caller.begin(session: Self.next).isOK())
    }

    @Test func startThatComesAgain_isARepeat_andThatOfAnotherVisitorIsRefused() throws {
        var caller = try caller()
        #expect(try caller.begin().isOK("{}", .repeated))
        #expect(try caller.begin(visitor: "another").isEmpty(401))
        #expect(caller.kinds == ["session_start"])
        #expect(try caller.send("visit/end", Caller.common()).isOK())
        #expect(try caller.begin().isEmpty(401))
    }

    @Test func sessionOfTheOwnAPI_isLiveForTheSDK_andTheOtherWayRound() throws {
        var caller = try Caller()
        try caller.harness.post(CurioSample.sessionStart())
        #expect(try caller.send("event/create", Caller.common(Self.event)).status == 200)
        try caller.begin(session: Self.next)
        try caller.harness.post(CurioSample.make("unregister", session: Self.next))
        #expect(throws: AcceptanceError.self) { try caller.harness.post(CurioSample.sessionStart(session: Self.next)) }
    }

    @Test func deviceBlock_isSentAsItCame() throws {
        var caller = try Caller()
        try caller.begin(["screenWidth": "wide", "lang": "", "brand": "NULL", "sessionTimeout": "0"])
        try play(&caller, "{}")
        let form = caller.harness.sent[0].form
        #expect(form["screenWidth"] == "wide" && form["lang"] == "" && form["brand"] == nil && form["osVer"] == nil)
        #expect(form["sessionTimeout"] == "30" && form["model"] == "m")
        #expect(caller.harness.settled.map(\.state) == [.delivered])
    }
}
