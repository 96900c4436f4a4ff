import PosternConformance
import PosternCore
import PosternUpstream
import Testing
@testable import WebhookAdapter

@Suite struct WebhookConformance {
    @Test(arguments: Conformance.rules) func webhook(keepsTo rule: Conformance) async throws {
        try await rule.check(.webhook)
    }
}

extension UpstreamFixture {
    static let webhook = UpstreamFixture(
        type: .webhook,
        settings: [
            "url": .text("http://127.0.0.1:9005/hooks/?version=2016-beta"),
            "kinds": .objects([
                "order": ["path": "/orders"], "user.changed": ["path": "?by=user-id", "method": "PUT"],
                "part": ["method": "PATCH"],
            ]),
            "query": .strings(["sig": "T0P/secret=="]),
            "orderBy": .text("/source/id"), "auth.type": .text("basic"), "auth.username": .text("hélène"),
            "auth.password": .text("open:sesame/1"), "auth.token": .text("tok-abc-123"),
            "auth.clientSecret": .text("client secret?"), "headers": .strings(["X-Api-Key": "header-key-789"]),
            "signingSecrets": .list([Self.signingSecret]),
        ],
        secrets: [
            "2016-beta", "user-id", "T0P/secret==", "open:sesame/1", "tok-abc-123", "client secret?", "header-key-789",
            signingSecret,
        ],
        token: Token(value: "2YotnFZFEjr1zCsicMWpAA", renewAt: now + .seconds(60), expiresAt: nil),
        good: ["order", "user.changed", "part"].flatMap { kind in
            ["{}", "[]", "null", "true", "-0.10e1", #""text""#, #"{"source":{"id":null}}"#, #"{"source":[{"id":1}]}"#]
                .map { Sample(Kind(kind), $0) } + [Sample(Kind(kind), Self.first), Sample(Kind(kind), Self.second)]
        },
        bad: [
            BadSample("order", #"{"source":{"id":{"private":1}}}"#, "/source/id"),
            BadSample("part", #"{"source":{"id":["private"]}}"#, "/source/id"),
        ],
        golden: [
            GoldenRequest(file: "single.http", samples: [Sample("order", first)]),
            GoldenRequest(
                file: "array.http",
                settings: [
                    "batch": .text("array"), "signingSecrets": .list([signingSecret, nextSigningSecret]),
                ], samples: [Sample("order", first), Sample("order", second)]),
            GoldenRequest(
                file: "ndjson.http", settings: ["batch": .text("ndjson")],
                samples: [Sample("user.changed", first), Sample("user.changed", second)]),
            GoldenRequest(
                file: "wrapped.http",
                settings: [
                    "batch": .text("wrapped"), "wrapIn": .text(#"the "items""#), "auth.type": .text("none"),
                ], samples: [Sample("part", first), Sample("part", second)]),
            GoldenRequest(
                file: "token.http",
                settings: ["auth.type": .text("oauth2")],
                samples: [Sample("order", first)]),
        ],
        answers: Answer.usual.filter { ![418, 423, 451, 500].contains($0.response.status) }
            + [418, 423, 424, 430, 440, 451, 500].map { Answer($0, .suspect(after: nil)) })

    /// The secret of the examples of Standard Webhooks, and the longest one.
    static let signingSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    static let nextSigningSecret =
        "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw=="

    static let first = #"{"source":{"id":"s-1"},"total":0.1000,"note":"é \u00e9"}"#
    static let second = "{\"source\":{\"id\":\"s-2\"},\n\t\"tags\":[\"a\", \"b\"]\r\n}"
}
