import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import AppServicesAdapter

@Suite struct AppServicesConformance {
    @Test(arguments: Conformance.rules) func appservices(keepsTo rule: Conformance) async throws {
        try await rule.check(.appservices)
    }
}

extension UpstreamFixture {
    static let appservices = UpstreamFixture(
        type: .appservices,
        settings: AppServicesHarness.settings.merging([
            "monitoringEnabled": .bool(true), "sdk.prefix": .text("/sdk/wH2unguessable9"),
        ]) { $1 },
        secrets: [AppServicesHarness.key, AppServicesItems.u1Token],
        credentials: [
            AppServicesItems.u1: HeldCredential(value: Array(AppServicesItems.u1Token.utf8), note: "pi"),
            "20981743": HeldCredential(value: Array("MITOK:00042|a9b8c7d6".utf8), note: "mi"),
        ],
        good: [
            Sample("register", AppServicesItems.registration(AppServicesItems.u1, AppServicesItems.details)),
            Sample(
                "register", AppServicesItems.registration("me.too", #","preferences":{},"notifier":"a_B-9","x":null"#)),
            Sample("reregister", AppServicesItems.registration("pat.o'lee+x@example.edu", AppServicesItems.lists)),
            Sample("unregister", AppServicesItems.item(AppServicesItems.u1, #","notifier":"apple""#)),
            Sample(
                "preferences", AppServicesItems.item(AppServicesItems.u1, #","preferences":{"blacklist":{"a":[]}}"#)),
            Sample("preferences", AppServicesItems.item(AppServicesItems.u1, #","preferences":null"#)),
            Sample(
                "preferences",
                AppServicesItems.item(
                    AppServicesItems.u1,
                    #","preferences":{"add":{"whitelist":{"a":["b"]},"blacklist":{}},"remove":{"whitelist":["c"]}}"#)),
            Sample("preferences", AppServicesItems.item(AppServicesItems.u1, #","preferences":{"remove":{}}"#)),
            Sample("group_add", AppServicesItems.group()), Sample("group_remove", AppServicesItems.group("a", "B-1")),
            Sample("group_add", AppServicesItems.group("a", "B-1", token: "Bearer T")),
            Sample(
                "group_add",
                #"{"userId":"a","group":"g","auth":{"provider":"mi","token":"T","expiresAt":"2017-01-01T00:00:00Z"}}"#),
            Sample("device", AppServicesItems.registrationStep()),
            Sample("device", AppServicesItems.registrationStep(user: #""me.too""#)),
            Sample("device_unregister", AppServicesItems.step(#""notifier":"apple""#)),
            Sample("connect", AppServicesItems.item()), Sample("disconnect", AppServicesItems.item()),
            Sample("user", AppServicesItems.item(device: nil)),
            Sample("group", #"{"group":"g","auth":{"token":"T"}}"#),
            Sample("preferences", AppServicesItems.step(#""userId":null,"preferences":{"blacklist":{"a":[]}}"#)),
            Sample("metrics", #"{"sessionMetrics":{"appId":"1"}}"#),
            Sample("metrics", #"{"sessionMetrics":{"appId":"1"},"logs":[],"metrics":[{}]}"#),
            Sample("crash", #"{"deviceId":"\#(AppServicesItems.deviceID)","text":"it broke"}"#),
            Sample("crash", #"{"name":"\#(AppServicesItems.deviceID).crash","text":"it broke"}"#),
            Sample(
                "crash",
                #"{"deviceId":"\#(AppServicesItems.device)","text":"\u0000","sessionMetrics":{"appId":1},"logs":7}"#),
        ],
        bad: AppServicesKind.allCases.flatMap { kind in
            ["[]", #""private""#, "17", "null"].map { BadSample(kind.kind, $0, "") }
        } + [
            BadSample("register", "{}", "/userId", "/deviceId", "/deviceToken", "/auth"),
            BadSample(
                "register",
                #"""
                {"userId":"private name","deviceId":"private","deviceToken":"<private>","notifier":"","deviceModel":"",
                 "devicePlatform":7,"deviceOSVersion":null,"preferences":[],"auth":"private"}
                """#, "/userId", "/deviceId", "/deviceToken", "/deviceModel", "/devicePlatform", "/deviceOSVersion",
                "/notifier", "/preferences", "/auth"),
            BadSample("unregister", "{}", "/userId", "/deviceId", "/auth"),
            BadSample("device", "{}", "/deviceId", "/deviceToken", "/notifier", "/auth"),
            BadSample(
                "device", #"{"userId":"private name"}"#, "/userId", "/deviceId", "/deviceToken", "/notifier", "/auth"),
            BadSample("device_unregister", "{}", "/deviceId", "/notifier", "/auth"),
            BadSample("user", #"{"userId":null}"#, "/userId", "/auth"),
            BadSample("connect", "{}", "/userId", "/deviceId", "/auth"),
            BadSample("disconnect", AppServicesItems.item("a", device: ""), "/deviceId"),
            BadSample("group", "{}", "/group", "/auth"),
            BadSample("crash", #"{"name":"../private.crash","text":"private"}"#, "/name"),
            BadSample(
                "crash", #"{"name":"\#(AppServicesItems.deviceID).crash","deviceId":"","text":"it broke"}"#, "/deviceId"
            ),
            BadSample("crash", #"{"name":null,"text":"private"}"#, "/name"),
            BadSample("preferences", #"{"auth":{}}"#, "/userId", "/deviceId", "/preferences", "/auth/token"),
            BadSample("group_add", "{}", "/userId", "/group", "/auth"),
            BadSample("group_remove", AppServicesItems.group("a", "a b"), "/group"),
            BadSample("group_add", AppServicesItems.group("a", #"a\n"#), "/group"),
            BadSample("group_add", AppServicesItems.group("a", ""), "/group"),
            BadSample("group_add", AppServicesItems.group("a", String(repeating: "g", count: 129)), "/group"),
        ]
            + [
                "", "me", "Me", ".", "..", "a b", "a/b", "ü", "c0ffee11-2233-4455-8677-8899aabbccdd", "@", "a@b",
                "@b.c",
                "a@b..c", "a@b@c.d", String(repeating: "u", count: 129), #"a\n"#,
            ].map { BadSample("group_add", AppServicesItems.group($0), "/userId") }
            + [
                "7692c3ad", String(repeating: "a", count: 63), String(repeating: "a", count: 65),
                String(repeating: "a", count: 202), String(repeating: "g", count: 64), "{length = 32, bytes = 0x7692}",
            ].map { BadSample("register", AppServicesItems.registration("a", push: $0), "/deviceToken") }
            + ["", "(null)", "Bearer (null)", "null", "nil", "private key", "Bearer ", "Bearer  T", "ü", #"T\r\nX: y"#]
            .map { BadSample("group_add", AppServicesItems.group("a", token: $0), "/auth/token") }
            + [
                (#"{"provider":"mi","token":"Bearer T"}"#, "/auth/token"),
                (#"{"provider":"PI","token":"T"}"#, "/auth/provider"),
                (#"{"provider":0,"token":"T"}"#, "/auth/provider"), (#"{"token":7}"#, "/auth/token"),
                (#"{"token":"T","expiresAt":"private"}"#, "/auth/expiresAt"),
                (#"{"token":"T","expiresIn":"private"}"#, "/auth/expiresIn"),
                (#"{"token":"\#(String(repeating: "t", count: 8193))"}"#, "/auth/token"),
            ].map { BadSample("group_add", #"{"userId":"a","group":"g","auth":\#($0.0)}"#, $0.1) }
            + [
                ("7", "/preferences"), (#"{"greylist":{}}"#, "/preferences/greylist"),
                (#"{"whitelist":[]}"#, "/preferences/whitelist"),
                (#"{"whitelist":{"":[]}}"#, "/preferences/whitelist/"),
                (#"{"blacklist":{"a/b":["private",""]}}"#, "/preferences/blacklist/a~1b"),
                (#"{"blacklist":{"a":"private"}}"#, "/preferences/blacklist/a"),
                (#"{"blacklist":{"a":[7]}}"#, "/preferences/blacklist/a"),
                (#"{"add":7}"#, "/preferences/add"), (#"{"add":{},"whitelist":{}}"#, "/preferences/whitelist"),
                (#"{"add":{"whitelist":["a"]}}"#, "/preferences/add/whitelist"),
                (#"{"add":{"whitelist":{"a":7}}}"#, "/preferences/add/whitelist/a"),
                (#"{"add":{"greylist":{}}}"#, "/preferences/add/greylist"),
                (#"{"remove":null}"#, "/preferences/remove"),
                (#"{"remove":{"whitelist":{"a":[]}}}"#, "/preferences/remove/whitelist"),
                (#"{"remove":{"blacklist":["private",""]}}"#, "/preferences/remove/blacklist"),
            ].map { BadSample("preferences", AppServicesItems.item("a", #","preferences":\#($0.0)"#), $0.1) }
            + [
                BadSample("metrics", "{}", "/sessionMetrics"),
                BadSample("crash", "{}", "/deviceId", "/text"),
                BadSample(
                    "crash", #"{"deviceId":"private","text":"","sessionMetrics":{}}"#, "/deviceId", "/text",
                    "/sessionMetrics"),
                BadSample("crash", #"{"deviceId":"\#(AppServicesItems.device)","text":["private"]}"#, "/text"),
                // Only `preferences` changes entries.
                BadSample(
                    "register", AppServicesItems.registration("a", #","preferences":{"add":{}}"#), "/preferences/add"),
                BadSample("reregister", AppServicesItems.registration("a", #","preferences":null"#), "/preferences"),
                BadSample(
                    "metrics", #"{"sessionMetrics":{},"logs":{},"metrics":["private"]}"#, "/sessionMetrics", "/logs",
                    "/metrics"),
                // The size ends the check.
                BadSample("group_add", #"{"x":"\#(String(repeating: "private", count: 10000))"}"#, ""),
            ],
        golden: [
            GoldenRequest(
                file: "v1.http",
                samples: [
                    Sample("register", AppServicesItems.registration(AppServicesItems.u1, AppServicesItems.details))
                ]),
            GoldenRequest(file: "v8.http", samples: [Sample("group_add", AppServicesItems.group())]),
            GoldenRequest(file: "v12.http", samples: [Sample("unregister", AppServicesItems.item())]),
        ],
        answers: [
            Answer(200, #"{"entities":[{"type":"device"}]}"#, .proceed(progress: Array("#A200@1479988864057".utf8))),
            Answer(200, "<html>", .suspect(after: nil, rule: .afterTries(4))), Answer(200, "{}", .park),
            Answer(301, .holdUpstream(.configuration, detail: "HTTP 301: redirects are not followed with tokens")),
            Answer(302, .holdUpstream(.configuration, detail: "HTTP 302: redirects are not followed with tokens")),
            Answer(
                400, #"{"error":"illegal_argument"}"#,
                .reject(reason: "registerDevice: HTTP 400: illegal_argument (code 9)")),
            Answer(401, .park), Answer(401, #"{"error":"expired_token"}"#, .park),
            Answer(
                401, #"{"fault":{"detail":{"errorcode":"oauth.v2.InvalidApiKey"}}}"#,
                .holdUpstream(
                    .credentials, detail: "HTTP 401: oauth.v2.InvalidApiKey: the api key is not accepted")),
            Answer(403, .reject(reason: "registerDevice: HTTP 403: no error that it names (code 9)")),
            Answer(
                404,
                .reject(reason: "registerDevice: AppServices does not know the user, the device or the group (code 9)")
            ),
            Answer(408, .retry(after: nil)),
            Answer(413, .reject(reason: "registerDevice: HTTP 413: no error that it names (code 9)")),
            Answer(429, .retry(after: nil)), Answer(500, .retry(after: nil)), Answer(502, .retry(after: nil)),
            Answer(503, "<html>", .retry(after: nil)), Answer(504, .retry(after: nil)),
        ])
}

/// Items of the specification's test vectors.
enum AppServicesItems {
    static let u1 = "ffffffff54d00d1e0b07c0de5eed0011"
    static let u1Token = "PiTok-7f.abc_DEF~123"
    static let deviceID = "C0FFEE11-2233-4455-8677-8899AABBCCDD"
    static let device = "c0ffee11-2233-4455-8677-8899aabbccdd"
    static let pushToken = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"

    static func item(
        _ user: String = u1, _ members: String = "", token: String = u1Token, device: String? = deviceID
    ) -> String {
        let deviceMember = device.map { #","deviceId":"\#($0)""# } ?? ""
        return #"{"userId":"\#(user)"\#(deviceMember)\#(members),"auth":{"token":"\#(token)"}}"#
    }

    /// An item that names no user.
    static func step(_ members: String, token: String = u1Token, device: String = deviceID) -> String {
        #"{"deviceId":"\#(device)",\#(members),"auth":{"token":"\#(token)"}}"#
    }

    static func registrationStep(
        user: String? = nil, push: String = pushToken, _ more: String = "", token: String = u1Token,
        device: String = deviceID
    ) -> String {
        let user = user.map { #""userId":\#($0),"# } ?? ""
        return step(
            #"\#(user)"deviceToken":"\#(push)","notifier":"apple"\#(more)"#, token: token, device: device)
    }

    static let details = #","deviceModel":"iPhone 5s","devicePlatform":"iPhone OS","deviceOSVersion":"8.1.3""#
    static let lists = #","preferences":{"whitelist":{"forum":["chat","polls"],"assignments":[]}}"#

    static func registration(
        _ user: String = u1, push: String = pushToken, _ more: String = "", token: String = u1Token,
        device: String = deviceID
    ) -> String {
        item(user, #","deviceToken":"\#(push)"\#(more)"#, token: token, device: device)
    }

    static func group(_ user: String = u1, _ name: String = "Fall-2014-Biology", token: String = u1Token) -> String {
        item(user, #","group":"\#(name)""#, token: token, device: nil)
    }
}
