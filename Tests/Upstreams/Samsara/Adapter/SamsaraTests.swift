import Crypto
import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import SamsaraAdapter

/// What is specific to Samsara; the rest is in `ConformanceTests`.
@Suite struct SamsaraTests {
    private let fixture = UpstreamFixture.samsara

    /// The specification's vectors V1 and V2.
    @Test(arguments: [
        ("one-event.http", 92, "a0f02e866b0c8fb6f9ad184fe8583fa512a458af8b4fea73da2dcd3019838910"),
        ("two-events-gzip.http", 240, "28fb7f4071ad777cf716d692aa3f16b93aa95297b8589e0d3858205d2090d99a"),
    ])
    func goldenBody_isTheSpecifications(file: String, size: Int, digest: String) throws {
        let request = try Fixture.bytes("\(file)")
        let body = Array(request.suffix(size))
        #expect(Array(request.dropLast(size).suffix(2)) == [0x0A, 0x0A])
        #expect(SHA256.hash(data: body).hexadecimal == digest)
    }

    @Test(arguments: [
        ("http://h", "http://h/v1/events"), ("http://h:9000/", "http://h:9000/v1/events"),
        ("https://h//", "https://h/v1/events"), ("http://h/v1", "http://h/v1/events"),
        ("http://h/v1/events/", "http://h/v1/events"), ("http://h//v1//", "http://h/v1/events"),
        ("http://h/a/b/v1/events", "http://h/a/b/v1/events"), ("HTTP://h/a/", "http://h/a/v1/events"),
        ("http://v1", "http://v1/v1/events"), ("http://h/xv1", "http://h/xv1/v1/events"),
        ("http://[::1]:9000", "http://[::1]:9000/v1/events"), ("http://h/v2", "http://h/v2/v1/events"),
    ])
    func url_isJoined(configured: String, joined: String) throws {
        let samsara = try #require(try fixture.make(["url": .text(configured)]).base as? SamsaraUpstream)
        #expect(samsara.url == joined)
    }

    @Test(arguments: [
        ("", "must begin with http:// or https://"), ("ftp://h", "must begin with http:// or https://"),
        ("h:9000", "must begin with http:// or https://"), ("http://h?x=1", "must not have a query or fragment"),
        ("http://h/#x", "must not have a query or fragment"),
        ("http://u:p@h", "must not contain a user name or password"),
        ("http://h /", "must be a URL in ASCII without white space"),
        ("http://é", "must be a URL in ASCII without white space"),
        ("http://", "must name a host, and a port from 1 to 65535 if any"),
        ("http://:80", "must name a host, and a port from 1 to 65535 if any"),
        ("http://h:0", "must name a host, and a port from 1 to 65535 if any"),
        ("http://h:65536", "must name a host, and a port from 1 to 65535 if any"),
        ("http://h:", "must name a host, and a port from 1 to 65535 if any"),
        ("http://[::1", "must name a host, and a port from 1 to 65535 if any"),
        ("http://h\\x", "must name a host, and a port from 1 to 65535 if any"),
    ])
    func url_isRefused_withTheRule(configured: String, rule: String) {
        #expect(throws: Setting.Problems([("url", rule)])) { try fixture.make(["url": .text(configured)]) }
    }

