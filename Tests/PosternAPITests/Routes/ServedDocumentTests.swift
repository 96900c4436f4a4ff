import Foundation
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing
import WebhookAdapter

@testable import PosternAPI

/// `/openapi.yaml`: the operations of configured kinds. `make contract` checks that all of it is valid, and makes a
/// client of it.
@Suite struct ServedDocumentTests {
    private static func webhook(_ name: String, _ kinds: [String: [String: SettingValue]]) throws -> any Upstream {
        try UpstreamType.webhook.make(
            #require(UpstreamName(name)), ["url": .text("http://h.test"), "kinds": .objects(kinds)])
    }

    private func withUpstreams(_ upstreams: [any Upstream], _ body: (TestGateway) throws -> Void) throws {
        var setup = Setup()
        setup.upstreams += upstreams
        try withPausedGateway(setup, body)
    }

    private func document(_ gateway: TestGateway, key: String? = nil) throws -> [Substring] {
        let headers = key.map { [("Authorization", "Bearer \($0)")] } ?? []
        let answer = try gateway.client.ask("GET", "/openapi.yaml", headers: headers)
        #expect(answer.status == 200)
        return answer.text.split(separator: "\n", omittingEmptySubsequences: false)
    }

    private func paths(_ lines: [Substring]) -> [Substring] {
        lines.drop { $0 != "paths:" }.prefix { $0 != "webhooks:" }.filter { $0.hasPrefix("  /") }
    }

    private func operations(_ lines: [Substring]) -> [Substring] {
        lines.filter { $0.hasPrefix("      operationId: ") }.map { $0.dropFirst(19) }
    }

    private func schemas(_ lines: [Substring], _ prefix: String) -> [Substring] {
        lines.filter { $0.hasPrefix("    \(prefix)") }.map { $0.dropFirst(4) }
    }

    @Test func document_isTheEmbeddedOne_withoutConfiguredKinds() throws {
        try withUpstreams([]) { gateway in
            let embedded = try Fixture.bytes(inPackage: "openapi/openapi.yaml")
            #expect(try gateway.client.get("/openapi.yaml").body == Array(embedded))
        }
    }

    @Test func eachKind_hasAnOperation_andASchema() throws {
        let folder = ScratchFolder()
        let file = folder.file("order.json")
        try Data(
            #"""
            {"$id":"x","type":"object","required":["a"],"properties":{"a":{"$ref":"#/$defs/l~1n"},"$ref":{"$ref":"#"},
             "e":{"enum":["a\u0085",1e3,null]},"t":true,"f":{"type":"array","items":false}},"additionalProperties":false,
             "$defs":{"l/n":{"anyOf":[{"type":"string"},{"$ref":"#/$defs/n"}]},"n":{"type":"null"}}}
            """#.utf8
        ).write(to: URL(fileURLWithPath: file))
        try withUpstreams([
            try Self.webhook("orders", ["order-placed": ["schema": .text(file)], "raw": [:]])
        ]) { gateway in
            let lines = try document(gateway)
            #expect(paths(lines).suffix(2) == ["  /v1/orders/order-placed:", "  /v1/orders/raw:"])
            #expect(
                operations(lines).filter { $0.hasPrefix("postOrders") } == ["postOrdersOrderPlaced", "postOrdersRaw"])
            #expect(
                schemas(lines, "Orders") == [
                    ##"OrdersOrderPlaced: {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#/components/schemas/OrdersOrderPlacedLN"}, "$ref": {"$ref": "#/components/schemas/OrdersOrderPlaced"}, "e": {"enum": ["a\U00000085", 1000.0, null]}, "t": {}, "f": {"type": "array", "items": {not: {}}}}, "additionalProperties": false}"##,
                    ##"OrdersOrderPlacedLN: {"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/OrdersOrderPlacedN"}]}"##,
                    ##"OrdersOrderPlacedN: {"type": "null"}"##, "OrdersRaw: {}",
                ])
        }
    }

    /// The embedded document has `event` of an upstream called `webhook`.
    @Test func kinds_replaceThoseOfTheirUpstream() throws {
        try withUpstreams([try Self.webhook("webhook", ["event": [:], "other": [:]])]) { gateway in
            let lines = try document(gateway)
            #expect(
                paths(lines).filter { $0.hasPrefix("  /v1/webhook/") } == [
                    "  /v1/webhook/event:", "  /v1/webhook/other:",
                ])
            #expect(operations(lines).count { $0 == "postWebhookEvent" } == 1)
        }
        try withUpstreams([try Self.webhook("webhook", ["other": [:]])]) { gateway in
            let paths = try paths(document(gateway))
            #expect(!paths.contains("  /v1/webhook/event:"))
        }
    }

    @Test func names_areUnique() throws {
        try withUpstreams([
            try Self.webhook("a", ["b-c": [:], "b.c": [:], "B-C": [:]]), try Self.webhook("a-b", ["c": [:]]),
            try Self.webhook("cloud", ["events": [:]]), try Self.webhook("seer", ["activity": [:]]),
        ]) { gateway in
            let lines = try document(gateway)
            let operations = operations(lines)
            #expect(Set(operations.map { $0.lowercased() }).count == operations.count)
            #expect(Set(paths(lines)).count == paths(lines).count)
            let names = schemas(lines, "").filter { !$0.hasPrefix(" ") }.map { $0.prefix { $0 != ":" } }
            #expect(names.count { $0.hasPrefix("ABC") } == 4)
            #expect(
                Set(operations).isSuperset(of: ["postABC", "postABC2", "postABC3", "postABC4", "postCloudEvents2"]))
        }
    }

    @Test func key_seesTheKindsOfItsUpstreams() throws {
        try withUpstreams([try Self.webhook("one", ["k": [:]]), try Self.webhook("two", ["k": [:]])]) { gateway in
            let keys = ["one", "two"].map { name in
                APIKey(
                    name: name, sha256: KeyText.digest(of: "key-\(name)"), scopes: [.write],
                    upstreams: Set([UpstreamName(name)!]), limits: RateLimits())
            }
            gateway.handler.replaceKeys(keys, opensMetrics: false)
            for (own, other) in [("one", "two"), ("two", "one")] {
                let lines = try document(gateway, key: "key-\(own)")
                #expect(paths(lines).contains("  /v1/\(own)/k:") && !lines.joined().contains("/v1/\(other)/"))
            }
        }
    }

    @Test func fanOut_isDescribedAsOne() throws {
        try withUpstreams([try Self.webhook("shop", ["all": ["fanOut": .list(["k"])], "k": [:]])]) { gateway in
            let lines = try document(gateway).drop { $0 != "  /v1/shop/all:" }.prefix { $0 != "  /v1/shop/k:" }
            #expect(lines.contains { $0.contains("the response has an id for each") })
        }
    }

    // MARK: YAML

    @Test(arguments: [
        ("a", #""a""#), ("no: \"x\"\\", #""no: \"x\"\\""#),
        ("\n\u{7F}\u{2028}\u{FEFF}\u{FFFE}", #""\U0000000a\U0000007f\U00002028\U0000feff\U0000fffe""#),
        ("é\u{10FFFF}😀", #""é\U0010ffff\U0001f600""#),
    ])
    func text_isQuoted(text: String, quoted: String) { #expect(YAMLText.quoted(text) == quoted) }

    @Test(arguments: [
        ("1", "1"), ("-0.50", "-0.50"), ("1e3", "1000.0"), ("1E30", "1.0e+30"), ("-2.5e-9", "-2.5e-09"),
        ("1e-10", "1.0e-10"),
    ])
    func number_isOneInBothVersionsOfYAML(literal: String, number: String) {
        #expect(YAMLText.number(literal) == number)
    }
}
