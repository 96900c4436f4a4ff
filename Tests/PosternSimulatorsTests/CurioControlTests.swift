import PosternTestKit
import Testing

@testable import PosternSimulators

private typealias V = CurioVectors
private typealias C = CurioClient

@Suite struct CurioControlTests {
    private let client = CurioClient()

    private func shown(_ answer: SimulatedAnswer?) -> String { String(decoding: answer?.body ?? [], as: UTF8.self) }

    @Test func control_showsSettingsAndCounts() {
        _ = client.start()
        _ = client.screenStart()
        _ = client.send("/event/create", C.common() + C.event())
        _ = client.start(C.other, visitor: C.stranger)
        _ = client.screenStart(C.other, visitor: C.stranger)
        _ = client.end(C.other, visitor: C.stranger)
        #expect(
            shown(client.control("{}")) == """
                {"apiKey":"\(V.apiKey)","trackingCode":"\(V.trackingCode)","sessionTimeoutMinutes":null,\
                "killSessionRate":0.0,"codeForm":"string","adoptOtherSessionCode":false,"visitors":2,\
                "sessions":{"live":1,"ended":1,"timedOut":0,"killed":0,"adopted":0},\
                "actions":{"session_start":2,"session_end":1,"screen_start":2,"screen_end":0,"event":1,"event_end":0,\
                "push_token":0,"notification_read":0,"custom_id":0,"location":0,"user_tags":0,"unregister":0},\
                "repeats":0,"recreations":0,"refusedSessions":0,"wrongCredentials":0,"openScreens":1,"openEvents":1,\
                "orphanScreens":1,"orphanEvents":0}
                """)
        client.time.advance(by: .seconds(1800))
        #expect(client.count("orphanScreens") == 2)
        #expect(client.count("openEvents") == 0)
    }

    @Test func credentials_areChanged_andChangedBack() {
        _ = client.control(#"{"trackingCode":"OTHER","apiKey":"k"}"#)
        #expect(client.start().outcome == "412")
        _ = client.control(#"{"trackingCode":"GW7DEM01"}"#)
        #expect(client.start().outcome == "412")
        _ = client.control(#"{"apiKey":"\#(V.apiKey)"}"#)
        #expect(client.start().outcome == "200")
        _ = client.control(#"{"trackingCode":"OTHER"}"#)
        #expect(client.screenStart().outcome == "412")
        #expect(client.count("wrongCredentials") == 3)
        _ = client.control(#"{"trackingCode":"","apiKey":""}"#)
        #expect(client.screenStart().outcome == "200")
    }

    @Test func sessions_areKilled_ofOneVisitorOrAll() {
        _ = client.start()
        _ = client.start(C.other, visitor: C.stranger)
        #expect(client.control(#"{"killSessions":"\#(C.stranger)"}"#)?.status == 200)
        #expect(client.screenStart(C.other, visitor: C.stranger).outcome == "401")
        #expect(client.screenStart().outcome == "200")
        _ = client.control(#"{"killSessions":"all"}"#)
        #expect(client.screenStart().outcome == "401")
        #expect(client.count("killed") == 2)
    }

    @Test func killSessionRate_kills_beforeTheRequest() {
        _ = client.control(#"{"killSessionRate":1}"#)
        #expect(client.start().outcome == "200")
        #expect(client.start().outcome == "200")
        #expect(client.ocr([C.open(C.codes[0])]).outcome == "200")
        #expect(client.pdr([C.close(C.codes[0])]).outcome == "401")
        _ = client.control(#"{"killSessionRate":0}"#)
        #expect(client.start(C.other).outcome == "200")
        #expect(client.screenStart(C.other).outcome == "200")
    }

    @Test func seed_repeatsTheChoices() {
        func run(_ client: CurioClient, seed: Int) -> [String] {
            _ = client.control(#"{"seed":\#(seed),"killSessionRate":0.5,"codeForm":"mixed"}"#)
            return (10..<50).map { number in
                let session = "000000\(number)" + C.other.dropFirst(8)
                _ = client.start(session)
                return client.screenStart(session).text
            }
        }
        let choices = run(client, seed: 5)
        #expect(Set(choices).count > 10)
        #expect(choices == run(CurioClient(seed: 2), seed: 5))
        #expect(choices != run(CurioClient(seed: 2), seed: 6))
    }

    @Test func sessionTimeout_standsInForTheRequests() {
        _ = client.start(timeout: "30")
        _ = client.control(#"{"sessionTimeoutMinutes":0.05}"#)
        client.time.advance(by: .seconds(2))
        #expect(client.screenStart().outcome == "200")
        client.time.advance(by: .seconds(3))
        #expect(client.screenStart().outcome == "401")
        _ = client.control(#"{"sessionTimeoutMinutes":null}"#)
        _ = client.start(C.other)
        client.time.advance(by: .seconds(1799))
        #expect(client.screenStart(C.other).outcome == "200")
    }

    static let forms: [(form: String, kinds: Set<JSONScanner.Kind>)] = [
        ("string", [.string]), ("number", [.integer]), ("mixed", [.string, .integer]), ("missing", []), ("html", []),
    ]

    @Test(arguments: forms) func code_hasTheFormAskedFor_andIsQuotedDigitForDigit(
        form: String, kinds: Set<JSONScanner.Kind>
    ) {
        #expect(client.control(#"{"codeForm":"\#(form)"}"#)?.status == 200)
        _ = client.start()
        var seen: Set<JSONScanner.Kind> = []
        var codes: Set<String> = []
        for _ in 0..<30 {
            let opened = client.screenStart()
            #expect(opened.status == 200)
            let found = (opened.answer?.body ?? []).withUnsafeBufferPointer { member("hitCode", of: $0) }
            guard let found else { continue }
            seen.insert(found.kind)
            codes.insert(found.text)
            if found.kind == .integer { #expect((UInt64(found.text) ?? 0) > 1 << 53) }
            #expect(client.screenEnd(found.text).outcome == "200")
        }
        #expect(seen == kinds)
        #expect(codes.count == (kinds.isEmpty ? 0 : 30))
    }

    @Test func otherSession_takesThePlaceOfTheBatchs_whenAskedFor() {
        _ = client.control(#"{"adoptOtherSessionCode":true}"#)
        let records = [C.record(0), C.open(C.codes[0])]
        let answer = client.ocr(records)
        let adopted = answer.code ?? ""
        #expect(answer.outcome == "200")
        #expect(isUUID(adopted, version: "1"))
        #expect(adopted != V.session)
        #expect(client.ocr(records).code == adopted)
        #expect(client.screenStart().outcome == "401")
        #expect(client.screenEnd(C.codes[0], adopted).outcome == "200")
        #expect(client.ocr([C.record(0, C.other), C.record(1, C.other)]).code == C.other)
        #expect(client.count("adopted") == 1)
    }

    // MARK: Refusals

    static let refused: [(body: String, answer: String)] = [
        ("", "the body is no JSON object"), ("[]", "the body is no JSON object"), ("{}x", "the body is no JSON object"),
        (
            #"{"killAll":1}"#,
            "unknown member; known are adoptOtherSessionCode, apiKey, codeForm, killSessionRate, killSessions, seed, "
                + "sessionTimeoutMinutes, trackingCode"
        ),
        (#"{"apiKey":null}"#, "apiKey is a string; empty for any"),
        (#"{"trackingCode":1}"#, "trackingCode is a string; empty for any"),
        (#"{"killSessionRate":1.5}"#, "killSessionRate is a number from 0 to 1"),
        (#"{"killSessionRate":"1"}"#, "killSessionRate is a number from 0 to 1"),
        (#"{"sessionTimeoutMinutes":0}"#, "sessionTimeoutMinutes is null or a number above 0, at most 1440"),
        (#"{"codeForm":"odd"}"#, "codeForm is one of string, number, mixed, missing, html"),
        (#"{"adoptOtherSessionCode":1}"#, "adoptOtherSessionCode is true or false"),
        (#"{"killSessions":true}"#, "killSessions is \"all\" or a visitorCode"),
        (#"{"seed":-1}"#, "seed is a number from 0"),
        (
            #"{"seed":-1,"apiKey":"x","killSessionRate":true}"#,
            "seed is a number from 0\nkillSessionRate is a number from 0 to 1"
        ),
    ]

    @Test(arguments: refused) func change_isRefusedAsAWhole(body: String, answer: String) {
        let before = shown(client.control("{}"))
        let refused = client.control(body)
        #expect(refused?.status == 400)
        #expect(shown(refused) == answer + "\n")
        _ = client.control(#"{"codeForm":"html","seed":"x"}"#)
        #expect(shown(client.control("{}")) == before)
    }

    @Test func control_knowsTwoMethodsAndOnePath() {
        func status(_ method: String, _ path: String) -> Int? {
            client.simulator.control(
                SimulatedRequest(method: method, path: path, query: nil, headers: [], body: []))?.status
        }
        #expect(status("GET", "/control") == 200)
        #expect(status("DELETE", "/control") == 405)
        #expect(status("GET", "/control/sessions") == nil)
    }
}
