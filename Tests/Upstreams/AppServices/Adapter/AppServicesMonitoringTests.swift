import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import AppServicesAdapter

/// Section 4.11: metrics are sent once.
@Suite struct AppServicesMonitoringTests {
    private typealias Harness = AppServicesHarness
    private static let configuration = Harness.response(
        200, #"{"instaOpsApplicationId":21493,"orgName":"acme","appName":"campus-dev"}"#)
    private static let sent = Harness.response(200, #"{"message":"successfully sent"}"#)
    private static let item = #"{"sessionMetrics":{"appId":"1"}}"#

    private func harness(_ others: [String: SettingValue] = [:]) throws -> Harness {
        try Harness(["monitoringEnabled": .bool(true)].merging(others) { $1 })
    }

    private static func usual(_ request: UpstreamRequest) -> UpstreamResponse {
        request.step == "fetchConfiguration" ? configuration : sent
    }

    /// Fails the next request of the message without an answer.
    private func fail(_ id: MessageID, mayHaveArrived: Bool, _ harness: inout Harness) throws -> Judgement {
        let (request, message) = try harness.begin(id)
        let failure = TransferFailure(.unreachable, mayHaveArrived: mayHaveArrived, detail: "as the test wants it")
        let batch = Batch(id: BatchID(rawValue: 1), messages: [message], request: request)
        let decision = harness.upstream.judge(failure, to: batch, in: harness.context)
        harness.state.apply(decision.changes?(harness.state) ?? [])
        if !decision.judgement.tookNothing { harness.lose(id) }
        return decision.judgement
    }

    /// Kills the gateway after the next request of the message has left.
    private func kill(_ id: MessageID, _ harness: inout Harness) throws -> String? {
        let step = try harness.begin(id).request.step
        harness.lose(id)
        return step
    }

    @Test func configuration_isRequestedOnceADay() throws {
        var harness = try harness()
        let both = ["fetchConfiguration", "uploadMetrics"]
        #expect(try harness.steps(try harness.post("metrics", Self.item), answer: Self.usual) == both)
        #expect(try harness.steps(try harness.post("metrics", Self.item), answer: Self.usual) == ["uploadMetrics"])
        harness.now = harness.now + .seconds(86400)
        #expect(try harness.steps(try harness.post("metrics", Self.item), answer: Self.usual) == both)
    }

    @Test func upload_isRepeated_onlyWhenItSurelyDidNotArrive() throws {
        var harness = try harness()
        _ = try harness.steps(try harness.post("metrics", Self.item), answer: Self.usual)
        let id = try harness.post("metrics", Self.item)
        #expect(
            try fail(id, mayHaveArrived: false, &harness) == Judgement(.retry(after: nil), tookNothing: true))
        #expect(try harness.steps(id, answer: Self.usual) == ["uploadMetrics"])
        let other = try harness.post("metrics", Self.item)
        guard case .reject = try fail(other, mayHaveArrived: true, &harness).verdict else {
            return #expect(Bool(false))
        }
    }

    /// Neither is about the metrics, which are sent once it has ended.
    @Test(arguments: [421, 407]) func statusOfTheWay_dropsNoMetrics(status: Int) throws {
        for refused in ["fetchConfiguration", "uploadMetrics"] {
            var harness = try harness()
            let id = try harness.post("metrics", Self.item)
            let expected = refused == "uploadMetrics" ? ["fetchConfiguration", refused] : [refused]
            let sent = try harness.steps(id) { request in
                request.step == refused
                    ? UpstreamResponse(status: status, headers: [("Retry-After", "7")]) : Self.usual(request)
            }
            #expect(sent == expected && harness.ended[id] == nil)
            let (request, message) = try harness.begin(id)
            #expect(request.step == refused)
            let judgement = harness.upstream.judge(
                UpstreamResponse(status: status, headers: [("Retry-After", "7")]),
                to: Batch(id: BatchID(rawValue: 1), messages: [message], request: request), in: harness.context
            ).judgement
            if status == 421 {
                #expect(judgement == Judgement(.retry(after: .seconds(7)), tookNothing: true))
            } else {
                guard case .holdUpstream(.configuration, _) = judgement.verdict else {
                    return #expect(Bool(false), "\(judgement)")
                }
            }
            #expect(try harness.steps(id, answer: Self.usual).last == "uploadMetrics")
            #expect(harness.ended[id]?.state == .delivered)
        }
    }

    @Test func upload_thatMayHaveArrivedInAFormerRun_isDropped() throws {
        var harness = try harness()
        _ = try harness.steps(try harness.post("metrics", Self.item), answer: Self.usual)
        let id = try harness.post("metrics", Self.item)
        #expect(try kill(id, &harness) == "uploadMetrics")
        #expect(try harness.steps(id, answer: Self.usual) == [])
        #expect(harness.ended[id]?.state == .dropped)
    }

    @Test func firstUpload_thatMayHaveArrivedInAFormerRun_isDropped_thoughItsConfigurationWasFetchedBefore() throws {
        var harness = try harness()
        let id = try harness.post("metrics", Self.item)
        #expect(try kill(id, &harness) == "fetchConfiguration")
        #expect(try harness.steps(id) { _ in Harness.response(503, "") } == ["fetchConfiguration"])
        let (request, _) = try harness.begin(id)
        try harness.judge(Self.configuration, to: request, of: id)
        #expect(try kill(id, &harness) == "uploadMetrics")
        #expect(try harness.steps(id, answer: Self.usual) == [])
        #expect(harness.ended[id]?.state == .dropped)
    }

    @Test func uploadThatSurelyDidNotArrive_isSentAgain_alsoAfterAKillDuringItsConfiguration() throws {
        var harness = try harness()
        _ = try harness.steps(try harness.post("metrics", Self.item), answer: Self.usual)
        let id = try harness.post("metrics", Self.item)
        _ = try fail(id, mayHaveArrived: false, &harness)
        harness.now = harness.now + .seconds(86400)
        #expect(try kill(id, &harness) == "fetchConfiguration")
        #expect(try harness.steps(id, answer: Self.usual) == ["fetchConfiguration", "uploadMetrics"])
        #expect(harness.ended[id]?.state == .delivered)
    }

    @Test func metricsOfAnOlderVersion_whichMayHaveArrived_areDropped() throws {
        var harness = try harness()
        _ = try harness.steps(try harness.post("metrics", Self.item), answer: Self.usual)
        let id = try harness.post("metrics", Self.item)
        harness.lose(id)
        #expect(try harness.steps(id, answer: Self.usual) == [])
        #expect(harness.ended[id]?.state == .dropped)
    }

    @Test func configurationThatFailed_isRequestedAgain_andMetricsFollow() throws {
        var harness = try harness()
        let id = try harness.post("metrics", Self.item)
        #expect(try harness.steps(id) { _ in Harness.response(503, "") } == ["fetchConfiguration"])
        #expect(
            try fail(id, mayHaveArrived: true, &harness) == Judgement(.retry(after: nil)),
            "a question may be asked twice")
        #expect(try harness.steps(id, answer: Self.usual) == ["fetchConfiguration", "uploadMetrics"])
        #expect(harness.ended[id]?.state == .delivered)
    }

