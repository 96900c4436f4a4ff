import PosternCore
import PosternGatewayTestKit
import PosternUpstream
import Testing

@testable import PosternGateway

@Suite struct FanOutSettingsTests {
    private func configuration(_ kinds: String, callbacks: String = "[]") throws -> ScratchConfiguration {
        try ScratchConfiguration(
            """
            {"upstreams": {"shop": {"type": "webhook", "kinds": {\(kinds), "order": {}, "mail": {}}}, "samsara": {},
              "off": {"type": "webhook", "enabled": false}}, "callbacks": \(callbacks)}
            """)
    }

    private func problems(_ kinds: String, callbacks: String = "[]") throws -> [String] {
        try configuration(kinds, callbacks: callbacks).problems(types: UpstreamRegistry.all)
    }

    @Test func legs_areKindsOfAnyUpstream() throws {
        let scratch = try configuration(#""all": {"fanOut": ["order", "shop/mail", "samsara/event"]}"#)
        let upstreams = try withExtendedLifetime(scratch) {
            try scratch.loader(types: UpstreamRegistry.all).load().upstreams
        }
        let shop = try #require(upstreams.first { $0.name.description == "shop" })
        #expect(shop.traits.fanOuts["all"]?.map(\.description) == ["shop/order", "shop/mail", "samsara/event"])
    }

    static let refused: [(kind: String, problems: [String])] = [
        (
            #""all": {"fanOut": ["ordr"]}"#,
            [#"upstreams.shop fans all out to shop/ordr, which shop does not have; did you mean "order"?"#]
        ),
        (
            #""all": {"fanOut": ["order", "shop/order"]}"#,
            ["upstreams.shop fans all out to shop/order, a second time"]
        ),
        (
            #""all": {"fanOut": ["crm/x"]}"#,
            ["upstreams.shop fans all out to crm/x, whose upstream is not configured"]
        ),
        (
            #""all": {"fanOut": ["off/event"]}"#,
            ["upstreams.shop fans all out to off/event, whose upstream is disabled"]
        ),
        (
            #""all": {"fanOut": ["most"]}, "most": {"fanOut": ["order"]}"#,
            ["upstreams.shop fans all out to shop/most, which is a fan-out itself"]
        ),
        (
            #""all": {"fanOut": ["all"]}"#,
            ["upstreams.shop fans all out to shop/all, which is a fan-out itself"]
        ),
        (
            #""all": {"fanOut": []}"#,
            ["upstreams.shop.kinds is an object; the fanOut of 'all' must name 1 to 16 kinds"]
        ),
        (
            #""all": {"fanOut": [\#((1...17).map { #""k\#($0)""# }.joined(separator: ","))]}"#,
            ["upstreams.shop.kinds is an object; the fanOut of 'all' must name 1 to 16 kinds"]
        ),
        (
            #""all": {"fanOut": ["order"], "path": "/x", "method": "PUT"}"#,
            [
                "upstreams.shop.kinds is an object; 'all' has a fanOut, so it cannot have a path",
                "upstreams.shop.kinds is an object; 'all' has a fanOut, so it cannot have a method",
            ]
        ),
        (
            #""all": {"fanOut": "order"}"#,
            [#"upstreams.shop.kinds is an object; all.fanOut in it is "order", expected a list of texts"#]
        ),
        (
            #""all": {"fanOut": [1]}"#,
            ["upstreams.shop.kinds is an object; all.fanOut in it is 1, expected a list of texts"]
        ),
    ]

    @Test(arguments: refused) func fanOut_isRefused_withItsReason(kind: String, problems: [String]) throws {
        #expect(try self.problems(kind) == problems)
    }

    @Test func callback_needsAKindThatIsSent() throws {
        let found = try problems(
            #""all": {"fanOut": ["order"]}"#, callbacks: #"[{"upstream": "shop", "kind": "all"}]"#)
        #expect(found == [#"callbacks[0].kind is "all", which is a fan-out; name a kind that is sent"#])
    }
}
