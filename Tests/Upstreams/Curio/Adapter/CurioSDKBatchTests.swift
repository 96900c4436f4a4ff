import Foundation
import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import CurioAdapter

/// Batches of Curio's SDKs: what they bring, how it is sent, and what is no reason to refuse them.
@Suite struct CurioSDKBatchTests {
    private typealias Caller = CurioSDKCaller
    private static let s = CurioSample.session
    private static let former = "6d551000-a21d-11e4-8123-03ab5c7d9e20"
    private static let third = "6d551000-a21d-11e4-8123-03ab5c7d9e21"
    private static let ok = UpstreamResponse(status: 200)

    private static func record(_ type: Int, _ seconds: Int64, _ members: String = "", session: String = s) -> String {
        let moment = CurioSample.fresh + seconds * 1000
        return #"{"type":\#(type),"timestamp":"\#(moment)","sessionCode":"\#(session)"\#(members)}"#
    }

    private static func screen(
        _ seconds: Int64, _ code: String, session: String = s, title: String = "t"
    ) -> String {
        record(2, seconds, #","pageTitle":"\#(title)","path":"p","hitCode":"\#(code)""#, session: session)
    }

    private static func end(_ seconds: Int64, _ code: String, session: String = s) -> String {
        record(3, seconds, #","pageTitle":"","path":"","hitCode":"\#(code)""#, session: session)
    }

    private func batch(_ caller: inout Caller, _ records: String..., more: [String: String] = [:]) throws -> SDKAnswer {
        let data = "[" + records.joined(separator: ",") + "]"
        return try caller.send("batch/create", Caller.common(["data": data].merging(more) { $1 }))
    }

    private func offline(_ caller: inout Caller, _ records: String..., model: String = "m") throws -> SDKAnswer {
        try offline(&caller, records, model: model)
    }

    private func offline(_ caller: inout Caller, _ records: [String], model: String = "m") throws -> SDKAnswer {
        let data = "[" + records.joined(separator: ",") + "]"
        return try caller.send(
            "offline/create",
            [
                "apiKey": Caller.key, "trackingCode": "GW7DEM01", "visitorCode": CurioSample.visitor, "model": model,
                "sessionTimeout": "7", "data": data,
            ])
    }

    private func deliver(_ caller: inout Caller, _ answers: UpstreamResponse...) throws {
        for answer in answers { try caller.harness.turn { _ in answer } }
    }

    private func types(_ request: UpstreamRequest) throws -> [String] {
        let data = try #require(request.form["data"])
        return JSON(Array(data.utf8)).array.map {
            "\($0["type"].int ?? -9) \($0["sessionCode"].string?.suffix(2) ?? "")"
        }
    }

    // MARK: How records are sent

    @Test func recordsOfALiveSession_areSentInTheirBatch_atOnce_andNeverOnline() throws {
        var caller = try Caller(["periodicDispatchEnabled": .bool(true)])
        try caller.begin()
        #expect(try batch(&caller, Self.end(2, "h"), Self.screen(1, "h")).status == 200)
        try deliver(&caller, Self.ok, Self.ok)
        #expect(caller.harness.sent.map(\.path) == ["/visit/create", "/batch/create"])
        #expect(try types(caller.harness.sent[1]) == ["2 1f", "3 1f"])
        #expect(caller.harness.sent[1].form["data"]?.contains(#""timestamp":"\#(CurioSample.fresh + 1000)""#) == true)
        #expect(caller.harness.queue.isEmpty)
    }

    @Test func recordsOfAnOfflineBatch_areSentInOne_howeverFreshTheyAre() throws {
        var caller = try Caller()
        #expect(
            try offline(
                &caller, Self.record(1, 3), Self.end(2, "h"), Self.screen(1, "h"), Self.record(0, 0)
            ).text == "{}")
        try deliver(&caller, Self.ok)
        #expect(caller.harness.sent.map(\.path) == ["/offline/create"])
        #expect(try types(caller.harness.sent[0]) == ["0 1f", "2 1f", "3 1f", "1 1f"])
        #expect(caller.harness.sent[0].form["sessionTimeout"] == "7" && caller.harness.sent[0].form["model"] == "m")
        #expect(caller.harness.queue.isEmpty && caller.harness.failures.isEmpty)
    }

    /// A session that began offline is live from then on.
    @Test func sessionThatBeganInABatch_isLive() throws {
        var caller = try Caller()
        _ = try offline(&caller, Self.record(0, 0))
        let event = Caller.common(["eventKey": "k", "eventValue": "v"])
        #expect(try caller.send("event/create", event).status == 200)
        caller.harness.now = caller.harness.now + .seconds(421)
        #expect(try caller.send("event/create", event).status == 401)
    }

    @Test func batchWhoseSessionThePlatformHasEnded_goesAsAnOfflineBatch_underItsOwnCode() throws {
        var caller = try Caller()
        try caller.begin()
        _ = try batch(&caller, Self.screen(1, "h"))
        try deliver(&caller, Self.ok, UpstreamResponse(status: 401), Self.ok)
        #expect(caller.harness.sent.map(\.path) == ["/visit/create", "/batch/create", "/offline/create"])
        #expect(try types(caller.harness.sent[2]) == ["2 1f"])
        #expect(caller.harness.queue.isEmpty)
    }

    @Test func recordsBeforeTheEndOfASession_areStillSentInTheirBatch_andLaterOnesOffline() throws {
        var caller = try Caller()
        try caller.begin()
        _ = try batch(&caller, Self.screen(1, "h"))
        try caller.send("visit/end", Caller.common())
        try caller.begin(session: Self.former)
        _ = try batch(&caller, Self.end(2, "h"), more: ["sessionCode": Self.former])
        try deliver(&caller, Self.ok, Self.ok, Self.ok, Self.ok, Self.ok)
        #expect(
            caller.harness.sent.map(\.path) == [
                "/visit/create", "/batch/create", "/visit/end", "/visit/create", "/offline/create",
            ])
        #expect(try types(caller.harness.sent[4]) == ["3 1f"])
    }

