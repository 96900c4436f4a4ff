import PosternConformance
import PosternCore
import PosternSimulatorKit
import Testing

@testable import SamsaraSimulator

private typealias V = SamsaraVectors
private let warning =
    #"{"status":"OK","warning":"For completeness, please provide the 'X-Samsara-publishedTimestamp' header."}"#
private let wrongType = #"{"status":"ERROR","message":"Invalid format, content-type must be application/json"}"#
private let wrongTimestamp = #"{"status":"ERROR","message":"X-Samsara-publishedTimestamp must be a valid timestamp."}"#
private let notFound = #"{"status":"ERROR","message":"Not found"}"#
private let malformed = "Malformed JSON in request body."

@Suite struct SamsaraSimulatorTests {
    private let simulator = SamsaraSimulator()

    /// V1's request with another body, method, path or headers; a value of nil takes a header away.
    private func judge(
        _ body: [UInt8], method: String = "POST", path: String = "/v1/events", query: String? = nil,
        type: String? = "application/json", published: String? = "1479988864057", coding: String? = nil,
        poisons: [Faults.Poison] = []
    ) -> SimulatedResult {
        let headers: [(name: String, value: String?)] = [
            ("Accept", "application/json"), ("Content-Type", type), ("X-Samsara-publishedTimestamp", published),
            ("Content-Encoding", coding),
        ]
        return simulator.judge(
            SimulatedRequest(
                method: method, path: path, query: query,
                headers: headers.compactMap { name, value in value.map { (name, $0) } }, body: body),
            poisons: poisons)
    }

    private func judge(
        _ body: String, type: String? = "application/json", published: String? = "1479988864057", coding: String? = nil,
        poisons: [Faults.Poison] = []
    ) -> SimulatedResult {
        judge(Array(body.utf8), type: type, published: published, coding: coding, poisons: poisons)
    }

    // MARK: Vectors

    @Test func v1_isTaken_plainAndGzipped() {
        #expect(V.v1.utf8.count == 92)
        for judged in [judge(V.v1), judge(V.v1Gzip, coding: "gzip")] {
            #expect(judged.answer == SimulatedAnswer(status: 202))
            #expect(judged.texts == [V.event])
            #expect(judged.violations.isEmpty)
        }
    }

    @Test func v2_isTaken_withEveryByteOfItsEvents() {
        #expect(V.v2.utf8.count == 240)
        let judged = judge(V.v2)
        #expect(judged.answer == SimulatedAnswer(status: 202))
        #expect("[\(judged.texts.joined(separator: ","))]" == V.v2)
        #expect(judged.violations.isEmpty)
    }

    @Test func v3_isRefused_positionByPosition() {
        #expect(V.v3.utf8.count == 238)
        #expect(V.v3Answer.utf8.count == 92)
        let judged = judge(V.v3)
        #expect(judged.answer == .json(400, V.v3Answer))
        #expect(judged.items.ranges.isEmpty)
        #expect(judged.violations == ["an event that the server refuses"])
    }

    @Test func v4_isTakenWithAWarning_withoutTimestampHeader() {
        let judged = judge(V.v1, published: nil)
        #expect(warning.utf8.count == 103)
        #expect(judged.answer == .json(202, warning))
        #expect(judged.texts == [V.event])
        #expect(judged.violations == ["no X-Samsara-publishedTimestamp"])
    }

    @Test func v5andV6_areTaken_asTheClientsSendThem() {
        for judged in [
            judge(V.v5Gzip, coding: "gzip"), judge(V.v5, coding: "identity"), judge(V.v5Two), judge(V.v6[0]),
            judge(V.v6[1]),
        ] {
            #expect(judged.answer == SimulatedAnswer(status: 202))
            #expect(judged.violations.isEmpty)
        }
        #expect(judge(V.v5Gzip, coding: "gzip").texts == [String(V.v5.dropFirst().dropLast())])
        #expect(judge(V.v5Two).texts.count == 2)
    }

