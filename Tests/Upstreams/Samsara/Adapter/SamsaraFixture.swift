import PosternConformance
import PosternCore
import PosternUpstream
import Testing
@testable import SamsaraAdapter

@Suite struct SamsaraConformance {
    @Test(arguments: Conformance.rules) func samsara(keepsTo rule: Conformance) async throws {
        try await rule.check(.samsara)
    }
}

extension UpstreamFixture {
    static let samsara = UpstreamFixture(
        type: .samsara,
        settings: [
            "url": .text("http://127.0.0.1:9000"), "compression": .text("none"),
            "sdk.prefix": .text("/sdk/wH2unguessable9"),
            "headers": .strings(["Authorization": "Bearer opensesame"]),
        ],
        secrets: ["opensesame"],
        good: [sessionStarted, userScored]
            + [
                #"{"timestamp":0,"sourceId":"a","eventName":"b"}"#,
                #"{"timestamp":9223372036854775807,"sourceId":" a ","eventName":"b","receivedAt":null,"publishedAt":1}"#,
                #"{"timestamp":-0,"sourceId":"\u0061","eventName":"\ud83d\ude00","receivedAt":-99999999999999999999}"#,
                #"{"eventName":"b","UDID":"device"}"#, #"{"eventName":"b","sourceId":null,"UDID":"device","":{}}"#,
                #"{"sourceId":"a","\u0065ventName":"b","timestamp":null,"UDID":5}"#,
            ].map { Sample("event", $0) },
        bad: [
            BadSample("event", "[]", ""), BadSample("event", #""private""#, ""), BadSample("event", "null", ""),
            BadSample("event", "{}", "/sourceId", "/eventName"),
            BadSample(
                "event",
                #"{"timestamp":"private","sourceId":1,"eventName":{"private":1},"receivedAt":false,"publishedAt":"private"}"#,
                "/timestamp", "/sourceId", "/eventName", "/receivedAt", "/publishedAt"),
            BadSample("event", #"{"timestamp":1.0,"sourceId":"a","eventName":"b"}"#, "/timestamp"),
            BadSample("event", #"{"timestamp":1e3,"sourceId":"a","eventName":"b"}"#, "/timestamp"),
            BadSample("event", #"{"timestamp":-1,"sourceId":"a","eventName":"b"}"#, "/timestamp"),
            BadSample("event", #"{"timestamp":9223372036854775808,"sourceId":"a","eventName":"b"}"#, "/timestamp"),
            BadSample("event", #"{"timestamp":true,"sourceId":"a","eventName":"b"}"#, "/timestamp"),
            BadSample("event", #"{"timestamp":1,"sourceId":"","eventName":" \t"}"#, "/sourceId", "/eventName"),
            BadSample(
                "event", #"{"timestamp":1,"sourceId":"\u00a0","UDID":"x","eventName":null}"#, "/sourceId", "/eventName"),
            BadSample("event", #"{"timestamp":1,"UDID":" ","eventName":"private"}"#, "/sourceId"),
            BadSample("event", #"{"timestamp":1,"sourceId":"a","eventName":"b","receivedAt":1.5}"#, "/receivedAt"),
            BadSample("event", #"{"timestamp":1,"sourceId":"a","eventName":"b","publishedAt":{}}"#, "/publishedAt"),
            BadSample("event", #"{"timestamp":1,"SourceId":"a","eventname":"b"}"#, "/sourceId", "/eventName"),
            BadSample(
                "event", #"{"sourceId":"a","x":"\#(String(repeating: "private", count: 40000))"}"#, "/eventName", ""),
        ],
        golden: [
            GoldenRequest(file: "one-event.http", samples: [sessionStarted]),
            GoldenRequest(
                file: "two-events-gzip.http", settings: ["compression": .text("gzip")],
                samples: [sessionStarted, userScored]),
            GoldenRequest(
                file: "filled-in.http",
                settings: [
                    "url": .text("https://samsara.example/base/v1/"), "sourceId": .text(#"gateway "7""#),
                    "addId": .bool(true),
                ],
                samples: [
                    Sample("event", #" {"eventName":"user.logged", "n": 0.1000} "#),
                    Sample(
                        "event",
                        "{ \"eventName\":\"user.logged\",\"id\":null,\t\"sourceId\": null ,\"timestamp\":null }"),
                ]),
        ],
        answers: [
            Answer(202, .delivered()), Answer(202, "garbage", .delivered()),
            Answer(
                202,
                #"{"status":"OK","warning":"For completeness, please provide the 'X-Samsara-publishedTimestamp' header."}"#,
                .delivered(),
                notice: UpstreamNotice(
                    "accepted with a warning",
                    quote: "For completeness, please provide the 'X-Samsara-publishedTimestamp' header.")),
            Answer(200, .retry(after: nil)), Answer(204, .retry(after: nil)), Answer(200, "<html>", .retry(after: nil)),
            Answer(
                400, #"["OK","{:timestamp (not (integer? \"1433004490171\"))}","{:eventName missing-required-key}"]"#,
                .each([
                    .again, .reject(reason: #"refused: {:timestamp (not (integer? "1433004490171"))}"#),
                    .reject(reason: "refused: {:eventName missing-required-key}"),
                ]), samples: 3),
            Answer(
                400, #"["schema.utils.ValidationError@1f"]"#,
                .each([.reject(reason: "refused: schema.utils.ValidationError@1f")])),
            Answer(400, #"["OK","bad"]"#, .suspect(after: nil), samples: 3),
            Answer(400, #"["OK","OK"]"#, .suspect(after: nil), samples: 2),
            Answer(400, #"["OK",5]"#, .suspect(after: nil), samples: 2),
            Answer(400, "[]", .suspect(after: nil)),
            Answer(400, "Malformed JSON in request body.", .suspect(after: nil)),
            Answer(400, #"{"error":"ERROR"}"#, .suspect(after: nil)),
            Answer(
                400, #"{"status":"ERROR","message":"Invalid format, content-type must be application/json"}"#,
                .holdUpstream(
                    .configuration, detail: "HTTP 400: Invalid format, content-type must be application/json")),
            Answer(400, #"{"status":"ERROR"}"#, .holdUpstream(.configuration, detail: "HTTP 400")),
            Answer(413, .split(reason: "HTTP 413")),
            Answer(500, .suspect(after: nil)),
            Answer(500, "java.lang.Exception", .suspect(after: nil)),
            Answer(501, .retry(after: nil)), Answer(503, "503 Service Unavailable", .retry(after: nil)),
        ] + [401, 403].map { held($0, .credentials, "the client was rejected") }
            + [301, 302, 304, 307, 308].map { held($0, .configuration, "there is no such endpoint at this URL") }
            + [404, 405, 406, 410, 415, 422, 431, 451].map { held($0, .configuration, "not from Samsara") }
            + [408, 420, 425, 429, 499, 502, 503, 504].map { Answer($0, .retry(after: nil)) })

    static let sessionStarted = Sample(
        "event", #"{"timestamp":1433004485870,"sourceId":"3aw4sedrtcyvgbuhjkn","eventName":"session.started"}"#)
    static let userScored = Sample(
        "event",
        #"{"timestamp":1433004490171,"sourceId":"johndoe@gmail.com","eventName":"user.scored","location-x":104.5,"id64":9007199254740993,"name":"José 😀"}"#
    )

    private static func held(_ status: Int, _ reason: Verdict.HoldReason, _ what: String) -> Answer {
        Answer(status, .holdUpstream(reason, detail: "HTTP \(status): \(what)"))
    }
}
