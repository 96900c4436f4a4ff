import PosternConformance
import PosternSimulatorKit
import PosternTestKit
import Testing

@testable import CurioSimulator

private typealias V = CurioVectors
private typealias C = CurioClient

@Suite struct CurioControlTests {
    private let client = CurioClient()

    @Test func control_showsSettingsAndCounts() {
        _ = client.start()
        _ = client.screenStart()
        _ = client.send("/event/create", C.common() + C.event())
        _ = client.start(C.other, visitor: C.stranger)
        _ = client.screenStart(C.other, visitor: C.stranger)
        _ = client.end(C.other, visitor: C.stranger)
        #expect(
            client.control("{}")?.text == """
                {"acceptedRequests":6,"actions":{"custom_id":0,"event":1,"event_end":0,"location":0,\
                "notification_read":0,"push_token":0,"screen_end":0,"screen_start":2,"session_end":1,"session_start":2,"unregister":0,"user_tags":0},\
                "adoptOtherSessionCode":false,"apiKey":"\(V.apiKey)","codeForm":"string","killSessionRate":0,\
                "openEvents":1,"openScreens":1,"orphanEvents":0,"orphanScreens":1,"recreations":0,"refusedSessions":0,\
                "repeats":0,"sessionTimeoutMinutes":null,\
                "sessions":{"adopted":0,"ended":1,"killed":0,"live":1,"timedOut":0},\
                "trackingCode":"\(V.trackingCode)","visitors":2,"wrongCredentials":0}
                """)
        client.time.advance(by: .seconds(1800))
        #expect(client.shown["orphanScreens"].int == 2)
        #expect(client.shown["openEvents"].int == 0)
    }

    @Test func credentials_areChanged_andChangedBack() {
        client.control(#"{"trackingCode":"OTHER","apiKey":"k"}"#)
        #expect(client.start().summary == "412")
        client.control(#"{"trackingCode":"GW7DEM01"}"#)
        #expect(client.start().summary == "412")
        client.control(#"{"apiKey":"\#(V.apiKey)"}"#)
        #expect(client.start().summary == "200")
        client.control(#"{"trackingCode":"OTHER"}"#)
        #expect(client.screenStart().summary == "412")
        #expect(client.shown["wrongCredentials"].int == 3)
        client.control(#"{"trackingCode":"","apiKey":""}"#)
        #expect(client.screenStart().summary == "200")
    }

    @Test func sessions_areKilled_ofOneVisitorOrAll() {
        _ = client.start()
        _ = client.start(C.other, visitor: C.stranger)
        #expect(client.control(#"{"killSessions":"\#(C.stranger)"}"#)?.status == 200)
        #expect(client.screenStart(C.other, visitor: C.stranger).summary == "401")
        #expect(client.screenStart().summary == "200")
        client.control(#"{"killSessions":"all"}"#)
        #expect(client.screenStart().summary == "401")
        #expect(client.shown["sessions"]["killed"].int == 2)
    }

    @Test func killSessionRate_kills_beforeTheRequest() {
        client.control(#"{"killSessionRate":1}"#)
        #expect(client.start().summary == "200")
        #expect(client.start().summary == "200")
        #expect(client.ocr([C.open(C.codes[0])]).summary == "200")
        #expect(client.pdr([C.close(C.codes[0])]).summary == "401")
        client.control(#"{"killSessionRate":0}"#)
        #expect(client.start(C.other).summary == "200")
        #expect(client.screenStart(C.other).summary == "200")
    }

    @Test func seed_repeatsTheChoices() {
        func run(_ client: CurioClient, seed: Int) -> [String] {
            client.control(#"{"seed":\#(seed),"killSessionRate":0.5,"codeForm":"mixed"}"#)
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
        client.control(#"{"sessionTimeoutMinutes":0.05}"#)
        client.time.advance(by: .seconds(2))
        #expect(client.screenStart().summary == "200")
        client.time.advance(by: .seconds(3))
        #expect(client.screenStart().summary == "401")
        client.control(#"{"sessionTimeoutMinutes":null}"#)
        _ = client.start(C.other)
        client.time.advance(by: .seconds(1799))
        #expect(client.screenStart(C.other).summary == "200")
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
            #expect(client.screenEnd(found.text).summary == "200")
        }
        #expect(seen == kinds)
        #expect(codes.count == (kinds.isEmpty ? 0 : 30))
    }

    @Test func otherSession_takesThePlaceOfTheBatchs_whenAskedFor() {
        client.control(#"{"adoptOtherSessionCode":true}"#)
        let records = [C.record(0), C.open(C.codes[0])]
        let answer = client.ocr(records)
        let adopted = answer.code ?? ""
        #expect(answer.summary == "200")
        #expect(isUUID(adopted, version: "1"))
        #expect(adopted != V.session)
        #expect(client.ocr(records).code == adopted)
        #expect(client.screenStart().summary == "401")
        #expect(client.screenEnd(C.codes[0], adopted).summary == "200")
        #expect(client.ocr([C.record(0, C.other), C.record(1, C.other)]).code == C.other)
        #expect(client.shown["sessions"]["adopted"].int == 1)
    }

    // MARK: Refusals

    static let refused: [(body: String, problem: String)] = [
        ("", "the body is not a JSON object"), ("[]", "the body is not a JSON object"),
        ("{}x", "the body is not a JSON object"),
        (
            #"{"killAll":1}"#,
            #"unknown member "killAll"; known are adoptOtherSessionCode, apiKey, codeForm, killSessionRate, "#
                + "killSessions, seed, sessionTimeoutMinutes, trackingCode"
        ),
        (#"{"apiKey":null}"#, "apiKey: "), (#"{"trackingCode":1}"#, "trackingCode: "),
        (#"{"killSessionRate":1.5}"#, "killSessionRate: must be from 0.0 to 1.0"),
        (#"{"killSessionRate":"1"}"#, "killSessionRate: "),
        (#"{"sessionTimeoutMinutes":0}"#, "sessionTimeoutMinutes: must be null or a number above 0, at most 1440"),
        (#"{"codeForm":"odd"}"#, "codeForm: must be one of string, number, mixed, missing, html"),
        (#"{"adoptOtherSessionCode":1}"#, "adoptOtherSessionCode: "), (#"{"killSessions":true}"#, "killSessions: "),
        (#"{"killSessions":""}"#, "killSessions: must be \"all\" or a visitorCode"), (#"{"seed":-1}"#, "seed: "),
        (#"{"seed":-1,"apiKey":"x"}"#, "seed: "),
    ]

    @Test(arguments: refused) func change_isRefusedAsAWhole(body: String, problem: String) {
        let before = client.control("{}")?.text
        let refused = client.control(body)
        #expect(refused?.status == 400)
        #expect(refused?.text.hasPrefix(problem) == true, "\(refused?.text ?? "")")
        client.control(#"{"codeForm":"html","seed":"x"}"#)
        #expect(client.control("{}")?.text == before)
    }

    @Test func control_knowsTwoMethodsAndOnePath() {
        #expect(client.control()?.status == 200)
        #expect(client.control(method: "DELETE")?.status == 405)
        #expect(client.control(at: "/control/sessions") == nil)
    }
}
