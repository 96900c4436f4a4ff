import PosternCore
import PosternGatewayTestKit
import PosternStore
import PosternUpstream
import Testing

@testable import PosternGateway

@Suite struct CallbackSettingsTests {
    private static let upstreams = """
        "upstreams": {"samsara": {}, "hooks": {"type": "webhook", "kinds": {"settled": {}, "lost": {}}},
          "off": {"type": "webhook", "enabled": false}, "other": {"type": "webhook"}}
        """

    private func text(_ callbacks: String, upstreams: String = upstreams) -> String {
        "{\(upstreams), \"callbacks\": \(callbacks)}"
    }

    private func configuration(_ callbacks: String, upstreams: String = upstreams) throws -> GatewayConfiguration {
        let scratch = try ScratchConfiguration(text(callbacks, upstreams: upstreams))
        return try withExtendedLifetime(scratch) {
            try scratch.loader(types: UpstreamRegistry.all).load().configuration
        }
    }

    @Test func callback_reportsEveryEndOfEveryUpstream_byDefault() throws {
        let found = try configuration(#"[{"upstream": "hooks", "kind": "settled"}]"#).callbacks
        #expect(
            found == [
                .init(
                    upstream: try #require(UpstreamName("hooks")), kind: "settled",
                    states: [.delivered, .failed, .expired, .dropped], upstreams: nil, includesPayload: false)
            ])
        #expect(try configuration("[]").callbacks.isEmpty)
    }

    @Test func settings_areRead() throws {
        let found = try configuration(
            """
            [{"upstream": "hooks", "kind": "lost", "states": ["expired", "dropped"], "upstreams": ["samsara", "hooks"],
              "includePayload": true}, {"upstream": "other", "kind": "event"}]
            """
        ).callbacks
        #expect(found.count == 2)
        #expect(found[0].kind == "lost" && found[0].states == [.expired, .dropped] && found[0].includesPayload)
        #expect(found[0].upstreams?.map(\.description).sorted() == ["hooks", "samsara"])
    }

    @Test func events_replaceStates_unlessBothAreGiven() throws {
        let found = try configuration(
            """
            [{"upstream": "hooks", "kind": "lost", "events": ["upstream.down", "disk.full"]},
             {"upstream": "hooks", "kind": "lost", "events": ["queue.old"], "states": ["failed"]},
             {"upstream": "hooks", "kind": "lost", "events": []}]
            """
        ).callbacks
        #expect(found.map(\.events) == [[.upstreamDown, .diskFull], [.queueOld], []])
        #expect(found.map(\.states) == [[], [.failed], [.delivered, .failed, .expired, .dropped]])
    }

