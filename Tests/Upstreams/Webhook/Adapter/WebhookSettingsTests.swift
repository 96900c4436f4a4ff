import PosternConformance
import PosternCore
import PosternUpstream
import Testing

@testable import WebhookAdapter

@Suite struct WebhookSettingsTests {
    private let fixture = UpstreamFixture.webhook

    static let refused: [(setting: String, value: SettingValue, problems: [String])] = [
        ("url", .text("ftp://h"), ["must begin with http:// or https://"]),
        ("auth.tokenURL", .text("https://u:p@h"), ["must not contain a user name or password"]),
        ("kinds", .objects([:]), ["at least one kind is required"]),
        (
            "kinds",
            .objects([
                "a b": [:], "b": ["pth": "/x"], "c": ["path": "x"], "d": ["path": "/é"], "e": ["path": "/x#y"],
                "f": ["method": "DELETE"], "g": ["method": "post"], "h": ["path": "/a\r\nX: y"],
            ]),
            [
                "'a b' cannot be a kind: 1 to 64 letters, digits, '-', '_' and '.' can",
                "'b' has a member 'pth'; allowed are path, method, schema, maxRequestsPerSecond, maxMessagesPerSecond, fanOut",
                "the path of 'c' must begin with a slash or a question mark",
                "the path of 'd' must be ASCII without white space and fragment",
                "the path of 'e' must be ASCII without white space and fragment",
                "the method of 'f' must be one of POST, PUT, PATCH",
                "the method of 'g' must be one of POST, PUT, PATCH",
                "the path of 'h' must be ASCII without white space and fragment",
            ]
        ),
        ("batch", .text("lines"), ["allowed none, array, ndjson, wrapped"]),
        ("wrapIn", .text(""), ["must not be empty"]),
        ("orderBy", .text("id"), [Pointer.form]), ("orderBy", .text("/a~2"), [Pointer.form]),
        ("orderBy", .text("/a~"), [Pointer.form]),
        ("auth.type", .text("digest"), ["allowed none, basic, bearer, oauth2"]),
        ("auth.username", .text("a:b"), ["must not contain a colon or a control character"]),
        ("auth.username", .text("a\u{7F}"), ["must not contain a colon or a control character"]),
        ("auth.password", .text("a\nb"), ["must not contain a control character"]),
        ("auth.token", .text("a b"), ["must be ASCII without white space"]),
        ("auth.token", .text("a\r\nX: y"), ["must not contain a control character"]),
        ("auth.clientId", .text("\u{1}"), ["must not contain a control character"]),
        ("auth.clientSecret", .text("\u{85}"), ["must not contain a control character"]),
        ("auth.scope", .text("a\tb"), ["must not contain a control character"]),
        (
            "headers",
            .strings([
                "content-type": "a", "Idempotency-KEY": "b", "webhook-ID": "c", "Webhook-Timestamp": "d",
                "webhook-signature": "e", "Host": "f", "X": "g\r\nY: h",
            ]),
            [
                "Host is set by Postern itself", "Idempotency-KEY is set by Postern itself",
                "Webhook-Timestamp is set by Postern itself", "the value of X contains a control character",
                "content-type is set by Postern itself", "webhook-ID is set by Postern itself",
                "webhook-signature is set by Postern itself",
            ]
        ),
        ("url", .text("http://h/?a=b#c"), ["must not have a fragment"]),
        ("auth.tokenURL", .text("http://h/?a=b#c"), ["must not have a fragment"]),
        ("query", .strings(["": "x"]), ["must not contain an empty name"]),
        (
            "auth.parameters", .strings(["": "x", "scope": "a", "grant_type": "password", "client_secret": "\n"]),
            [
                "must not contain an empty name", "must not contain a control character",
                "client_secret is set by Postern itself", "grant_type is set by Postern itself",
                "scope is set by Postern itself",
            ]
        ),
        ("auth.clientAuthentication", .text("jwt"), ["allowed basic, post"]),
        ("headers", .strings(["authorization": "x"]), ["must not contain Authorization, which auth.type basic sets"]),
        (
            "signingSecrets", .list([UpstreamFixture.signingSecret, "whsec_short"]),
            ["secret 2 must be whsec_ followed by 24 to 64 bytes in Base64"]
        ),
    ]