    @Test(arguments: [
        (404, #"{"error":"entity_not_found"}"#), (200, "{}"),
        (200, #"{"instaOpsApplicationId":1,"orgName":"o","appName":"a","monitoringDisabled":true}"#),
    ])
    func applicationWithoutMonitoring_refusesMetrics(status: Int, body: String) throws {
        var harness = try harness()
        let id = try harness.post("metrics", Self.item)
        #expect(try harness.steps(id) { _ in Harness.response(status, body) } == ["fetchConfiguration"])
        #expect(harness.ended[id]?.state == .failed)
    }

    @Test func refusedUpload_isNotRepeated() throws {
        for answer in [Harness.response(500, ""), Harness.response(200, "{}"), Harness.response(429, "")] {
            var harness = try harness()
            let id = try harness.post("metrics", Self.item)
            _ = try harness.steps(id) { $0.step == "uploadMetrics" ? answer : Self.configuration }
            #expect(harness.ended[id]?.state == .failed)
        }
    }

    @Test func longTexts_areCut_andValuesAreStrings() throws {
        var harness = try harness(["customUploadUrl": .text("http://127.0.0.1:9/up")])
        let logs = (0..<101).map { #"{"logMessage":"\#(String(repeating: "m", count: 250))","timeStamp":\#($0)}"# }
        let text =
            #"{"sessionMetrics":{"appId":7,"none":null},"metrics":[{"url":"\#(String(repeating: "u", count: 300))"}],"#
            + #""logs":[\#(logs.joined(separator: ","))]}"#
        let requests = try harness.run(try harness.post("metrics", text), answer: Self.usual)
        let upload = try #require(requests.last)
        let body = String(decoding: upload.body, as: UTF8.self)
        #expect(upload.url == "http://127.0.0.1:9/up")
        #expect(upload.headers.map(\.name) == ["Content-Type"])
        #expect(body.contains(#""sessionMetrics":{"appId":"7"}"#))
        #expect(body.contains(#""url":"\#(String(repeating: "u", count: 200))""#))
        #expect(body.contains(#"{"logMessage":"\#(String(repeating: "m", count: 200))","timeStamp":"99"}]"#))
        #expect(!body.contains(#""timeStamp":"100""#))
    }

    @Test func metrics_areRefused_whileMonitoringIsOff() throws {
        var harness = try Harness()
        #expect(throws: InvalidPayload.self) { try harness.post("metrics", Self.item) }
    }
}