    // MARK: Sessions that are not known

    @Test func unknownSession_isAdopted_withTheDeviceBlockOfTheRequest_andIsNotLive() throws {
        var caller = try Caller()
        try caller.begin(["model": "phone"])
        // As after a 401: the records are of the session before.
        #expect(try batch(&caller, Self.end(2, "h", session: Self.former)).status == 200)
        #expect(try offline(&caller, Self.screen(3, "i", session: Self.third), model: "other").status == 200)
        #expect(caller.harness.failures.isEmpty)
        for session in [Self.former, Self.third] {
            #expect(try caller.send("hit/create", Caller.common(session: session)).status == 401)
            #expect(try caller.begin(session: session).status == 401)
        }
        try deliver(&caller, Self.ok, Self.ok, Self.ok)
        #expect(caller.harness.sent.map(\.path) == ["/visit/create", "/offline/create", "/offline/create"])
        // Nothing starts it again upstream.
        #expect(try types(caller.harness.sent[1]) == ["3 20"] && types(caller.harness.sent[2]) == ["2 21"])
        #expect(caller.harness.sent[1].form["model"] == "phone" && caller.harness.sent[2].form["model"] == "other")
    }

    /// iOS sends the newest 250 first.
    @Test func startThatComesAfterItsRecords_isSent_andMakesTheSessionLive() throws {
        var caller = try Caller()
        _ = try offline(&caller, Self.screen(1, "h"))
        _ = try offline(&caller, Self.record(0, 0))
        #expect(try offline(&caller, Self.record(0, 0)).outcome == .repeated)
        try deliver(&caller, Self.ok, Self.ok)
        #expect(try caller.harness.sent.map(types) == [["2 1f", "0 1f"]])
        #expect(try caller.send("visitor/unregister", Caller.common()).status == 200)
    }

    @Test func recordOfAnotherVisitorsSession_isADeadLetter() throws {
        var caller = try Caller()
        try caller.begin(session: Self.former, visitor: "another")
        #expect(try offline(&caller, Self.screen(1, "h", session: Self.former), Self.record(0, 2)).status == 200)
        #expect(caller.harness.failures.count == 1 && caller.kinds == ["session_start", "session_start"])
    }

    // MARK: Repeats

    @Test func repeats_areRecognized_record_byRecord() throws {
        var caller = try Caller()
        try caller.begin()
        #expect(try batch(&caller, Self.screen(1, "h"), Self.end(2, "h")).outcome == .accepted)
        // With something new between them; and moved to another batch.
        #expect(try batch(&caller, Self.screen(1, "h"), Self.screen(3, "i"), Self.end(2, "h")).outcome == .accepted)
        #expect(caller.kinds == ["session_start", "screen_start", "screen_end", "screen_start"])
        #expect(try offline(&caller, Self.end(2, "h"), Self.screen(1, "h"), Self.record(0, 0)).outcome == .repeated)
        try caller.send("visit/end", Caller.common())
        #expect(try offline(&caller, Self.record(1, 9)).outcome == .repeated)
        #expect(caller.kinds.count == 5 && caller.harness.failures.isEmpty)
    }

