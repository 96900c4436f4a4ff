import PosternCore
import PosternGatewayTestKit
import PosternUpstream
import Testing

@testable import PosternGateway

/// Settings inside an object of an upstream, and those that are objects of objects or lists of numbers.
@Suite struct NestedSettingTests {
    private let types = UpstreamRegistry.all

    private func values(
        _ text: String, environment: [String: String] = [:], secrets: [String: String] = [:]
    ) throws -> [String: SettingValue] {
        let scratch = try ScratchConfiguration(Self.whole(text), secrets: secrets)
        let loaded = try scratch.loader(environment: environment, types: types).load()
        return try #require(loaded.configuration.upstreams.first).values
    }

    private static func whole(_ hook: String) -> String {
        #"{\#(ScratchConfiguration.encryption), "upstreams": {"hook": \#(hook)}}"#
    }

    private func problems(_ text: String, environment: [String: String] = [:]) throws -> [String] {
        try ScratchConfiguration(Self.whole(text)).problems(environment: environment, types: types)
    }

    @Test func settings_areRead_fromTheFile() throws {
        let values = try values(
            #"{"type": "webhook", "kinds": {"a": {"path": "/a"}, "b": {}}, "successStatuses": [200, 409], "auth": {"type": "bearer"}}"#
        )
        #expect(values["kinds"] == .objects(["a": ["path": "/a"], "b": [:]]))
        #expect(values["successStatuses"] == .integers([200, 409]))
        #expect(values["auth.type"] == .text("bearer"))
        #expect(values["auth.token"] == .text(""))
    }

    @Test func settings_areRead_fromTheEnvironmentAndSecretFiles() throws {
        let values = try values(
            #"{"type": "webhook", "auth": {"type": "bearer", "token": "old"}}"#,
            environment: [
                "POSTERN_UPSTREAMS_HOOK_AUTH_TYPE": "oauth2", "POSTERN_UPSTREAMS_HOOK_SUCCESS_STATUSES": "200, 202",
                "POSTERN_UPSTREAMS_HOOK_AUTH_TOKEN_URL": "https://h/token",
                "POSTERN_UPSTREAMS_HOOK_KINDS": #"{"c": {"method": "PUT"}}"#,
            ], secrets: ["upstreams-hook-auth-clientSecret": "sesame\n"])
        #expect(values["auth.type"] == .text("oauth2"))
        #expect(values["auth.token"] == .text("old"))
        #expect(values["auth.tokenURL"] == .text("https://h/token"))
        #expect(values["auth.clientSecret"] == .text("sesame"))
        #expect(values["successStatuses"] == .integers([200, 202]))
        #expect(values["kinds"] == .objects(["c": ["method": "PUT"]]))
    }

