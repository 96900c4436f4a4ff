import PosternConformance
import PosternCore
import PosternSimulatorKit
import PosternTestKit
import Testing

@testable import CurioSimulator

private typealias V = CurioVectors
private typealias C = CurioClient

/// Rules about single requests.
@Suite struct CurioWireTests {
    private let client = CurioClient()

    // MARK: Vectors

    @Test func examples_areTaken_andUnderstood() {
        let screen = #""pageTitle":"Ana sayfa – Şarkılar","path":"/müzik?x=1+1&y=%20""#
        let event = #""eventKey":"Buton>Giriş","eventValue":"100% A+B""#
        let head = #"{"visitor":"\#(V.visitor)","session":"\#(V.session)","action":"#
        func text(_ action: String, _ request: Int, _ members: String = "") -> [String] {
            [#"\#(head)"\#(action)","mode":"online","request":\#(request)\#(members)}"#]
        }
        #expect(client.post(V.golden("session-start")).summary == "200")
        let opened = client.post(V.golden("screen-start"))
        let hit = opened.code ?? ""
        #expect(opened.summary == "200")
        #expect(opened.answer?.headers.map(\.value) == ["application/json"])
        #expect(opened.texts == text("screen_start", 2, #",\#(screen),"code":"\#(hit)""#))
        let closed = client.post(
            .init(
                suffix: V.golden("screen-end").suffix,
                body: V.golden("screen-end").body.with(hit, for: "e3b0c44298fc4c149afbf4c8996fb924")))
        #expect(closed.summary == "200")
        #expect(closed.texts == text("screen_end", 3, #",\#(screen),"code":"\#(hit)""#))
        let code = client.post(V.golden("event")).code ?? ""
        let ended = client.post(
            .init(
                suffix: V.golden("event-end").suffix,
                body: V.golden("event-end").body.with(code, for: "d7a8fbb307d7809469ca9abcb0082e4f")))
        #expect(ended.summary == "200")
        #expect(ended.texts == text("event_end", 5, #",\#(event),"eventDuration":"35045","code":"\#(code)""#))
        let token = "9c1e5d0f7a2b4c6d8e9fa0b1c2d3e4f5061728394a5b6c7d8e9f0a1b2c3d4e5f"
        for (number, (example, action, members)) in [
            (V.golden("push-token"), "push_token", #","pushId":"","pushToken":"\#(token)""#),
            (
                V.golden("notification-read"), "notification_read",
                #","pushId":"5542fe0ee4b0d5e3a1b2c3d4","pushToken":"\#(token)""#
            ),
            (V.golden("custom-id"), "custom_id", #","pushId":"","pushToken":"\#(token)","customId":"müşteri 42/ü+x""#),
            (V.golden("location"), "location", #","lat":"41.0082376","long":"28.9783589""#),
            (V.golden("user-tags"), "user_tags", #","userTags":{"AGE":"27","ŞEHİR":"Kadıköy"}"#),
            (V.golden("unregister"), "unregister", #","customId":"user-42""#),
        ].enumerated() {
            let judged = client.post(example)
            #expect(judged.summary == "200")
            #expect(judged.answer?.body == [])
            #expect(judged.texts == text(action, number + 6, members))
        }
        #expect(client.post(V.golden("session-end")).summary == "200")
    }

    @Test func batches_areTaken_recordByRecord() {
        #expect(client.post(V.golden("session-start")).summary == "200")
        let pdr = client.post(V.golden("periodic-batch"))
        #expect(pdr.summary == "200")
        #expect(
            pdr.texts[2] == """
                {"visitor":"\(V.visitor)","session":"\(V.session)","action":"event_end","mode":"pdr","request":2,\
                "eventKey":"Buton>Giriş","eventValue":"100% A+B","eventDuration":"35045",\
                "timestamp":1421920837545,"code":"7d444840-9dc0-41d1-b245-5ffdce74fad2"}
                """)
        #expect(pdr.texts.count == 4)
        let fresh = CurioClient()
        let ocr = fresh.post(V.golden("offline-batch"))
        #expect(ocr.summary == "200")
        #expect(ocr.text == #"{"sessionCode":"\#(V.session)"}"#)
        #expect(ocr.texts.map { $0.contains(#""mode":"ocr""#) } == [true, true, true, true])
        #expect(ocr.texts[0].contains(#""screenWidth":"750","screenHeight":"1334","lang":"tr-TR""#))
    }

    /// Section 11.1: a text, after `enc` once, after `enc` twice.
    @Test(arguments: try Fixture.value("texts.json") as [[String]]) func texts_areDecodedTwice(texts: [String]) {
        let (text, inner, outer) = (texts[0], texts[1], texts[2])
        _ = client.start()
        #expect(C.enc(text) == inner)
        #expect(C.enc(inner) == outer)
        let judged = client.post(
            "/event/create", C.form(C.common()) + "&eventKey=k&eventValue=" + outer)
        #expect(judged.summary == "200")
        #expect(judged.texts[0].contains(#""eventValue":\#(quoted(text)),"#))
    }

    @Test func queries_areAnswered_fromWhatWasSet() {
        _ = client.start()
        _ = client.send("/visitor/setUserTag", C.three() + [("userTags", #"{"B":"1","A":"\/"}"#)])
        _ = client.send("/visitor/setUserTag", C.three() + [("userTags", #"{"B":"2"}"#)])
        let tags = client.send("/visitor/getVisitorProfileTags", C.three())
        #expect(tags.summary == "200")
        #expect(tags.text == #"{"A":"/","B":"2"}"#)
        #expect(client.send("/pushHistory/get/0/5", C.three() + [("pushToken", "t")]).summary == "200")
    }

    // MARK: Endpoints and headers

    @Test(arguments: [
        "/", "", "/api/v2", "/api/v2//visit/create", "//visit/create", "/api/v2/visit/create/", "/visit/Create",
        "/api/v1/visit/create", "/pushHistory/get", "/pushHistory/get/a/5", "/pushHistory/get/0/5/1", "/visit%2Fcreate",
    ]) func path_isUnknown_whenItIsNotExact(path: String) {
        #expect(
            client.post(path, V.golden("session-start").body).summary == "404 | a path that is not one of the endpoints"
        )
    }

    @Test func path_mayStandAlone() {
        #expect(client.post("/visit/create", V.golden("session-start").body).summary == "200")
    }

    @Test(arguments: ["GET", "PUT", "post"]) func method_isRefused_unlessItIsPost(method: String) {
        let judged = client.post(V.golden("session-start").suffix, V.golden("session-start").body, method: method)
        #expect(judged.summary == "405 | /visit/create with another method than POST")
        #expect(judged.answer?.headers.last?.value == "POST")
    }

    static let headers: [(name: String, value: String?, violation: String?)] = [
        ("Content-Type", nil, "no Content-Type"),
        (
            "Content-Type", "application/x-www-form-urlencoded; charset=utf-8",
            "a Content-Type other than application/x-www-form-urlencoded"
        ),
        ("Content-Type", "application/json", "a Content-Type other than application/x-www-form-urlencoded"),
        ("User-Agent", nil, "a User-Agent that is not of the form IOS CurioSDK v1.2.4"),
        ("User-Agent", "IOS CurioSDK v1.04", nil),
        ("User-Agent", "IOS CurioSDK v", "a User-Agent that is not of the form IOS CurioSDK v1.2.4"),
        ("User-Agent", "IOS CurioSDK v1..2", "a User-Agent that is not of the form IOS CurioSDK v1.2.4"),
        ("User-Agent", "postern/1", "a User-Agent that is not of the form IOS CurioSDK v1.2.4"),
        ("Content-Length", nil, "no Content-Length"),
        ("Cookie", "a=b", "a header that no client sends: cookie"),
        ("Authorization", "x", "a header that no client sends: authorization"),
        ("Content-Encoding", "gzip", "a header that no client sends: content-encoding"),
        ("X-Trace", "x", "a header that no client sends: x-trace"),
        ("Accept", "*/*", nil),
    ]

    @Test(arguments: headers) func header_isAViolation_whenItIsNotAsClientsSendIt(
        name: String, value: String?, violation: String?
    ) {
        let others = C.headers.filter { $0.name != name }
        let judged = client.post(
            V.golden("session-start").suffix, V.golden("session-start").body,
            headers: others + (value.map { [(name, $0)] } ?? []))
        #expect(judged.summary == (["200"] + (violation.map { [$0] } ?? [])).joined(separator: " | "))
    }

    @Test func query_isAViolation() {
        #expect(
            client.post(V.golden("session-start").suffix, V.golden("session-start").body, query: "").summary
                == "200 | a query string")
    }

    // MARK: Encoding

    static let encodings: [(value: String, summary: String)] = [
        ("a%2f", "200 | a percent escape in lower case in the form"),
        ("a%2D", "200 | a percent escape of a character that needs none in the form"),
        ("a%20b", "200 | a percent escape of a character that needs none in the form"),
        ("a*b", "200 | a character that is not escaped in the form"),
        ("a=b", "200 | a character that is not escaped in the form"),
        ("%C3%BC", "200"), ("%EF%BB%BF", "200"),
        ("%00", "200 | U+0000 in a text"),
        ("%C3", "400 | a part of the form that cannot be decoded"),
        ("%", "400 | a part of the form that cannot be decoded"),
        ("%4", "400 | a part of the form that cannot be decoded"),
        ("%4G", "400 | a part of the form that cannot be decoded"),
        ("x&y", "400 | a part of the form without an equals sign"),
        ("x&", "400 | a part of the form without an equals sign"),
        ("x&customId=y", "200 | a parameter sent twice"),
    ]

    @Test(arguments: encodings) func form_isJudged_byteForByte(value: String, summary: String) {
        _ = client.start()
        #expect(
            client.post(V.golden("push-token").suffix, V.golden("push-token").body + "&customId=" + value).summary
                == summary)
    }

    static let inner: [(value: String, summary: String)] = [
        ("a b", "200 | eventKey is not encoded twice"), ("ü", "200 | eventKey is not encoded twice"),
        ("100%", "200 | eventKey is not encoded twice"), ("a/b", "200 | eventKey is not encoded twice"),
        ("%c3%bc", "200 | a percent escape in lower case in the inner encoding of eventKey"),
        ("%20", "200 | a percent escape of a character that needs none in the inner encoding of eventKey"),
        ("%2541", "200"), ("%25", "200"), ("a+b", "200"), ("%00", "200 | U+0000 in a text"),
        ("", "200 | eventKey is empty"),
    ]

    @Test(arguments: inner) func innerEncoding_isJudged_aloneAndInBatches(value: String, summary: String) {
        _ = client.start()
        #expect(
            client.send("/event/create", C.common() + [("eventKey", value), ("eventValue", "")]).summary == summary)
        let fields = [("eventKey", value), ("eventValue", ""), ("eventCode", C.codes[0])]
        #expect(client.pdr([C.record(4, fields: fields)]).summary == summary)
    }

    // MARK: Parameters

    @Test func parameter_thatIsMissing_isRefused() {
        for endpoint in Endpoint.allCases {
            let suffix = endpoint.rawValue + (endpoint == .pushHistory ? "/0/5" : "")
            for name in endpoint.required where name != "apiKey" && name != "trackingCode" {
                let parameters = endpoint.required.filter { $0 != name }.map { name in
                    (name, name == "apiKey" ? V.apiKey : name == "trackingCode" ? V.trackingCode : "1")
                }
                let judged = client.send(suffix, parameters)
                #expect(judged.status == 400)
                #expect(judged.violations.contains("\(endpoint.rawValue) without \(name)"))
            }
        }
        let bare = client.send("/visit/end", C.common().filter { $0.0 != "trackingCode" })
        #expect(bare.summary == "400 | /visit/end without trackingCode")
        #expect(client.post("/visit/end", "").violations.first == "an empty body")
    }

    @Test(arguments: [
        "/visit/end", "/hit/create", "/hit/end", "/event/create", "/event/end", "/visitor/unregister",
        "/visitor/setPushData", "/location/set", "/visitor/setUserTag",
    ]) func parameter_thatBelongsElsewhere_isAViolation(suffix: String) throws {
        _ = client.start()
        let examples = [
            V.golden("screen-start"), V.golden("screen-end"), V.golden("event"), V.golden("event-end"),
            V.golden("session-end"), V.golden("push-token"), V.golden("location"), V.golden("user-tags"),
            V.golden("unregister"),
        ]
        let body = try #require(examples.first { $0.suffix == suffix }).body
        let extra =
            ["/visitor/setPushData", "/location/set", "/visitor/setUserTag"].contains(suffix)
            ? "sessionTimeout=30" : "apiKey=\(V.apiKey)"
        let judged = client.post(suffix, body + "&" + extra)
        #expect(judged.status == 200)
        #expect(judged.violations.contains("\(suffix) with a parameter that does not belong there"))
    }

    static let values: [(name: String, value: String, summary: String)] = [
        ("sessionTimeout", "0", "400 | a sessionTimeout that is not a number of minutes from 1"),
        ("sessionTimeout", "-1", "400 | a sessionTimeout that is not a number of minutes from 1"),
        ("sessionTimeout", "030", "400 | a sessionTimeout that is not a number of minutes from 1"),
        ("sessionTimeout", "99999999999999999999", "400 | a sessionTimeout that is not a number of minutes from 1"),
        ("sessionTimeout", "1441", "200 | a sessionTimeout of more than a day"),
        ("sessionTimeout", "9223372036854775807", "200 | a sessionTimeout of more than a day"),
        ("sessionCode", V.session.uppercased(), "200 | a sessionCode that is not a lower-case version-1 UUID"),
        ("sessionCode", C.codes[0], "200 | a sessionCode that is not a lower-case version-1 UUID"),
        (
            "sessionCode", "6d551000-a21d-11e4-7123-03ab5c7d9e1f",
            "200 | a sessionCode that is not a lower-case version-1 UUID"
        ),
        ("visitorCode", "", "200 | visitorCode is empty"),
        ("visitorCode", "NULL", "200 | visitorCode is a placeholder"),
        ("screenWidth", "1.5", "400 | screenWidth is not a whole number from 0"),
        ("storage", "-1", "400 | storage is not a whole number from 0"),
        ("activityHeight", "", "400 | activityHeight is empty | activityHeight is not a whole number from 0"),
        ("connType", "5G", "200 | an unknown connType"), ("connType", "Offline", "200"), ("connType", "", "200"),
        ("bluetooth", "ON", "200 | an unknown bluetooth"), ("bluetooth", "no permission", "200"),
        ("batteryLevel", "-100", "200 | a batteryLevel outside 0 to 100 that is not unknown"),
        ("batteryLevel", "101", "200 | a batteryLevel outside 0 to 100 that is not unknown"),
        ("batteryLevel", "unknown", "200"), ("osType", "", "200 | osType is empty"),
        ("lang", "", "200 | lang is empty"), ("networkOpName", "", "200"),
        ("apiKey", "wrong", "412"), ("trackingCode", "wrong", "412"), ("apiKey", "", "412 | apiKey is empty"),
    ]

    @Test(arguments: values) func value_ofAStart_isChecked(name: String, value: String, summary: String) {
        let parameters = [("apiKey", V.apiKey)] + C.common() + C.device()
        #expect(
            client.send("/visit/create", parameters.filter { $0.0 != name } + [(name, value)]).summary == summary)
    }

    static let others: [(suffix: String, parameters: [(name: String, value: String)], summary: String)] = [
        ("/location/set", [("lat", "91.2"), ("long", "0")], "400 | lat is not a decimal number of degrees"),
        ("/location/set", [("lat", "-90"), ("long", "-180.5")], "400 | long is not a decimal number of degrees"),
        ("/location/set", [("lat", "1,5"), ("long", "180")], "400 | lat is not a decimal number of degrees"),
        ("/location/set", [("lat", "1e1"), ("long", "180")], "400 | lat is not a decimal number of degrees"),
        ("/location/set", [("lat", "nan"), ("long", "180")], "400 | lat is not a decimal number of degrees"),
        ("/location/set", [("lat", "-0.5"), ("long", "180.0")], "200"),
        ("/visitor/setPushData", [("pushId", ""), ("pushToken", "")], "200 | pushToken is empty"),
        ("/visitor/setPushData", [("pushId", "(null)"), ("pushToken", "t")], "200 | pushId is a placeholder"),
        ("/visitor/setUserTag", [("userTags", "{}")], "200 | userTags without a tag"),
        ("/visitor/setUserTag", [("userTags", #"{"AGE":27}"#)], "400 | a user tag that is not a string"),
        ("/visitor/setUserTag", [("userTags", #"{"":"27"}"#)], "200 | a user tag without a name"),
        ("/visitor/setUserTag", [("userTags", #"{"A": "27"}"#)], "200 | JSON that is not compact"),
        ("/visitor/setUserTag", [("userTags", #"{"A":" \" "}"#)], "200"),
        ("/visitor/setUserTag", [("userTags", "[]")], "400 | userTags that are not a JSON object"),
        ("/visitor/setUserTag", [("userTags", #"{"A":"1"}x"#)], "400 | userTags that are not a JSON object"),
        ("/visitor/setUserTag", [("userTags", "{\"A\":\"\n\"}")], "400 | userTags that are not a JSON object"),
        ("/visitor/setUserTag", [("userTags", #"{"A":"1","A":"2"}"#)], "200 | a JSON object with the same name twice"),
        ("/visitor/setUserTag", [("userTags", "")], "400 | userTags that are not a JSON object"),
    ]

    @Test(arguments: others) func value_ofOtherRequests_isChecked(
        suffix: String, parameters: [(name: String, value: String)], summary: String
    ) {
        _ = client.start()
        #expect(client.send(suffix, C.three() + parameters).summary == summary)
    }

    @Test func unregister_isAViolation_withTheWordNull() {
        _ = client.start()
        #expect(
            client.send("/visitor/unregister", C.common() + [("customId", "NULL")]).summary
                == "200 | customId is a placeholder")
    }

    // MARK: Records

    static let records: [(data: String, summary: String)] = [
        ("", "400 | data that is not a JSON array of objects"), ("[", "400 | data that is not a JSON array of objects"),
        ("[]", "400 | a batch without records"), ("[1]", "400 | data that is not a JSON array of objects"),
        ("{}", "400 | data that is not a JSON array of objects"),
        ("[{}]x", "400 | data that is not a JSON array of objects"),
        ("[{},]", "400 | data that is not a JSON array of objects"),
        (String(repeating: "[", count: 3000), "400 | data that is not a JSON array of objects"),
        (#"[{"type":999}]"#, "400 | a record whose type is none of the numbers 0, 1, 2, 3, 4 and 7"),
        (#"[{"type":5}]"#, "400 | a record whose type is none of the numbers 0, 1, 2, 3, 4 and 7"),
        (
            edited("\"type\":4", "\"type\":\"4\""),
            "400 | a record whose type is none of the numbers 0, 1, 2, 3, 4 and 7"
        ),
        (edited("\"type\":4", "\"type\": 4"), "200 | JSON that is not compact"),
        (
            edited("\"1421920800000\"", "1421920800000"),
            "200 | a record whose timestamp is a number instead of a string"
        ),
        (edited("\"1421920800000\"", "\"1421920800\""), "200 | a timestamp outside 2010 to tomorrow"),
        (edited("\"1421920800000\"", "\"1767312000001\""), "200 | a timestamp outside 2010 to tomorrow"),
        (edited("\"1421920800000\"", "\"1767312000000\""), "200"),
        (edited("\"1421920800000\"", "\"x\""), "400 | a timestamp that is not a number of milliseconds"),
        (edited("\"1421920800000\"", "1.5"), "400 | a record whose timestamp is not a string"),
        (
            edited("\"timestamp\"", "\"time\""),
            "400 | a record with a field that its type does not have | a record without timestamp"
        ),
        (edited("\"eventValue\":\"1\"", "\"eventValue\":null"), "400 | a record whose eventValue is not a string"),
        (edited("\"eventValue\":\"1\"", "\"eventValue\":1"), "400 | a record whose eventValue is not a string"),
        (
            edited("\"eventValue\":\"1\"", "\"eventValue\":\"1\",\"path\":\"\""),
            "200 | a record with a field that its type does not have"
        ),
        (
            edited("\"eventCode\":\"\(C.codes[0])\"", "\"eventCode\":\"UNKNOWN\""),
            "200 | eventCode is a placeholder | a start in a batch whose eventCode is not a lower-case version-4 UUID"
        ),
        (
            edited(C.codes[0], C.codes[0].uppercased()),
            "200 | a start in a batch whose eventCode is not a lower-case version-4 UUID"
        ),
        (edited("\"eventKey\":\"Buton\"", "\"eventKey\":\"\""), "200 | eventKey is empty"),
        (edited("\"eventKey\":\"Buton\"", "\"eventKey\":\"a\\u0020b\""), "200 | eventKey is not encoded twice"),
    ]

    private static func edited(_ old: String, _ new: String) -> String {
        C.data([C.record(4, fields: C.event() + [("eventCode", C.codes[0])])]).with(new, for: old)
    }

    @Test(arguments: records) func record_isChecked(data: String, summary: String) {
        _ = client.start()
        #expect(client.send("/batch/create", C.common() + [("data", data)]).summary == summary)
    }

    @Test func duration_ofARecord_isAStringOfDigits() {
        _ = client.start()
        let open = C.record(4, fields: C.event() + [("eventCode", C.codes[0])])
        func close(_ duration: String) -> String {
            C.record(7, fields: C.event() + [("eventDuration", "D"), ("eventCode", C.codes[0])]).with(
                duration, for: "\"D\"")
        }
        #expect(client.pdr([open, close("\"-5\"")]).status == 400)
        #expect(client.pdr([open, close("\"1.5\"")]).status == 400)
        #expect(
            client.pdr([open, close("5")]).summary
                == "200 | a record whose eventDuration is a number instead of a string")
    }

    @Test func records_areViolations_beyond250() {
        _ = client.start()
        func events(_ count: Int) -> [String] {
            (0..<count).map { number in
                let digits = String(number)
                let code = String(repeating: "0", count: 8 - digits.count) + digits + C.codes[0].dropFirst(8)
                return C.record(4, fields: C.event() + [("eventCode", code)])
            }
        }
        #expect(client.pdr(events(251)).summary == "200 | a batch of more than 250 records")
        #expect(CurioClient().ocr([C.record(0)] + events(249)).summary == "200")
    }

    // MARK: Anything

    @Test func anything_isAnswered() {
        var random = SplitMix64(state: 7)
        let bodies = [
            V.golden("session-start"), V.golden("screen-start"), V.golden("event-end"), V.golden("periodic-batch"),
            V.golden("offline-batch"), V.golden("custom-id"), V.golden("user-tags"),
        ].map { Array($0.body.utf8) }
        let suffixes = Endpoint.allCases.map { $0 == .pushHistory ? "/pushHistory/get/0/5" : $0.rawValue }
        _ = client.start()
        for _ in 0..<4000 {
            var body = bodies.randomElement(using: &random) ?? []
            for _ in 0..<Int.random(in: 0...4, using: &random) where !body.isEmpty {
                let index = Int.random(in: body.indices, using: &random)
                switch Int.random(in: 0...2, using: &random) {
                case 0: body[index] = UInt8.random(in: 0...255, using: &random)
                case 1: body.removeSubrange(index...)
                default: body.insert(contentsOf: body[index...].prefix(30), at: index)
                }
            }
            let judged = client.simulator.judge(
                SimulatedRequest(
                    method: "POST", path: suffixes.randomElement(using: &random) ?? "", query: nil,
                    headers: C.headers, body: body), poisons: [])
            #expect([200, 400, 401, 412].contains(judged.status))
            for range in judged.items.ranges {
                judged.items.text[range].withUnsafeBufferPointer { text in
                    var scanner = JSONScanner(text)
                    #expect(scanner.value()?.kind == .object && scanner.peek() == nil)
                }
            }
        }
    }
}

extension String {
    /// With `new` in the place of `old`, which occurs.
    func with(_ new: String, for old: String) -> String {
        guard let range = firstRange(of: old) else { return "the text has no \(old)" }
        return String(self[..<range.lowerBound]) + new + String(self[range.upperBound...])
    }
}
