import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import AppServicesAdapter

/// Section 4.11: the text of a crash, and then the metrics that name it, which are sent once.
@Suite struct AppServicesCrashTests {
    private typealias Harness = AppServicesHarness
    private static let configuration = Harness.response(
        200, #"{"instaOpsApplicationId":21493,"orgName":"acme","appName":"campus-dev"}"#)
    private static let sent = Harness.response(200, #"{"message":"successfully sent"}"#)
    private static let item = #"{"deviceId":"\#(AppServicesItems.deviceID)","text":"it\nbroke: ü"}"#
    private static let all = ["fetchConfiguration", "uploadCrashLog", "uploadMetrics"]

    private static func usual(_ request: UpstreamRequest) -> UpstreamResponse {
        switch request.step {
        case "fetchConfiguration": configuration
        case "uploadCrashLog": Harness.response(200, "")
        default: sent
        }
    }

    private func harness() throws -> Harness { try Harness(["monitoring.enabled": .bool(true)]) }

    /// A harness that knows the configuration.
    private func informed() throws -> Harness {
        var harness = try harness()
        _ = try harness.steps(try harness.post("crash", Self.item), answer: Self.usual)
        return harness
    }

    @Test func crash_isTheTextUnderAName_andMetricsThatNameIt() throws {
        var harness = try harness()
        let id = try harness.post("crash", Self.item)
        let requests = try harness.run(id, answer: Self.usual)
        #expect(requests.map(\.step) == Self.all)
        let text = requests[1]
        let base = "https://mobileservices.openclasslabs.com/appservices/acme/campus-dev/apm/crashLogs/"
        let file = String(text.url.dropFirst(base.count))
        #expect(text.method == .put && text.url.hasPrefix(base) && file.hasSuffix(".crash"))
        #expect(Rules.isUUID(String(file.dropLast(6))))
        #expect(text.headers.map { "\($0.name): \($0.value)" } == ["Content-Type: text/plain"])
        #expect(text.body == Array("it\nbroke: ü".utf8))
        let at = harness.now.milliseconds
        #expect(
            String(decoding: requests[2].body, as: UTF8.self)
                == #"{"appName":"campus-dev","instaOpsApplicationId":21493,"logs":[{"logLevel":"A","logMessage":"\#(file)","#
                + #""tag":"CRASH","timeStamp":"\#(at)"}],"metrics":[],"orgName":"acme","#
                + #""sessionMetrics":{"deviceId":"\#(AppServicesItems.device)"},"timeStamp":"\#(at)"}"#)
        #expect(harness.results[id]?.map(\.step) == Self.all)
        #expect(harness.results[id]?.allSatisfy { $0.outcome == .done && $0.event == nil && $0.status == 200 } == true)
    }

    @Test func sessionMetricsOfACrash_areSent_whateverTheSampleAndTheLogLevelAre() throws {
        var harness = try Harness([
            "monitoring.enabled": .bool(true), "monitoring.samplingRate": .number(0),
            "monitoring.enableLogMonitoring": .bool(false), "monitoring.uploadIntervalSeconds": .integer(60),
        ])
        let id = try harness.post("crash", Self.item.replacing("}", with: #","sessionMetrics":{"appId":7}}"#))
        let requests = try harness.run(id, answer: Self.usual)
        let body = String(decoding: try #require(requests.last).body, as: UTF8.self)
        #expect(body.contains(#""sessionMetrics":{"appId":"7"}"#) && body.contains(#""tag":"CRASH""#))
    }

    @Test func twoCrashes_haveTwoNames() throws {
        var harness = try informed()
        var urls: Set<String> = []
        for _ in 0..<2 {
            urls.insert(try harness.run(try harness.post("crash", Self.item), answer: Self.usual)[0].url)
        }
        #expect(urls.count == 2)
    }

    @Test func text_isUploadedAgain_underTheSameName_untilItIsTaken() throws {
        var harness = try informed()
        let id = try harness.post("crash", Self.item)
        let first = try harness.run(id) { _ in Harness.response(503, "") }
        let (lost, _) = try harness.begin(id)
        harness.lose(id)
        let rest = try harness.run(id, answer: Self.usual)
        #expect(rest.map(\.step) == ["uploadCrashLog", "uploadMetrics"])
        #expect(Set([first[0].url, lost.url, rest[0].url]).count == 1)
        #expect(harness.ended[id]?.state == .delivered)
    }

    @Test func killBetweenTheTwoRequests_isFollowedByTheSecondAlone() throws {
        var harness = try informed()
        let id = try harness.post("crash", Self.item)
        let (request, _) = try harness.begin(id)
        harness.lose(id)
        try harness.judge(Self.usual(request), to: request, of: id)
        #expect(try harness.steps(id, answer: Self.usual) == ["uploadMetrics"])
        #expect(harness.ended[id]?.state == .delivered)
    }

    @Test func metricsThatMayHaveArrived_areNotSentAgain_andTheResultSaysThatTheTextIsStored() throws {
        var harness = try informed()
        let id = try harness.post("crash", Self.item)
        let (request, _) = try harness.begin(id)
        try harness.judge(Self.usual(request), to: request, of: id)
        #expect(try harness.begin(id).request.step == "uploadMetrics")
        harness.lose(id)
        #expect(try harness.steps(id, answer: Self.usual) == [])
        #expect(harness.ended[id]?.state == .dropped)
        #expect(harness.results[id]?.map(\.outcome) == [.skipped, .done, .failed])
    }

    @Test(arguments: [400, 403, 404])
    func rejectedText_failsTheReport_withoutMetrics(status: Int) throws {
        var harness = try informed()
        let id = try harness.post("crash", Self.item)
        #expect(try harness.steps(id) { _ in Harness.response(status, "") } == ["uploadCrashLog"])
        #expect(harness.ended[id]?.state == .failed)
        #expect(harness.results[id]?.map(\.outcome) == [.skipped, .failed, .skipped])
    }

    @Test func rejectedMetrics_failTheReport() throws {
        var harness = try informed()
        let id = try harness.post("crash", Self.item)
        _ = try harness.steps(id) { $0.step == "uploadMetrics" ? Harness.response(503, "") : Self.usual($0) }
        #expect(harness.ended[id]?.state == .failed)
        #expect(harness.results[id]?.map(\.outcome) == [.skipped, .done, .failed])
    }

    @Test func crashes_areRefused_whileMonitoringIsOff() throws {
        var harness = try Harness()
        #expect(throws: InvalidPayload.self) { try harness.post("crash", Self.item) }
        // An explicit value takes precedence over the older name.
        var off = try Harness(["monitoringEnabled": .bool(true), "monitoring.enabled": .bool(false)])
        #expect(throws: InvalidPayload.self) { try off.post("crash", Self.item) }
    }
}
