import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import StreamOneAdapter
@testable import StreamOneClient

@Suite struct StreamOneConformance {
    @Test(arguments: Conformance.rules) func streamone(keepsTo rule: Conformance) async throws {
        try await rule.check(.streamone)
    }
}

extension UpstreamFixture {
    static let streamone = UpstreamFixture(
        type: .streamone,
        settings: [
            "id": .text("9yC-4pQxT_2a"), "psk": .text("ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu"),
            "sdk.prefix": .text("/sdk/wH2unguessable9"),
        ],
        secrets: ["ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu"],
        good: [
            Sample("call", edit), Sample("call", #"{"command":"item","action":"create"}"#),
            Sample("call", #"{"command":"item","action":"create","arguments":{},"accounts":["A1","A2"]}"#),
            Sample("call", #"{"command":"user","action":"delete","customer":"C1","timezone":"UTC"}"#),
            Sample(
                "call",
                #"{"command":"i9","action":"a","arguments":null,"account":null,"accounts":null,"timezone":null}"#),
        ],
        bad: [
            BadSample("call", "[]", ""), BadSample("call", #""private""#, ""), BadSample("call", "null", ""),
            BadSample("call", "{}", "/command", "/action"),
            BadSample("call", #"{"command":"Private","action":"a/b"}"#, "/command", "/action"),
            BadSample("call", #"{"command":7,"action":""}"#, "/command", "/action"),
            BadSample("call", #"{"command":"item","action":"view"}"#, "/action"),
            BadSample("call", #"{"command":"session","action":"create"}"#, "/command"),
            BadSample(
                "call", #"{"command":"item","action":"edit","account":1,"customer":[],"timezone":0}"#, "/account",
                "/customer", "/timezone"),
            BadSample("call", #"{"command":"item","action":"edit","account":"private,b"}"#, "/account"),
            BadSample(
                "call", #"{"command":"item","action":"edit","accounts":["a",7,"private,b"]}"#, "/accounts/1",
                "/accounts/2"),
            BadSample("call", #"{"command":"item","action":"edit","accounts":"private"}"#, "/accounts"),
            BadSample(
                "call", #"{"command":"item","action":"edit","account":"a","accounts":[],"customer":"c"}"#, "/accounts",
                "/customer"),
            BadSample("call", #"{"command":"item","action":"edit","arguments":["private"]}"#, "/arguments"),
            BadSample(
                "call", #"{"command":"item","action":"edit","arguments":{"a":{},"b":[[1]],"c/d":1e300}}"#,
                "/arguments/a", "/arguments/b/0", "/arguments/c~1d"),
            BadSample("call", #"{"command":"item","action":"edit","acount":"private"}"#, "/acount"),
        ],
        golden: [
            GoldenRequest(file: "edit.http", samples: [Sample("call", edit)]),
            GoldenRequest(
                file: "default-account.http", settings: ["defaultAccountId": .text("A4pMV-sKDVEy")],
                samples: [Sample("call", #"{"command":"item","action":"create"}"#)]),
            GoldenRequest(
                file: "user.http",
                settings: ["authenticationType": .text("user"), "apiUrl": .text("http://127.0.0.1:8080/prefix")],
                samples: [
                    Sample(
                        "call", #"{"command":"item","action":"create","customer":"C1","timezone":"Europe/Amsterdam"}"#)
                ]),
        ],
        answers: [
            Answer(200, ok, .delivered(result: Array(ok.utf8))), Answer(201, ok, .delivered(result: Array(ok.utf8))),
            Answer(200, StreamOneSamples.answer(1), .suspect(after: nil, rule: .afterTries(5))),
            Answer(200, StreamOneSamples.answer(2), .retry(after: .seconds(1))),
            Answer(200, StreamOneSamples.answer(3), .retry(after: .seconds(1))),
            Answer(200, StreamOneSamples.answer(8), .retry(after: .seconds(60))),
            Answer(200, StreamOneSamples.answer(10), .retry(after: .seconds(30))),
            Answer(200, StreamOneSamples.answer(120), .reject(reason: "status 120 ITEM_NOT_FOUND: M120")),
            Answer(200, "<html>", .suspect(after: nil)), Answer(200, .suspect(after: nil)),
            Answer(407, .holdUpstream(.configuration, detail: "HTTP 407: a proxy requires credentials")),
        ]
            + [301, 302, 400, 401, 403, 404, 408, 413, 429, 500, 502, 503, 504].map {
                Answer($0, ok, .retry(after: nil))
            })

    private static let edit =
        #"{"command":"item","action":"edit","account":"A4pMV-sKDVEy","arguments":{"item":"vMD_9k1SmkS5","title":"Café & thé: 50% (a/b)~*!","keywords":["news","a b","x+y"],"description":null,"archived":false,"rating":1.0}}"#
    private static let ok = StreamOneSamples.answer(body: #"{"id":"vMD_9k1SmkS5"}"#)
}

enum StreamOneSamples {
    static func answer(
        _ status: Int = 0, cacheable: Bool = false, timeout: Int? = nil, body: String = "null"
    ) -> String {
        let session = timeout.map { #","sessiontimeout":\#($0)"# } ?? ""
        return
            #"{"header":{"status":\#(status),"statusmessage":"M\#(status)","apiversion":3,"cacheable":\#(cacheable)\#(session),"timezone":"Europe\/Amsterdam"},"body":\#(body)}"#
    }

    static let initialized = answer(
        body:
            #"{"challenge":"OTzt9VSAQHQSFuEf03PZT6e5P4OoS1sw","salt":"$2y$04$jyhye3p43mjoxvtfxflfkv","needsv2hash":false}"#
    )

    static func created(
        _ id: String = "Hz1kPspd2Bk1", key: String = "SQKEyak6R2BcwH3qnTakY50SKeABxXcg", user: String = "QIpMpsuPCBKn"
    )
        -> String
    {
        answer(body: #"{"id":"\#(id)","key":"\#(key)","timeout":3600,"user":"\#(user)"}"#)
    }

    static func upstream(
        _ settings: [String: SettingValue] = [:], name: String = "streamone"
    ) throws -> StreamOneUpstream {
        let all: [String: SettingValue] = [
            "apiUrl": .text("http://api.test"), "id": .text("9yC-4pQxT_2a"),
            "psk": .text("ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu"),
        ]
        return StreamOneUpstream(
            try #require(UpstreamName(name)), try StreamOneSettings(all.merging(settings) { $1 }))
    }

    /// Logs in; the session's id.
    static func login(
        _ upstream: StreamOneUpstream, _ harness: StreamOneHarness, id: String = "Hz1kPspd2Bk1",
        user: String = "QIpMpsuPCBKn"
    ) throws -> String {
        harness.transport.expect(.status(200, initialized), .status(200, created(id, user: user)))
        let reply = try upstream.ask(
            .post, "sessions", body: #"{"username":"jan","password":"secret","userip":"10.0.0.1"}"#, harness)
        try reply.wait()
        _ = try #require(reply.json, "\(String(describing: reply.answer))")
        return id
    }
}