    static let v7: [(body: String, answer: SimulatedAnswer)] =
        ["", "  \r\n\t", "null", "[]", " [ ] ", V.v1 + "garbage"].map { ($0, SimulatedAnswer(status: 202)) }
        + [
            V.event, "\"abc\"", "12", "true", "false", "[{\"timestamp\":1,", String(V.v1.dropLast()), "[\(V.event),]",
            "[{\"timestamp\":NaN}]", "[\"abc", "[1,", "[[1,2}]", "[{\"a\":01}]", "[{'a':1}]", "[1 2]",
            "[{\"a\":\"\\x\"}]",
            "[{\"a\" 1}]", "[{\"a\":1,}]", "[{,}]", "[{\"a\":1.}]", "[{\"a\":\"\\u12g4\"}]",
            "[" + String(repeating: "[", count: 5000),
        ].map { ($0, SimulatedAnswer(status: 500)) }
        + [
            "{\"a\":", "[", "xyz", "\u{feff}" + V.v1, "[NaN]", "[,", "[01]", "[tru]", "[nullx]", "\"abc", "-", "nul",
            "nullx",
            "// comment\n[]",
        ].map {
            ($0, SimulatedAnswer(status: 400, headers: [("Content-Type", "text/plain")], body: Array(malformed.utf8)))
        }

    @Test(arguments: v7) func v7_isAnsweredAsByTheServer_andIsAViolation(body: String, answer: SimulatedAnswer) {
        let judged = judge(body)
        #expect(judged.answer == answer)
        #expect(!judged.violations.isEmpty)
        #expect(judged.items.ranges.count == (body.hasSuffix("garbage") ? 1 : 0))
    }

    @Test func gzip_thatIsNotDeclared_isMalformed() {
        for coding in [nil, "x-gzip", "identity", "deflate"] {
            #expect(judge(V.v1Gzip, coding: coding).answer?.body == Array(malformed.utf8))
        }
    }

    @Test func gzip_thatIsDamaged_failsBeforeAnythingElse() {
        for body in [Array(V.v1.utf8), Array(V.v1Gzip.dropLast(9)), Array(V.v1Gzip.dropLast()), []] {
            let judged = judge(body, type: "text/plain", published: "abc", coding: "gzip")
            #expect(judged.answer == SimulatedAnswer(status: 500))
        }
    }

    @Test func gzip_mayHaveSeveralMembersAndATail() {
        let judged = judge(V.v1Gzip + V.v1Gzip + [0, 1, 2], coding: "GZIP")
        #expect(judged.answer?.status == 202)
        #expect(judged.violations.contains("bytes after the array"))
    }

    // MARK: Rows of the answers table

    @Test(arguments: [
        nil, "application/json; charset=utf-8", "Application/JSON", "text/json", "application/+json",
        "application/jsonx",
        "application/json,application/json", "",
    ]) func type_isRefused_whenItIsNotExact(type: String?) {
        let judged = judge(V.v1, type: type)
        #expect(judged.answer == .json(400, wrongType))
        #expect(!judged.violations.isEmpty)
    }

    @Test func type_mayHaveASuffix_thoughAGatewaySendsNone() {
        let judged = judge(V.v1, type: "application/x+json")
        #expect(judged.answer?.status == 202)
        #expect(judged.violations == ["a Content-Type other than application/json"])
    }

    @Test func malformedJSON_comesBeforeTheType_whenThatBeginsLikeJSON() {
        #expect(judge("xyz", type: "application/json; charset=utf-8").answer?.body == Array(malformed.utf8))
        #expect(judge("xyz", type: "text/plain").answer == .json(400, wrongType))
    }

    @Test(arguments: ["+5", "-5", "0005", "0", "9223372036854775807"]) func timestampHeader_isTaken(text: String) {
        #expect(judge(V.v1, published: text).answer?.status == 202)
    }

    @Test(arguments: ["abc", "1.5", "", "9223372036854775808", "1,2"]) func timestampHeader_isRefused(text: String) {
        let judged = judge(V.v1, published: text)
        #expect(judged.answer == .json(400, wrongTimestamp))
        #expect(judged.violations == ["an X-Samsara-publishedTimestamp that is not a number of milliseconds"])
    }

