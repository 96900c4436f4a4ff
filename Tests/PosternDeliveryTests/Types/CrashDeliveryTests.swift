import AppServicesAdapter
import Foundation
import PosternCore
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternDelivery

/// Crash reports of AppServices with a real store and a real worker: what a kill, a lost answer, and an operator's retry
/// repeat, and what they do not.
@Suite(.timeLimit(.minutes(10))) struct CrashDeliveryTests {
    private static let settings = DeliverySettings.with { ($0.maxInFlight, $0.batchMaxWait) = (8, .zero) }
    private static let item = #"{"deviceId":"c0ffee11-2233-4455-8677-8899aabbccdd","text":"it broke"}"#

    private static func appServices() throws -> any Upstream {
        let values: [String: SettingValue] = [
            "baseURL": .text("http://app/x"), "organization": .text("acme"), "application": .text("campus-dev"),
            "apiKey": .text("KEY"), "monitoring.enabled": .bool(true),
        ]
        return try UpstreamType.appservices.make(UpstreamName("appservices")!, values)
    }

    /// Answers all steps except `step`, which gets `answer`; nil for none.
    private static func rule(_ step: String = "", _ answer: TransferResult? = nil) -> ScriptedTransport.Rule {
        { request in
            switch request.step {
            case step: answer
            case "fetchConfiguration":
                .status(200, #"{"instaOpsApplicationId":1,"orgName":"acme","appName":"campus-dev"}"#)
            case "uploadMetrics": .status(200, #"{"message":"Successfully sent metrics"}"#)
            default: .status(200)
            }
        }
    }

    private func sent(_ step: String, by harness: DeliveryHarness) -> [UpstreamRequest] {
        harness.reports.filter { $0.step == step }
    }

    @Test func killDuringTheMetrics_dropsThem_andOneDuringTheText_repeatsIt() throws {
        for (step, end) in [("uploadCrashLog", MessageState.delivered), ("uploadMetrics", .dropped)] {
            let harness = try DeliveryHarness(try Self.appServices(), settings: Self.settings)
            harness.transport.answerAll(by: Self.rule(step))
            let id = try harness.post([Self.item], as: "crash")[0]
            try harness.run(for: .seconds(1))
            #expect(sent(step, by: harness).count == 1)
            try harness.kill(try Self.appServices(), settings: Self.settings)
            harness.transport.answerAll(by: Self.rule())
            try harness.run(for: .seconds(10))
            #expect(try harness.state(id) == end)
            #expect(sent("uploadMetrics", by: harness).count == 1)
            let texts = sent("uploadCrashLog", by: harness)
            #expect(texts.count == (step == "uploadCrashLog" ? 2 : 1) && Set(texts.map(\.url)).count == 1)
        }
    }

    @Test func metricsWhoseAnswerWasLost_areNotSentAgain_evenIfAnOperatorRetriesThem() throws {
        let harness = try DeliveryHarness(try Self.appServices(), settings: Self.settings)
        harness.transport.answerAll(by: Self.rule("uploadMetrics", .reset))
        let id = try harness.post([Self.item], as: "crash")[0]
        try harness.run(for: .seconds(1))
        #expect(try harness.state(id) == .failed)
        try harness.requeue(id)
        try harness.run(for: .seconds(10))
        #expect(try harness.state(id) == .dropped)
        #expect(sent("uploadMetrics", by: harness).count == 1 && sent("uploadCrashLog", by: harness).count == 1)
    }

    @Test func retriedReport_whoseMetricsWereRejected_continuesWithThem() throws {
        let harness = try DeliveryHarness(try Self.appServices(), settings: Self.settings)
        harness.transport.answerAll(by: Self.rule("uploadMetrics", .status(404)))
        let id = try harness.post([Self.item], as: "crash")[0]
        try harness.run(for: .seconds(1))
        #expect(try harness.state(id) == .failed)
        harness.transport.answerAll(by: Self.rule())
        try harness.requeue(id)
        try harness.run(for: .seconds(10))
        #expect(try harness.state(id) == .delivered)
        #expect(sent("uploadMetrics", by: harness).count == 2 && sent("uploadCrashLog", by: harness).count == 1)
    }
}