    @Test func query_isRead_asHeadersAre() throws {
        let text = #"{"type": "webhook", "query": {"a": "file"}}"#
        #expect(try values(text)["query"] == .strings(["a": "file"]))
        #expect(
            try values(text, secrets: ["upstreams-hook-query": #"{"a": "secret"}"#])["query"]
                == .strings(["a": "secret"]))
        #expect(
            try values(text, environment: ["POSTERN_UPSTREAMS_HOOK_QUERY": #"{"a": "variable"}"#])["query"]
                == .strings(["a": "variable"]))
    }

    /// A secret that is not masked in an upstream's answers is warned of, by `check` and at the start.
    @Test func shortSecrets_areWarnedOf() throws {
        let text = #"""
            {"upstreams": {"hook": {"type": "webhook", "url": "http://h?v=1", "auth": {"type": "basic", "username": "u",
             "password": "12345"}, "headers": {"X-Pin": "1", "X-Key": "123456"}, "query": {"sig": "é"}},
             "off": {"type": "webhook", "enabled": false, "query": {"sig": "é"}}}}
            """#
        let scratch = try ScratchConfiguration(text)
        let loader = scratch.loader(environment: [:], types: types)
        let detail = "has less than 6 characters, so it is not masked where the upstream repeats it"
        let expected = ["auth.password", "headers.X-Pin", "query.sig"].map {
            ConfigurationProblem("upstreams.hook.\($0)", detail)
        }
        #expect(Set(try loader.load().warnings.map(\.description)) == Set(expected.map(\.description)))
        #expect(
            Set(loader.examine(triesToStart: false).warnings.map(\.description)) == Set(expected.map(\.description)))
    }

    /// It may be of another type, with other settings.
    @Test func settingOfAnotherUpstream_isNoAdvice() throws {
        let scratch = try ScratchConfiguration(
            #"{\#(ScratchConfiguration.encryption), "upstreams": {"app": {"type": "appservices"}, "one": {"type": "streamone", "baseURL": "http://h"}}}"#
        )
        let found = scratch.loader(environment: [:], types: types).examine(triesToStart: false).problems
        #expect(found.map(\.description).first?.hasPrefix("upstreams.one.baseURL is unknown; allowed here: ") == true)
        #expect(found.count == 1 && "\(found)".contains("apiUrl"))
    }

    @Test func optionalSetting_isNull_orHasAValue() throws {
        let values = try values(
            #"""
            {"type": "appservices", "monitoring": {"enabled": true, "samplingRate": null, "logLevelToMonitor": 5,
             "networkMonitoringEnabled": false, "enableLogMonitoring": true}}
            """#,
            environment: [
                "POSTERN_UPSTREAMS_HOOK_MONITORING_ENABLE_LOG_MONITORING": "",
                "POSTERN_UPSTREAMS_HOOK_MONITORING_LOG_LEVEL_TO_MONITOR": "6",
            ])
        #expect(values["monitoring.enabled"] == .bool(true))
        #expect(values["monitoring.samplingRate"] == .null)
        #expect(values["monitoring.logLevelToMonitor"] == .integer(6))
        #expect(values["monitoring.networkMonitoringEnabled"] == .bool(false))
        #expect(values["monitoring.enableLogMonitoring"] == .null)
    }

    /// `monitoringEnabled` and `monitoring.enabled` have the same variable.
    @Test func variable_setsBothNamesOfASetting() throws {
        let values = try values(
            #"{"type": "appservices"}"#, environment: ["POSTERN_UPSTREAMS_HOOK_MONITORING_ENABLED": "true"])
        #expect(values["monitoring.enabled"] == .bool(true) && values["monitoringEnabled"] == .bool(true))
    }

    @Test func optionalSetting_isRefused_withTheWrongKindOrOutsideItsRange() throws {
        for (text, problem) in [
            (#""samplingRate": 101"#, "upstreams.hook.monitoring.samplingRate is 101; allowed 0 to 100, null"),
            (#""logLevelToMonitor": 1"#, "upstreams.hook.monitoring.logLevelToMonitor is 1; allowed 2 to 7"),
            (#""enabled": "yes""#, #"upstreams.hook.monitoring.enabled is "yes"; expected true or false"#),
            (
                #""uploadIntervalSeconds": null"#,
                "upstreams.hook.monitoring.uploadIntervalSeconds is null; expected a whole number of seconds, 0 to 86400"
            ),
        ] {
            #expect(try problems(#"{"type": "appservices", "monitoring": {\#(text)}}"#) == [problem])
        }
    }

    static let refused: [(text: String, problem: String)] = [
        (#""auth": "bearer""#, #"upstreams.hook.auth is "bearer"; expected an object"#),
        (#""auth": {"typ": "none"}"#, "upstreams.hook.auth.typ is unknown; did you mean upstreams.hook.auth.type?"),
        (
            #""auth": {"type": "digest"}"#,
            #"upstreams.hook.auth.type is "digest"; allowed none, basic, bearer, oauth2"#
        ),
        (#""auth": {"token": "a\nb"}"#, "upstreams.hook.auth.token is ***; must not contain a control character"),
        (
            #""kinds": {"a": {}, "b": "/x"}"#,
            #"upstreams.hook.kinds is an object; b in it is "/x", expected an object"#
        ),
        (#""kinds": {"a": {"path": 1}}"#, "upstreams.hook.kinds is an object; a.path in it is 1, expected text"),
        (#""kinds": {}"#, "upstreams.hook.kinds is an object; at least one kind is required"),
        (
            #""successStatuses": [409, 410], "rejectStatuses": [410]"#,
            "upstreams.hook.rejectStatuses is [410]; must not contain 410, which successStatuses contains, too"
        ),
        (
            #""url": "ftp://h/p?sig=TOPSECRET""#,
            #"upstreams.hook.url is "ftp://h/p?***"; must begin with http:// or https://"#
        ),
        (#""retryStatuses": [199]"#, "upstreams.hook.retryStatuses is an array; allowed 200 to 599"),
        (#""rejectStatuses": [600]"#, "upstreams.hook.rejectStatuses is an array; allowed 200 to 599"),
        (#""query": {"": "TOPSECRET"}"#, "upstreams.hook.query is ***; must not contain an empty name"),
        (#""successStatuses": [199]"#, "upstreams.hook.successStatuses is an array; allowed 200 to 499"),
        (
            #""successStatuses": ["200"]"#,
            "upstreams.hook.successStatuses is an array; expected a list of whole numbers"
        ),
        (#""successStatuses": 200"#, "upstreams.hook.successStatuses is 200; expected a list of whole numbers"),
        (
            #""auth": {"type": "basic"}, "headers": {"Authorization": "x"}"#,
            "upstreams.hook.headers is ***; must not contain Authorization, which auth.type basic sets"
        ),
    ]

    @Test(arguments: refused) func setting_isRefused_withItsPath(text: String, problem: String) throws {
        #expect(try problems(#"{"type": "webhook", \#(text)}"#) == [problem])
    }

    @Test func problem_namesTheVariable() throws {
        #expect(
            try problems(#"{"type": "webhook"}"#, environment: ["POSTERN_UPSTREAMS_HOOK_SUCCESS_STATUSES": "200,x"])
                == [
                    #"upstreams.hook.successStatuses is "200,x" (from POSTERN_UPSTREAMS_HOOK_SUCCESS_STATUSES); expected a list of whole numbers"#
                ])
    }

    @Test func change_isReported_withItsPath() throws {
        func configuration(_ text: String) throws -> GatewayConfiguration {
            let scratch = try ScratchConfiguration(#"{"upstreams": {"hook": {"type": "webhook", \#(text)}}}"#)
            return try scratch.loader(types: types).load().configuration
        }
        let plan = try configuration(#""auth": {"token": "a"}"#).changes(to: configuration(#""auth": {"token": "b"}"#))
        #expect(plan.live == ["upstreams.hook.auth.token"])
        #expect(plan.needsRestart.isEmpty)
    }
}