    /// An online start whose code was lost: the gateway makes one, the same each time.
    @Test func startWithoutACode_isClosedByTheNextEndWithoutOne_andIsARepeatWithTheSameTexts() throws {
        var caller = try Caller()
        let start = Self.record(2, 1, #","pageTitle":"t","path":"p""#)
        let end = Self.record(3, 2, #","pageTitle":"","path":"","hitCode":"UNKNOWN""#)
        for outcome in [SDKAnswer.Outcome.accepted, .repeated] {
            #expect(try offline(&caller, end, start, Self.record(0, 0)).outcome == outcome)
        }
        try deliver(&caller, Self.ok)
        let data = try #require(caller.harness.sent[0].form["data"])
        let codes = data.matches(of: /"hitCode":"([^"]+)"/).map(\.output.1)
        #expect(codes.count == 2 && codes[0] == codes[1] && data.contains(#""pageTitle":"t""#))
    }

    // MARK: How much fits

    @Test func batchAboveTheCap_fitsIfNothingIsQueued() throws {
        var caller = try Caller(["maxCachedActivityCount": .integer(2)])
        let large = (1...4).map { Self.screen(Int64($0), "\($0)") }
        #expect(try offline(&caller, large).status == 200)
        #expect(caller.kinds.count == 4)
        #expect(try offline(&caller, Self.screen(9, "9")).isDropped)
        // What is there already needs no room.
        #expect(try offline(&caller, large).outcome == .repeated)
        try deliver(&caller, Self.ok)
        _ = try offline(&caller, Self.screen(9, "9"))
        // The whole of it does not fit.
        #expect(try offline(&caller, Self.screen(10, "10"), Self.screen(11, "11")).isDropped)
        #expect(caller.kinds.count == 1)
        #expect(try offline(&caller, Self.screen(10, "10")).status == 200)
        try caller.begin(session: Self.third, visitor: "another")
        #expect(caller.kinds.count == 3)
    }

    @Test(.timeLimit(.minutes(5))) func fiftyThousandRecords_areOneRequest() throws {
        let caller = try Caller()
        let records = (0..<50_000).reversed().map { Self.screen(Int64($0), "\($0)") }
        let form = "apiKey=\(Caller.key)&trackingCode=GW7DEM01&visitorCode=v&data=[\(records.joined(separator: ","))]"
        let route = try #require(caller.harness.upstream.sdk?.routes.first { $0.call == "offline" })
        guard case .store(let read) = route.response else { return _ = Issue.record("not stored") }
        let submission = try read(SDKRequest(body: Array(form.utf8), receivedAt: caller.harness.now))
        #expect(submission.items.count == 50_000)
        #expect(submission.items.allSatisfy { if case .success = $0.validation { true } else { false } })
        #expect(Set(submission.items.map(\.identity)).count == 50_000)
        #expect(
            String(decoding: submission.bytes[submission.items[7].range], as: UTF8.self).contains(#""hitCode":"7""#))
    }

    // MARK: Odd input

    @Test func anyClock_andLoneSurrogates_areTaken() throws {
        var caller = try Caller()
        let records = [
            #"{"type":0,"timestamp":0,"sessionCode":"\#(Self.s)"}"#,
            #"{"type":2,"timestamp":4102444800000,"sessionCode":"\#(Self.s)","pageTitle":"a\ud800b","path":"\/p","hitCode":"h","more":1e400}"#,
            #"{"type":-1,"timestamp":1,"sessionCode":"\#(Self.s)","userTags":"{\"a\":\"\\ud800\"}"}"#,
        ]
        #expect(try offline(&caller, records).status == 200)
        #expect(caller.harness.failures.isEmpty && caller.kinds.count == 3, "\(caller.harness.failures)")
        try deliver(&caller, Self.ok, Self.ok, Self.ok)
        #expect(caller.harness.settled.map(\.state) == [.delivered, .delivered, .delivered])
        #expect(caller.harness.sent[0].form["data"]?.contains(#""timestamp":"0""#) == true)
    }

    @Test func requestThatIsCutAnywhere_isReadOrRefused_andStoresAllOrNothing() throws {
        for file in ["ios-offline-create", "android-batch-create", "ios-user-tags", "android-event-end"] {
            let text = String(decoding: try Fixture.bytes("sdk/\(file).http"), as: UTF8.self)
            let parts = text.split(separator: "\n\n", maxSplits: 1)
            let path = try #require(parts[0].split(separator: " ").dropFirst().first).dropFirst("/sdk/curio/".count)
            for length in stride(from: 0, to: parts[1].count, by: 7) {
                var caller = try Caller()
                try caller.replay(file.hasPrefix("ios") ? "ios-visit-create" : "android-visit-create")
                let answer = try caller.send(String(path), String(parts[1].prefix(length)))
                #expect([200, 400, 401, 412].contains(answer.status), "\(file) \(length)")
                #expect(answer.status == 200 || caller.kinds.count == 1 && caller.harness.failures.isEmpty)
                #expect(answer.status == 200 || answer.body.isEmpty)
            }
        }
    }

    @Test func nameThatComesTwice_countsLast() throws {
        var caller = try Caller()
        try caller.begin()
        let form = "trackingCode=x&sessionCode=\(Self.s)&visitorCode=\(CurioSample.visitor)&trackingCode=GW7DEM01"
        #expect(try caller.send("visitor/unregister", form).status == 200)
        #expect(try caller.send("visitor/unregister", form + "&trackingCode=x").status == 412)
    }
}