    @Test(arguments: [
        (
            #"[{"upstream": "hooks", "kind": "settled", "events": ["upstream.dwn"]}]"#,
            [
                #"callbacks[0].events[0] is "upstream.dwn"; allowed upstream.down, upstream.up, upstream.unauthorized, "#
                    + #"guard.held, queue.old, messages.dropped, disk.full; did you mean "upstream.down"?"#
            ]
        ),
        (
            #"[{"upstream": "hooks", "kind": "settled", "events": "disk.full"}]"#,
            [#"callbacks[0].events is "disk.full"; expected a list of texts"#]
        ),
        ("5", ["callbacks is 5; expected an array of objects"]),
        ("[5]", ["callbacks[0] is 5; expected an object"]),
        ("[{}]", ["callbacks[0].upstream is missing", "callbacks[0].kind is missing"]),
        (
            #"[{"upstream": "hook", "kind": "settled"}]"#,
            [#"callbacks[0].upstream is "hook", which is not an upstream; did you mean "hooks"?"#]
        ),
        (
            #"[{"upstream": "samsara", "kind": "event"}]"#,
            [#"callbacks[0].upstream is "samsara", which is of type samsara; callbacks need one of type webhook"#]
        ),
        (
            #"[{"upstream": "off", "kind": "event"}]"#,
            [#"callbacks[0].upstream is "off", which is disabled; enable it, or remove the callback"#]
        ),
        (
            #"[{"upstream": "hooks", "kind": "setled"}, {"upstream": "hooks", "kind": ""}]"#,
            [
                #"callbacks[0].kind is "setled", which hooks does not have; did you mean "settled"?"#,
                #"callbacks[1].kind is "", which hooks does not have; allowed lost, settled"#,
            ]
        ),
        (
            #"[{"upstream": "hooks", "kind": "settled", "states": ["failed", "cancelled"], "upstreams": ["samsar"]}]"#,
            [
                #"callbacks[0].states[1] is "cancelled"; allowed delivered, failed, expired, dropped"#,
                #"callbacks[0].upstreams[0] is "samsar", which is not an upstream; did you mean "samsara"?"#,
            ]
        ),
        (
            #"[{"upstream": "hooks", "kind": "settled", "states": [], "upstreams": []}]"#,
            [
                "callbacks[0].states is empty; allowed delivered, failed, expired, dropped",
                #"callbacks[0].upstreams is empty; name upstreams, or "*" for all"#,
            ]
        ),
        (
            #"[{"upstream": 1, "kind": "settled", "includepayload": 1, "states": "failed"}]"#,
            [
                "callbacks[0].includepayload is unknown; did you mean callbacks[0].includePayload?",
                "callbacks[0].upstream is 1; expected text",
                #"callbacks[0].states is "failed"; expected a list of texts"#,
            ]
        ),
        (
            #"[{"upstream": "hooks", "kind": "lost"}, {"upstream": "hooks", "kind": "lost", "upstreams": ["*"]}]"#,
            ["callbacks[1] is the same as callbacks[0], so there would be two events for each message; remove one"]
        ),
    ])
    func mistake_isNamed(callbacks: String, expected: [String]) throws {
        let found = try ScratchConfiguration(text(callbacks)).problems(types: UpstreamRegistry.all)
        #expect(found == expected)
    }

    @Test func problemOfTheWebhook_isReportedOnce() throws {
        let upstreams = #""upstreams": {"hooks": {"type": "webhook", "kinds": {"Settled!": {}}}}"#
        let found = try ScratchConfiguration(
            text(#"[{"upstream": "hooks", "kind": "settled"}]"#, upstreams: upstreams)
        ).problems(types: UpstreamRegistry.all)
        #expect(found.count == 1)
        #expect(found[0].hasPrefix("upstreams.hooks.kinds is "))
    }

    @Test func callbacks_canOnlyBeSetInTheFile() throws {
        #expect(
            try problems(in: "{}", environment: ["POSTERN_CALLBACKS": "[]"]) == [
                "POSTERN_CALLBACKS matches no setting; callbacks can only be set in the file"
            ])
    }

    // MARK: Reload

    private func plan(from old: String, to new: String, upstreams: String = upstreams) throws -> ReloadPlan {
        try configuration(old).changes(to: configuration(new, upstreams: upstreams))
    }

    @Test func callbacks_changeWhileRunning() throws {
        let callback = #"[{"upstream": "hooks", "kind": "settled"}]"#
        for (old, new) in [("[]", callback), (callback, "[]")] {
            let plan = try plan(from: old, to: new)
            #expect(plan.live == ["callbacks"])
            #expect(plan.needsRestart.isEmpty)
            #expect(try plan.configuration.callbacks == configuration(new).callbacks)
        }
        #expect(try plan(from: callback, to: callback).isEmpty)
    }

    @Test func callbackWithANewKind_changesWithTheKindsOfItsWebhook() throws {
        let upstreams = Self.upstreams.replacing("\"lost\"", with: "\"gone\"")
        let plan = try plan(from: "[]", to: #"[{"upstream": "hooks", "kind": "gone"}]"#, upstreams: upstreams)
        #expect(plan.live == ["callbacks", "upstreams.hooks.kinds"])
        #expect(plan.configuration.callbacks.map(\.kind) == ["gone"])
    }

    @Test(arguments: [
        (#""new": {"type": "webhook"}"#, "new", "upstreams.new"),
        (#""off": {"type": "webhook"}"#, "off", "upstreams.off.enabled"),
    ])
    func callbacksToAnUpstreamThatIsAdded_changeWithIt(member: String, name: String, path: String) throws {
        let upstreams =
            name == "off"
            ? Self.upstreams.replacing(#""off": {"type": "webhook", "enabled": false}"#, with: member)
            : Self.upstreams.replacing(#""other""#, with: "\(member), \"other\"")
        let plan = try plan(
            from: "[]", to: #"[{"upstream": "\#(name)", "kind": "event"}]"#, upstreams: upstreams)
        #expect(plan.live.sorted() == ["callbacks", path])
        #expect(plan.needsRestart.isEmpty)
        #expect(plan.added.map(\.description) == [name])
        #expect(plan.configuration.callbacks.map(\.upstream.description) == [name])
    }
}
