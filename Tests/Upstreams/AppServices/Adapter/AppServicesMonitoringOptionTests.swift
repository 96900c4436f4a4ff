import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import AppServicesAdapter

/// Which metrics are uploaded, when, and where: the platform's configuration, and the settings that override it.
@Suite struct AppServicesMonitoringOptionTests {
    private typealias Harness = AppServicesHarness

    private static func configuration(_ defaults: String, _ more: String = "") -> String {
        #"{"instaOpsApplicationId":1,"orgName":"o","appName":"a","defaultAppConfig":{\#(defaults)}\#(more)}"#
    }

    private static func answers(_ configuration: String) -> (UpstreamRequest) -> UpstreamResponse {
        { request in
            Harness.response(
                200, request.step == "fetchConfiguration" ? configuration : #"{"message":"Successfully sent"}"#)
        }
    }

    private static let levels = ["V", "D", "I", "W", "E", "A", "?"]
    private static let item =
        #"{"sessionMetrics":{"appId":"1"},"metrics":[{"url":"u"}],"logs":["#
        + levels.map { #"{"logLevel":"\#($0)","logMessage":"m\#($0)"}"# }.joined(separator: ",") + "]}"

    /// The upload of the item; nil if there is none.
    private func upload(_ settings: [String: SettingValue], _ configuration: String) throws -> UpstreamRequest? {
        var harness = try Harness(["monitoring.enabled": .bool(true)].merging(settings) { $1 })
        let requests = try harness.run(try harness.post("metrics", Self.item), answer: Self.answers(configuration))
        return requests.last { $0.step == "uploadMetrics" }
    }

    /// The levels of the log entries that are uploaded.
    private func logs(_ settings: [String: SettingValue], _ defaults: String) throws -> String {
        let request = try #require(try upload(settings, Self.configuration(defaults)))
        let body = String(decoding: request.body, as: UTF8.self)
        return Self.levels.filter { body.contains(#""logLevel":"\#($0)""#) }.joined()
    }

    @Test func logLevel_isThePlatforms_unlessASettingOverridesIt() throws {
        #expect(try logs([:], "") == "VDIWEA?")
        #expect(try logs([:], #""logLevelToMonitor":5"#) == "WEA?", "an unknown level is not below any")
        #expect(try logs(["monitoring.logLevelToMonitor": .integer(7)], #""logLevelToMonitor":5"#) == "A?")
        #expect(try logs(["monitoring.logLevelToMonitor": .integer(2)], #""logLevelToMonitor":5"#) == "VDIWEA?")
    }

    @Test func logs_areLeftOut_whenThePlatformSaysSo_unlessASettingOverridesIt() throws {
        #expect(try logs([:], #""enableLogMonitoring":false"#) == "")
        #expect(try logs(["monitoring.enableLogMonitoring": .bool(true)], #""enableLogMonitoring":false"#) == "VDIWEA?")
        #expect(try logs(["monitoring.enableLogMonitoring": .bool(false)], "") == "")
    }

    @Test func networkMetrics_areLeftOut_whenThePlatformSaysSo_unlessASettingOverridesIt() throws {
        func has(_ settings: [String: SettingValue], _ defaults: String) throws -> Bool {
            let body = try #require(try upload(settings, Self.configuration(defaults))).body
            return String(decoding: body, as: UTF8.self).contains(#""metrics":[{"url":"u"}]"#)
        }
        #expect(try has([:], ""))
        #expect(try !has([:], #""networkMonitoringEnabled":false"#))
        #expect(
            try has(["monitoring.networkMonitoringEnabled": .bool(true)], #""networkMonitoringEnabled":false"#))
        #expect(try !has(["monitoring.networkMonitoringEnabled": .bool(false)], ""))
    }

    @Test func url_isTheSetting_elseThePlatforms_elseThatOfTheApplication() throws {
        func url(_ settings: [String: SettingValue], _ more: String = "") throws -> String? {
            try upload(settings, Self.configuration("", more))?.url
        }
        let own = "https://mobileservices.openclasslabs.com/appservices/acme/campus-dev/apm/apmMetrics"
        #expect(try url([:]) == own)
        let platforms = #","customUploadUrl":"http://127.0.0.1:9/platform""#
        let hosts: [String: SettingValue] = ["uploadHosts": .list(["127.0.0.1:9"])]
        #expect(try url(hosts, platforms) == "http://127.0.0.1:9/platform")
        #expect(try url([:], platforms) == own)
        #expect(try url([:], #","customUploadUrl":"file:///etc""#) == own, "not a URL that can be configured")
        let setting: [String: SettingValue] = ["monitoring.uploadURL": .text("http://127.0.0.1:9/setting")]
        #expect(try url(setting, platforms) == "http://127.0.0.1:9/setting")
        let older: [String: SettingValue] = ["customUploadUrl": .text("http://127.0.0.1:9/older")]
        #expect(try url(older, platforms) == "http://127.0.0.1:9/older")
        #expect(try url(older.merging(setting) { $1 }) == "http://127.0.0.1:9/setting")
    }

    /// Each is another spelling of an address of this machine or network, another port, or another reader's host.
    @Test(arguments: [
        "http://127.0.0.1/", "http://127.1/", "http://2130706433/", "http://0177.0.0.1/", "http://0x7f000001/",
        "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://[fe80::1]/", "http://169.254.169.254/latest/meta-data",
        "http://10.0.0.1/", "http://localhost/", "http://localtest.example/", "http://user@api.example/",
        "https://api.example@127.0.0.1/", "https://127.0.0.1\\\\@api.example/", "https://api.example#@127.0.0.1/",
        "https://api.example?@127.0.0.1/", "https://api.example.evil.example/", "https://api.example./",
        "http://api.example/", "https://api.example:22/", "https://apiªexample/", "//api.example/", "",
        "file:///etc/passwd", "https://metrics.example:444/",
    ])
    func urlOfThePlatform_isNotUsed_ifTheOperatorHasNotNamedItsHost(url: String) throws {
        #expect(try used(url) == nil)
    }

    @Test(arguments: [
        "https://api.example/up", "https://API.example:443/up", "https://metrics.example/up", "http://10.0.0.7:8080/up",
        "https://[fd00::7]/up",
    ])
    func urlOfThePlatform_isUsed_ifTheOperatorHasNamedItsHost(url: String) throws {
        #expect(try used(url) == url)
    }

    /// Nil if it is not used.
    private func used(_ url: String) throws -> String? {
        let settings: [String: SettingValue] = [
            "baseURL": .text("https://api.example/appservices"),
            "uploadHosts": .list(["metrics.example", "10.0.0.7:8080", "[fd00::7]"]),
        ]
        let more = ",\"customUploadUrl\":\"\(url)\""
        let request = try #require(try upload(settings, Self.configuration("", more)))
        return request.url.hasPrefix("https://api.example/appservices/") ? nil : request.url
    }

    @Test func ignoredURL_isReported_withoutWhatThePlatformSays() throws {
        func notice(_ settings: [String: SettingValue]) throws -> UpstreamNotice? {
            var harness = try Harness(["monitoring.enabled": .bool(true)].merging(settings) { $1 })
            let id = try harness.post("metrics", Self.item)
            let answer = Self.configuration("", #","customUploadUrl":"http://10.0.0.1/x""#)
            return try harness.judge(Harness.response(200, answer), to: harness.begin(id).request, of: id).notice
        }
        let found = try #require(try notice([:]))
        #expect(!found.text.contains("10.0.0.1"))
        #expect(found.quote == "http://10.0.0.1/x")
        #expect(try notice(["uploadHosts": .list(["10.0.0.1"])]) == nil)
        #expect(try notice(["monitoring.uploadURL": .text("http://127.0.0.1:9/setting")]) == nil)
    }

    @Test func sample_isOfSessions_andASessionIsInItOrNot() throws {
        var harness = try Harness(["monitoring.enabled": .bool(true)])
        let answers = Self.answers(Self.configuration(#""samplingRate":25"#))
        var taken: [Bool] = []
        for session in 0..<400 {
            let item = #"{"sessionMetrics":{"sessionId":"s\#(session)"}}"#
            let ids = try (0..<2).map { _ in try harness.post("metrics", item) }
            for id in ids { _ = try harness.steps(id, answer: answers) }
            let ends = ids.map { harness.ended[$0]?.state }
            #expect(ends[0] == ends[1])
            taken.append(ends[0] == .delivered)
            if ends[0] != .delivered { #expect(ends[0] == .cancelled) }
        }
        #expect((60...140).contains(taken.count(where: \.self)))
    }

    @Test func sample_isThePlatforms_unlessASettingOverridesIt() throws {
        #expect(try upload([:], Self.configuration(#""samplingRate":0"#)) == nil)
        #expect(
            try upload(["monitoring.samplingRate": .number(100)], Self.configuration(#""samplingRate":0"#)) != nil)
        #expect(try upload(["monitoring.samplingRate": .number(0)], Self.configuration("")) == nil)
    }

    @Test func metrics_waitForTheEndOfTheirInterval_orForAFlush() throws {
        var harness = try Harness([
            "monitoring.enabled": .bool(true), "monitoring.uploadIntervalSeconds": .integer(60),
        ])
        let id = try harness.post("metrics", Self.item)
        let end = Timestamp(milliseconds: (harness.now.milliseconds / 60_000 + 1) * 60_000)
        #expect(try harness.plan(id) == .wait(.schedule, until: end))
        let flushed = PlanContext(now: harness.now, token: nil, state: harness.state, flushedThrough: id)
        guard case .send = harness.upstream.plan(for: [try #require(harness.messages[id])], in: flushed) else {
            Issue.record("the flush sends nothing")
            return
        }
        harness.now = end
        let answers = Self.answers(Self.configuration(#""agentUploadIntervalInSeconds":600"#))
        #expect(
            try harness.steps(id, answer: answers) == ["fetchConfiguration", "uploadMetrics"],
            "the platform's interval is that of the app")
    }

    @Test func configurationOfAnOlderVersion_isUsed_withoutTheOptionsThatItLacks() throws {
        let stored = #"{"appName":"a","fetchedAtMs":1479988864057,"instaOpsApplicationId":1,"orgName":"o"}"#
        let configuration = try #require(MonitoringConfiguration(stored: Array(stored.utf8)))
        #expect(configuration.options == MonitoringOptions() && configuration.identity.count == 3)
        #expect(configuration.isCurrent(at: UpstreamFixture.now))
    }
}