    @Test func settings_areRefused_withEveryProblem() {
        let headers = [
            "content-TYPE": "a", "X-Samsara-PublishedTimestamp": "1", "a b": "c", "X-One": "a\r\nb", "x-one": "c",
        ]
        #expect(
            throws: Setting.Problems([
                ("url", "must begin with http:// or https://"),
                ("sourceId", "must not be blank"),
                ("headers", "the value of X-One contains a control character"),
                ("headers", "X-Samsara-PublishedTimestamp is set by Postern itself"),
                ("headers", "'a b' is not a header name"),
                ("headers", "content-TYPE is set by Postern itself"), ("headers", "x-one is given twice"),
            ])
        ) { try fixture.make(["url": .text(""), "headers": .strings(headers), "sourceId": .text(" ")]) }
    }

    @Test func faults_sayTheRule() throws {
        let samsara = try fixture.make(["eventMaxBytes": .integer(20)])
        let event = UpstreamFixture.Sample("event", #"{"timestamp":"1","eventName":"","receivedAt":false}"#)
        let refusal = #expect(throws: InvalidPayload.self) { try fixture.validate(event, to: samsara) }
        #expect(
            refusal?.faults.kept.map(\.description) == [
                "/timestamp: must be an integer from 0 to 9223372036854775807: milliseconds since 1970",
                "/sourceId: must be a non-blank string: the event has no UDID, the upstream no setting sourceId",
                "/eventName: must be a non-blank string", "/receivedAt: must be an integer or null",
                "must not have more than 20 bytes; it has 51",
            ])
    }

    /// The text as it came: nothing but what is missing is added, and where a null stands, it is replaced.
    @Test(arguments: [
        (#"{"timestamp":1,"sourceId":"a","eventName":"b"}"#, nil),
        (#"{"sourceId":"a","eventName":"b"}"#, #"{"timestamp":1479988864057,"sourceId":"a","eventName":"b"}"#),
        (
            #"{ "eventName" : "b" , "UDID" : "\u0041 é" }"#,
            #"{"timestamp":1479988864057,"sourceId":"\u0041 é", "eventName" : "b" , "UDID" : "\u0041 é" }"#
        ),
        (
            #"{"timestamp":null,"eventName":"b","UDID":"u","sourceId":null}"#,
            #"{"timestamp":1479988864057,"eventName":"b","UDID":"u","sourceId":"u"}"#
        ),
        (
            #"{"sourceId":null,"UDID":"u","eventName":"b","x":{"timestamp":null}}"#,
            #"{"timestamp":1479988864057,"sourceId":"u","UDID":"u","eventName":"b","x":{"timestamp":null}}"#
        ),
    ])
    func defaults_areFilledIn_andEveryOtherByteStays(text: String, stored: String?) throws {
        let valid = try fixture.validate(.init("event", text), to: fixture.make()).valid
        #expect(valid.rewritten.map { String(decoding: $0, as: UTF8.self) } == stored)
    }

    @Test func settingsSourceId_goesBeforeTheEventsUDID() throws {
        let samsara = try fixture.make(["sourceId": .text("ours")])
        let valid = try fixture.validate(.init("event", #"{"timestamp":1,"eventName":"b","UDID":"u"}"#), to: samsara)
            .valid
        #expect(valid.rewritten == Array(#"{"sourceId":"ours","timestamp":1,"eventName":"b","UDID":"u"}"#.utf8))
        #expect(valid.lane == .digest(of: "ours".utf8))
    }

    @Test func eventSize_countsWhatIsFilledIn() throws {
        let event = UpstreamFixture.Sample("event", #"{"sourceId":"a","eventName":"b"}"#)
        let stored = #"{"timestamp":1479988864057,"sourceId":"a","eventName":"b"}"#.utf8.count
        let exact = try fixture.make(["eventMaxBytes": .integer(Int64(stored))])
        #expect(throws: Never.self) { try fixture.validate(event, to: exact) }
        let tight = try fixture.make(["eventMaxBytes": .integer(Int64(stored - 1))])
        #expect(throws: InvalidPayload.self) { try fixture.validate(event, to: tight) }
    }

    @Test func id_isLeftAlone_whenItIsThere() throws {
        let samsara = try fixture.make(["addId": .bool(true)])
        for id in ["7", "\"x\"", "false", "{}"] {
            let event = UpstreamFixture.Sample("event", #"{"timestamp":1,"sourceId":"a","eventName":"b","id":\#(id)}"#)
            #expect(try fixture.validate(event, to: samsara).valid.rewritten == nil)
        }
    }

    /// Digests are stored: these numbers must never change.
    @Test(arguments: [
        ("", UInt64(0xCBF2_9CE4_8422_2325)), ("a", 0xAF63_DC4C_8601_EC8C), ("foobar", 0x8594_4171_F739_67E8),
    ])
    func lane_isTheDigest(name: String, digest: UInt64) {
        #expect(Lane.digest(of: name.utf8) == .digest(Int64(bitPattern: digest)))
    }

    @Test func lane_isThatOfTheValue_howeverItIsEscapedOrFilledIn() throws {
        let samsara = try fixture.make()
        for members in [
            #""sourceId":"é a""#, #""sourceId":"\u00e9 \u0061""#, #""UDID":"\u00E9 a""#, #""\u0073ourceId":"é a""#,
        ] {
            let event = UpstreamFixture.Sample("event", #"{\#(members),"eventName":"b"}"#)
            #expect(try fixture.validate(event, to: samsara).valid.lane == .digest(of: "é a".utf8))
        }
    }

    @Test(arguments: [
        "0.1000", "1e400", "-0", "-0.0", "1E+2", "123456789012345678901234567890", "0.12345678901234567890",
        #""\u0000""#,
        #""é 😀""#, #""\u00e9 \ud83d\ude00""#, #""\/""#, "[ 1 ,\t2 ]", #"{"b":1,"a":{"":null}}"#,
    ])
    func value_reachesTheWire_byteForByte(value: String) throws {
        let samsara = try fixture.make()
        let members = #""timestamp":1,"sourceId":"a","eventName":"b", "x y.z":\#(value) "#
        let samples = [members, #""sourceId":"a", "eventName":"b","x":\#(value)"#].map {
            UpstreamFixture.Sample("event", "{\($0)}")
        }
        let request = try fixture.request(for: fixture.messages(of: samples, to: samsara), to: samsara)
        let body = #"[{\#(members)},{"timestamp":1479988864057,"sourceId":"a", "eventName":"b","x":\#(value)}]"#
        #expect(request.body == Array(body.utf8))
    }

    @Test func limits_countTheBrackets_andEndAtTheClientsBuffer() throws {
        let samsara = try fixture.make()
        #expect(
            samsara.limits(BatchLimits(maxMessages: 20000, maxBytes: 1000))
                == BatchLimits(maxMessages: 10000, maxBytes: 1000, overhead: 2))
        #expect(samsara.limits(BatchLimits(maxMessages: 500, maxBytes: 1000)).maxMessages == 500)
    }

    @Test func longReason_isCut() throws {
        let samsara = try fixture.make()
        let batch = Batch(id: BatchID(rawValue: 1), messages: try fixture.messages(of: [fixture.good[0]], to: samsara))
        let body = Array("[\"\(String(repeating: "é", count: 1000))\"]".utf8)
        let verdict = samsara.judge(.success(.init(status: 400, body: body)), to: batch, in: fixture.planContext)
            .judgement.verdict
        #expect(verdict == .each([.reject(reason: "refused: " + String(repeating: "é", count: 391) + "…")]))
    }
}
