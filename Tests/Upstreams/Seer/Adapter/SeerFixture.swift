import PosternConformance
import PosternCore
import PosternUpstream
import Testing
@testable import SeerAdapter

@Suite struct SeerConformance {
    @Test(arguments: Conformance.rules) func seer(keepsTo rule: Conformance) async throws {
        try await rule.check(.seer)
    }
}

extension UpstreamFixture {
    static let seer = UpstreamFixture(
        type: .seer,
        settings: [
            "clientId": .text("gw-client"), "clientSecret": .text("gw:secret/1"), "apiKey": .text("KEY123"),
            "endpoints": .strings(["customendpoint": "/customendpoint"]),
            "sdk.prefix": .text("/sdk/wH2unguessable9"),
            "sdk.clients": .records([["id": "app-ios", "secretSha256": .text(String(repeating: "5c", count: 32))]]),
        ],
        secrets: ["gw:secret/1", "KEY123"],
        token: Token(value: "2YotnFZFEjr1zCsicMWpAA", renewAt: now + .seconds(60), expiresAt: nil),
        good: [
            Sample("activity", SeerSamples.a1), Sample("activity", SeerSamples.a2),
            Sample("activity", SeerSamples.activity(id: " ")),
            Sample("activity", SeerSamples.activity(id: " ", more: #","context":{}"#)),
            Sample("activity", SeerSamples.activity(id: "a", more: #","target":null,"published":7,"x":[null]"#)),
            Sample("instrumentation", SeerSamples.i1), Sample("tincan", SeerSamples.t1),
            Sample("tincan", SeerSamples.statement(actor: #"{"mbox":"","account":{"name":"n"}}"#)),
            Sample("tincan", SeerSamples.statement(actor: #"{"mbox":null,"openid":"o"}"#)),
            Sample("tincan", SeerSamples.statement(actor: #"{"mbox_sha1sum":"1","account":"a"}"#)),
            Sample("customendpoint", #"{"any":[1,2]}"#), Sample("customendpoint", "{}"),
        ],
        bad: ["activity", "instrumentation", "tincan", "customendpoint"].flatMap { kind in
            ["[]", #""private""#, "17", "null", "true"].map { BadSample(Kind(kind), $0, "") }
        } + [
            BadSample("activity", "{}", "/actor", "/verb", "/generator", "/object"),
            BadSample(
                "activity", #"{"actor":{},"verb":{"id":"private"},"object":{},"generator":{"appId":7},"context":null}"#,
                "/actor/id", "/verb", "/generator/appId", "/object/id", "/object/objectType", "/context"),
            BadSample("activity", SeerSamples.activity(id: ""), "/actor/id"),
            BadSample("activity", SeerSamples.activity(id: "a", more: #","context":"private""#), "/context"),
            BadSample(
                "activity", #"{"actor":"private","verb":null,"object":[],"generator":7}"#, "/actor", "/verb",
                "/generator", "/object"),
            BadSample(
                "instrumentation", #"{"actor":{"id":"a"},"verb":"v","object":{"id":"o","objectType":"t"}}"#,
                "/generator"),
            BadSample("tincan", "{}", "/actor", "/verb", "/object", "/context"),
            BadSample("tincan", SeerSamples.statement(actor: #"{"name":"private"}"#), "/actor"),
            BadSample("tincan", SeerSamples.statement(actor: #"{"mbox":""}"#), "/actor"),
            BadSample("tincan", SeerSamples.statement(actor: #"{"mbox":null}"#), "/actor"),
            BadSample("tincan", SeerSamples.statement(actor: #"{"account":{}}"#), "/actor"),
            BadSample("tincan", SeerSamples.statement(verb: #""interacted""#), "/verb"),
            BadSample("tincan", SeerSamples.statement(verb: #"{"id":1}"#), "/verb/id"),
            BadSample("tincan", SeerSamples.statement(object: #"{"id":"o","definition":{}}"#), "/object/definition"),
            BadSample("tincan", SeerSamples.statement(object: #"{"id":"o"}"#), "/object/definition"),
            BadSample(
                "tincan", SeerSamples.statement(object: #"{"id":"","definition":{"name":"n"}}"#), "/object/id",
                "/object/definition/type"),
            BadSample("tincan", SeerSamples.statement(object: #""private""#), "/object"),
            BadSample("tincan", SeerSamples.statement(context: "null"), "/context"),
            BadSample("tincan", SeerSamples.statement(context: #""private""#), "/context"),
            BadSample("tincan", SeerSamples.statement(context: "{}"), "/context/extensions"),
            BadSample("tincan", SeerSamples.statement(context: #"{"extensions":{}}"#), "/context/extensions"),
            BadSample(
                "tincan", SeerSamples.statement(context: #"{"extensions":{"appId":12}}"#), "/context/extensions/appId"),
            // The size ends the check.
            BadSample("activity", #"{"x":"\#(String(repeating: "private", count: 20000))"}"#, ""),
        ],
        golden: [
            GoldenRequest(
                file: "activity-batch.http",
                samples: [Sample("activity", SeerSamples.a1), Sample("activity", SeerSamples.a2)]),
            GoldenRequest(file: "tincan-batch.http", samples: [Sample("tincan", SeerSamples.t1)]),
            GoldenRequest(file: "instrumentation.http", samples: [Sample("instrumentation", SeerSamples.i1)]),
            GoldenRequest(file: "custom.http", samples: [Sample("customendpoint", #"{"any":[1,2]}"#)]),
        ],
        answers: [200, 201, 202, 204, 206, 299].map { Answer($0, .delivered()) }
            + [
                Answer(200, "{}", .delivered()), Answer(200, " { } \n", .delivered()),
                Answer(200, "<html>", .delivered(), notice: "the response to a report has a body"),
                Answer(401, .refreshToken),
                Answer(403, .holdUpstream(.credentials, detail: "HTTP 403: the client was rejected")),
            ]
            + [301, 302, 307, 404, 405, 406, 415].map {
                Answer($0, .holdUpstream(.configuration, detail: "HTTP \($0): there is no such endpoint at this URL"))
            }
            + Answer.ofAnyPayload
            + [400, 409, 410, 413, 418, 422, 451].map { Answer($0, .split(reason: "HTTP \($0)")) }
            + [Answer(400, "bad actor", .split(reason: "HTTP 400: bad actor"))]
            + [Answer(407, .holdUpstream(.configuration, detail: "HTTP 407: a proxy requires credentials"))]
            + [408, 425, 429, 500, 501, 502, 503, 504, 599, 100, 700].map { Answer($0, .retry(after: nil)) })
}

/// The specification's examples, and variations of them.
enum SeerSamples {
    static let a1 = #"""
        {"actor":{"id":"pearsonappuser@gmail.com"},"verb":"action","object":{"id":"objectId","objectType":"objectType"},"generator":{"appId":"Seer-ios-sample-app"},"published":"2015-03-12T22:41:24Z"}
        """#
    static let a2 = #"""
        {"actor":{"id":"zoë"},"verb":"post","object":{"id":"o-1","objectType":"photo","displayName":"Martin's 🚀"},"generator":{"appId":"app-1"}}
        """#
    static let i1 = #"""
        {"actor":{"id":"device-7"},"verb":"heartbeat","object":{"id":"cache-42","objectType":"cache-service"},"generator":{"appId":"ccsoc"}}
        """#
    static let t1 = #"""
        {"actor":{"mbox":"mailto:sally@example.com"},"verb":{"id":"http://adlnet.gov/expapi/verbs/interacted"},"object":{"id":"http://pearson.com/ccsoc/interactive/","definition":{"type":"http://pearson.com/ccsoc/interactivetype/"}},"result":{"score":{"scaled":0.95}},"context":{"extensions":{"appId":"SEER-ios-sdk"}}}
        """#

    static func activity(id: String, more: String = "") -> String {
        #"{"actor":{"id":"\#(id)"},"verb":"v","object":{"id":"o","objectType":"t"},"generator":{"appId":"g"}\#(more)}"#
    }

    static func statement(
        actor: String = #"{"mbox":"m"}"#, verb: String = #"{"id":"v"}"#,
        object: String = #"{"id":"o","definition":{"type":"t"}}"#,
        context: String = #"{"extensions":{"appId":"a"}}"#
    ) -> String {
        #"{"actor":\#(actor),"verb":\#(verb),"object":\#(object),"context":\#(context)}"#
    }
}