    @Test func headers_areFound_inAnyCase_andJoinedWhenRepeated() {
        func judge(_ headers: [(name: String, value: String)]) -> SimulatedAnswer? {
            simulator.judge(
                SimulatedRequest(method: "POST", path: "/v1/events", headers: headers, body: Array(V.v1.utf8)),
                poisons: []
            ).answer
        }
        #expect(
            judge([("content-type", "application/json"), ("X-Samsara-Publishedtimestamp", "5")])
                == SimulatedAnswer(status: 202))
        #expect(
            judge([("Content-Type", "application/json"), ("Content-Type", "application/json")]) == .json(400, wrongType)
        )
        let stamp = (name: "X-Samsara-publishedTimestamp", value: "5")
        #expect(judge([("Content-Type", "application/json"), stamp, stamp]) == .json(400, wrongTimestamp))
    }

    @Test func headers_areNeverAnswered_beyondTheServersLimit() {
        let judged = simulator.judge(
            SimulatedRequest(
                method: "POST", path: "/v1/events", headers: [("X-Long", String(repeating: "x", count: 8200))], body: []
            ),
            poisons: [])
        #expect(judged.answer == nil)
        #expect(judged.violations.count == 1)
    }

    @Test(arguments: [
        ("POST", "/v1/events/", true), ("POST", "/v1/v1/events", true), ("GET", "/v1/events", true),
        ("POST", "/v1", true),
        ("PUT", "/v1/api-status", true), ("POST", "//v1/events", false), ("POST", "/events", false),
        ("GET", "/", false),
        ("POST", "/v1x", false),
    ]) func otherPaths_areNotFound(method: String, path: String, isBelowV1: Bool) {
        let typed = judge([], method: method, path: path)
        #expect(typed.answer == .json(404, notFound))
        #expect(typed.violations == ["\(method) \(path): there is no such endpoint"])
        let untyped = judge([], method: method, path: path, type: nil)
        #expect(untyped.answer == (isBelowV1 ? .json(400, wrongType) : .json(404, notFound)))
    }

    @Test func query_isIgnored_andIsAViolation() {
        let judged = judge(Array(V.v1.utf8), query: "a=1")
        #expect(judged.answer?.status == 202)
        #expect(judged.violations == ["a query string on /v1/events"])
    }

    @Test(arguments: ["GET", "HEAD"]) func apiStatus_isAFlag_withoutEffectOnEvents(method: String) {
        #expect(
            judge([], method: method, path: "/v1/api-status", type: nil).answer == .json(200, #"{"status":"online"}"#))
        var offline = simulator
        offline.isOnline = false
        let request = SimulatedRequest(method: method, path: "/v1/api-status")
        #expect(offline.judge(request, poisons: []).answer == .json(503, #"{"status":"offline"}"#))
    }

    // MARK: Events

    @Test(arguments: ["receivedAt", "publishedAt"]) func times_thatACallerSet_areNoViolation(name: String) {
        for value in ["5", "null", "1479988864057"] {
            let judged = judge(#"[{"timestamp":1,"sourceId":"s","eventName":"e","\#(name)":\#(value)}]"#)
            #expect(judged.answer?.status == 202)
            #expect(judged.violations.isEmpty)
        }
    }

    static let events: [(event: String, complaint: String)] = [
        (#"{"timestamp":-1,"sourceId":"","eventName":"","x":{"":[]}}"#, "OK"),
        (#"{"timestamp":99999999999999999999999,"sourceId":"s","eventName":"e"}"#, "OK"),
        (#"{"time\u0073tamp":0,"sourceId":"s","eventName":"e"}"#, "OK"),
        (#"{"timestamp":"x","timestamp":0,"sourceId":"s","eventName":"e"}"#, "OK"),
        ("{\"timestamp\":0,\"sourceId\":\"a\u{1}b\",\"eventName\":\"e\"}", "OK"),
        (#"{"timestamp":0,"timestamp":"5","sourceId":"s","eventName":"e"}"#, #"{:timestamp (not (integer? "5"))}"#),
        (#"{"timestamp":null,"sourceId":"s","eventName":"e"}"#, "{:timestamp (not (integer? nil))}"),
        (#"{"timestamp":1.0,"sourceId":"s","eventName":"e"}"#, "{:timestamp (not (integer? 1.0))}"),
        (#"{"timestamp":1e3,"sourceId":"s","eventName":"e"}"#, "{:timestamp (not (integer? 1000.0))}"),
        (#"{"timestamp":true,"sourceId":"s","eventName":"e"}"#, "{:timestamp (not (integer? true))}"),
        (
            #"{"timestamp":"12345678901234567890","sourceId":"s","eventName":"e"}"#,
            "{:timestamp (not (integer? a-java.lang.String))}"
        ),
        (
            #"{"timestamp":"1234567890123456789","sourceId":"s","eventName":"e"}"#,
            #"{:timestamp (not (integer? "1234567890123456789"))}"#
        ),
        (#"{"timestamp":0,"sourceId":5,"eventName":"e"}"#, "{:sourceId (not (instance? java.lang.String 5))}"),
        (#"{"timestamp":0,"sourceId":"s","eventName":null}"#, "{:eventName (not (instance? java.lang.String nil))}"),
        (#"{"timestamp":0,"sourceId":"s"}"#, "{:eventName missing-required-key}"),
        (
            "{}",
            "{:timestamp missing-required-key, :sourceId missing-required-key, :eventName missing-required-key}"
        ),
        ("1", "schema.utils.ValidationError@5ea1f00d"), ("null", "schema.utils.ValidationError@5ea1f00d"),
    ]

    @Test(arguments: events) func event_isJudged_asByTheServer(event: String, complaint: String) {
        let judged = judge("[\(V.event),\(event)]")
        if complaint == "OK" {
            #expect(judged.answer == SimulatedAnswer(status: 202))
            #expect(judged.texts == [V.event, event])
        } else {
            #expect(judged.answer == .json(400, "[\"OK\",\(quoted(complaint))]"))
            #expect(judged.items.ranges.isEmpty)
        }
    }

    static let odd: [(body: String, violation: String)] = [
        (#"[{"timestamp":-1,"sourceId":"s","eventName":"e"}]"#, "a timestamp outside 0 to 9223372036854775807"),
        (
            #"[{"timestamp":9223372036854775808,"sourceId":"s","eventName":"e"}]"#,
            "a timestamp outside 0 to 9223372036854775807"
        ),
        (#"[{"timestamp":1,"sourceId":" \t\u00a0","eventName":"e"}]"#, "a blank sourceId"),
        (#"[{"timestamp":1,"sourceId":"s","eventName":""}]"#, "a blank eventName"),
        (
            #"[{"timestamp":1,"sourceId":"s","eventName":"e","receivedAt":{}}]"#,
            "receivedAt that is neither integer nor null"
        ),
        (
            #"[{"timestamp":1,"sourceId":"s","eventName":"e","publishedAt":"x"}]"#,
            "publishedAt that is neither integer nor null"
        ),
        ("[{\"timestamp\":1,\"sourceId\":\"a\u{2}\",\"eventName\":\"e\"}]", "a raw control character in a string"),
        (
            #"[{"timestamp":1,"sourceId":"s","eventName":"e","x":"\#(String(repeating: "x", count: 262_144))"}]"#,
            "an event of more than 262144 bytes"
        ),
        (
            "[" + String(repeating: V.event + ",", count: 10_000) + V.event + "]",
            "a batch of more than 10000 events"
        ),
        (
            "[" + String(repeating: V.event + ",", count: 12_000) + V.event + "]",
            "a batch of more than 1048576 bytes"
        ),
    ]

    @Test(arguments: odd) func oddity_isTaken_andIsAViolation(body: String, violation: String) {
        let judged = judge(body)
        #expect(judged.answer?.status == 202)
        #expect(judged.violations.contains(violation))
    }

    @Test func invalidUTF8_isTaken_andIsAViolation() {
        let body = Array(#"[{"timestamp":1,"sourceId":"s","eventName":"e"#.utf8) + [0xff] + Array(#""}]"#.utf8)
        #expect(judge(body).answer?.status == 202)
        #expect(judge(body).violations == ["a body that is not UTF-8"])
    }

    @Test func identity_isTheId_whenThereIsOne() {
        func identities(_ body: String) -> Set<UInt64> { Set(judge(body).items.identities) }
        let head = #"{"timestamp":1,"sourceId":"s","eventName":"e""#
        #expect(identities(#"[\#(head)},\#(head)},\#(head),"n":1}]"#).count == 2)
        #expect(identities(#"[\#(head),"id":"a","n":1},\#(head),"id":"a","n":2},\#(head),"id":"b"}]"#).count == 2)
    }

    // MARK: Poison

    @Test(arguments: [
        (Faults.Poison.Answer.failure, 500, ""), (.tooLarge, 413, "413 Request Entity Too Large"),
        (.refusal, 400, "Bad Request"), (.naming, 400, #"["OK","{:eventName (not (poison))}"]"#),
    ]) func poison_refusesTheWholeRequest(answer: Faults.Poison.Answer, status: Int, body: String) {
        let bad = #"{"timestamp":1,"sourceId":"s","eventName":"b\u0061d"}"#
        let judged = judge(
            "[\(V.event),\(bad)]", poisons: [Faults.Poison(field: "eventName", value: "bad", answer: answer)])
        #expect(judged.answer?.status == status)
        #expect(judged.answer?.body == Array(body.utf8))
        #expect(judged.items.ranges.isEmpty)
        #expect(judged.violations.isEmpty)
        #expect(judge(V.v1, poisons: [Faults.Poison(field: "eventName", value: "bad")]).answer?.status == 202)
    }
}

/// The test vectors of the specification, byte for byte.
private enum SamsaraVectors {
    static let event = #"{"timestamp":1433004485870,"sourceId":"3aw4sedrtcyvgbuhjkn","eventName":"session.started"}"#
    static let v1 = "[\(event)]"
    static let v1Gzip = [UInt8](
        hexadecimal: """
            1f8b08000000000000030dcc410a80201000c0bfec39c2d028fc41973e101d2c97b2d0c25d8d88fe5ef7618607d8792436fe04\
            5d29298550aaaddb461440478a33761634487329421b79bef332a575db0314801903f7c6e32f0889dc11cabf8a8c16def103ef\
            be35405c000000
            """)!
    static let v2 =
        #"[{"timestamp":1433004485870,"sourceId":"3aw4sedrtcyvgbuhjkn","eventName":"session.started"},{"timestamp":1433004490171,"sourceId":"johndoe@gmail.com","eventName":"user.scored","location-x":104.5,"id64":9007199254740993,"name":"José 😀"}]"#
    static let v3 =
        #"[\#(event),{"timestamp":"1433004490171","sourceId":"johndoe@gmail.com","eventName":"user.scored"},{"timestamp":1433004494454,"sourceId":"johndoe@gmail.com"}]"#
    static let v3Answer =
        #"["OK","{:timestamp (not (integer? \"1433004490171\"))}","{:eventName missing-required-key}"]"#
    static let v5Gzip = [UInt8](
        hexadecimal: """
            1f8b08005d2f016b02ff15cb410e82301000c0af903d5bb30b4bbbe5075cfc80f150e8424cac105abc18fe2e9e2773ff827ef45d6e212974\
            15ec59b7eb6b99678d70a9a03c93e612d27a1ab1f35e442c63eb4ecbcbbe8ddac77f533b21e9140d72f0864712136a42530b5a4732d8c80d\
            1c8f1f10eccc086e000000
            """)!
    static let v5 =
        #"[{"eventName": "user.logged", "timestamp": 1479988864057, "sourceId": "e6f01efd-04a9-4c18-a210-2806718b6d43"}]"#
    static let v5Two =
        #"[{"eventName": "user.registration", "timestamp": 1479988864057, "sourceId": "ed303d68-53a6-11e6-8e25-3f5e0ad08c59"}, {"eventName": "user.skill.gain", "timestamp": 1479988864058, "sourceId": "device-1", "name": "Jos\u00e9", "emoji": "\ud83d\ude00", "level": 10, "score": 0.1, "nested": {"a": [1, null, true]}}]"#
    static let v6 = [
        #"[{"eventName":"user.logged","timestamp":1479988864057,"sourceId":"e6f01efd","name":"José 😀 </b> a/b","score":0.1}]"#,
        #"[{"big":1e+21,"eventName":"user.logged","f":5,"name":"José 😀 \u003c/b\u003e a/b","score":0.1,"sourceId":"e6f01efd","timestamp":1479988864057}]"#,
    ]
}