    @Test(arguments: refused)
    func setting_isRefused_withEveryProblem(setting: String, value: SettingValue, problems: [String]) {
        #expect(throws: Setting.Problems(problems.map { (setting, $0) })) { try fixture.make([setting: value]) }
    }

    @Test func status_hasOneMeaning() throws {
        let lists: [String: SettingValue] = [
            "successStatuses": .integers([200, 409, 410]), "retryStatuses": .integers([409, 503]),
            "rejectStatuses": .integers([410, 503]),
        ]
        #expect(
            throws: Setting.Problems([
                ("retryStatuses", "must not contain 409, which successStatuses contains, too"),
                ("rejectStatuses", "must not contain 410, which successStatuses contains, too"),
                ("rejectStatuses", "must not contain 503, which retryStatuses contains, too"),
            ])
        ) { try fixture.make(lists) }
    }

    @Test func authorization_mayBeAFurtherHeader_withoutAuth() throws {
        let upstream = try fixture.make([
            "auth.type": .text("none"), "headers": .strings(["Authorization": "ApiKey 7"]),
            "signingSecrets": .list([]),
        ])
        let messages = try fixture.messages(of: [.init("order", "{}")], to: upstream)
        let request = try fixture.request(for: messages, to: upstream)
        #expect(
            request.headers.map(\.name) == ["Accept", "Content-Type", "Idempotency-Key", "Authorization"],
            "it is not signed")
        #expect(request.headers.last?.value == "ApiKey 7")
    }

    static let missing: [(settings: [String: SettingValue], names: [String])] = [
        ([:], ["url"]), (["url": .text("http://h")], []),
        (["auth.type": .text("basic")], ["url", "auth.username", "auth.password"]),
        (["url": .text("http://h"), "auth.type": .text("bearer")], ["auth.token"]),
        (["url": .text("http://h"), "auth.type": .text("bearer"), "auth.token": .text("t")], []),
        (
            ["url": .text("http://h"), "auth.type": .text("oauth2")],
            ["auth.tokenURL", "auth.clientId", "auth.clientSecret"]
        ),
    ]

    @Test(arguments: missing)
    func emptySettings_areMissing_onlyIfTheyAreUsed(settings: [String: SettingValue], names: [String]) throws {
        let upstream = try UpstreamType.webhook.make(#require(UpstreamName("hook")), settings)
        #expect(AnyUpstream(upstream).missingSettings == names)
    }

    /// With each kind of authentication, a simulated run needs no credentials, and calls nothing but the simulator.
    @Test(arguments: ["none", "basic", "bearer", "oauth2"])
    func simulatedRun_needsNothing(auth: String) throws {
        let values = UpstreamType.webhook.simulated(["auth.type": .text(auth)], at: "http://127.0.0.1:1")
        let upstream = AnyUpstream(try UpstreamType.webhook.make(#require(UpstreamName("hook")), values))
        #expect(upstream.missingSettings.isEmpty)
        #expect(upstream.tokenSource.map(\.tokenRequest.url) ?? "http://127.0.0.1:1" == "http://127.0.0.1:1")
    }

    @Test func secrets_cannotBePrinted() throws {
        let upstream = try #require(try fixture.make().base as? WebhookUpstream)
        var text = "\(upstream.settings)\n\(String(reflecting: upstream.settings))\n"
        dump(upstream.settings, to: &text)
        for secret in fixture.secrets { #expect(!text.contains(secret)) }
        #expect(text.contains("hélène"))
    }
}
