import PosternGatewayTestKit
import Testing

@testable import PosternGateway

/// Where the endpoints of SDKs can be.
@Suite struct SDKSettingsTests {
    private func problems(_ upstreams: String) throws -> [String] {
        let text = #"{\#(ScratchConfiguration.encryption), "upstreams": {\#(upstreams)}}"#
        return try ScratchConfiguration(text).problems(types: UpstreamRegistry.all)
    }

    /// An operator who has corrected them does not meet further ones.
    @Test func allProblems_areReportedAtOnce_alsoThoseOfUpstreamsWithoutCredentials() throws {
        let found = try problems(
            """
            "appservices": {"sdk": {"enabled": true, "prefix": "/a/b"}},
            "first": {"type": "samsara", "sdk": {"enabled": true, "rootPath": true, "prefix": "/a"}},
            "second": {"type": "samsara", "sdk": {"enabled": true, "rootPath": true, "maxBodyBytes": 5}},
            "seer": {"sdk": {"enabled": true, "prefix": "/sdk/second/x"}},
            "streamone": {"sdk": {"enabled": true, "prefix": "/v1/x"}}
            """)
        for problem in [
            "appservices.sdk.enabled is true; needs organization, application and apiKey: callers are checked against them",
            "seer.sdk.enabled is true; needs clientId and clientSecret, or sdk.clients: clients are checked against them",
            "streamone.sdk.enabled is true; needs id and psk: calls are checked against them",
            "second.sdk.maxBodyBytes is 5; allowed 1024 to 1073741824",
            "first.sdk.prefix is that of upstreams.appservices, or one is below the other; give each its own",
            "seer.sdk.prefix is that of upstreams.second, or one is below the other; give each its own",
            "streamone.sdk.prefix is a path of the gateway itself, or below one",
            "second.sdk.rootPath is true, as that of upstreams.first; only one can have it",
        ] {
            #expect(found.contains("upstreams." + problem), "\(problem)")
        }
        #expect(found.count == 8, "\(found)")
    }

    @Test func disabledEndpoints_areInNobodysWay() throws {
        let scratch = try ScratchConfiguration(
            """
            {"upstreams": {"first": {"type": "samsara", "sdk": {"prefix": "/v1", "rootPath": true}},
              "off": {"type": "samsara", "enabled": false, "sdk": {"enabled": true, "prefix": "/v1", "rootPath": true}},
              "samsara": {"sdk": {"enabled": true, "rootPath": true}}}}
            """)
        let loaded = try withExtendedLifetime(scratch) { try scratch.loader(types: UpstreamRegistry.all).load() }
        #expect(loaded.upstreams.count == 2)
    }
}
