import PosternCore
import PosternTestKit
import Testing

@testable import AppServicesAdapter

/// Section 4.11: metrics are sent once.
@Suite struct AppServicesMonitoringTests {
    private typealias Desk = AppServicesDesk
    private static let configuration = Desk.response(
        200, #"{"instaOpsApplicationId":21493,"orgName":"acme","appName":"campus-dev"}"#)
    private static let sent = Desk.response(200, #"{"message":"successfully sent"}"#)
    private static let item = #"{"sessionMetrics":{"appId":"1"}}"#

    private func desk(_ others: [String: SettingValue] = [:]) throws -> Desk {
        try Desk(["monitoringEnabled": .bool(true)].merging(others) { $1 })
    }

    private static func usual(_ request: UpstreamRequest) -> UpstreamResponse {
        request.step == "fetch_configuration" ? configuration : sent
    }

    /// Fails the next request of the message without an answer.
    private func fail(_ id: MessageID, mayHaveArrived: Bool, _ desk: inout Desk) throws -> Judgement? {
        guard case .send(let request, _) = try desk.plan(id), let message = desk.messages[id] else { return nil }
        let failure = TransferFailure(.unreachable, mayHaveArrived: mayHaveArrived, detail: "as the test wants it")
        let batch = Batch(id: BatchID(rawValue: 1), messages: [message], request: request)
        let judgement = desk.upstream.judge(failure, to: batch, in: desk.context)
        desk.state.apply(try desk.upstream.changes(after: .failure(failure), to: batch, in: desk.context))
        desk.lose(id)
        return judgement
    }

    @Test func configuration_isAskedForOnceADay() throws {
        var desk = try desk()
        let both = ["fetch_configuration", "upload_metrics"]
        #expect(try desk.steps(try desk.post("metrics", Self.item), answer: Self.usual) == both)
        #expect(try desk.steps(try desk.post("metrics", Self.item), answer: Self.usual) == ["upload_metrics"])
        desk.now = desk.now + .seconds(86400)
        #expect(try desk.steps(try desk.post("metrics", Self.item), answer: Self.usual) == both)
    }

    @Test func upload_isRepeated_onlyWhenItSurelyDidNotArrive() throws {
        var desk = try desk()
        _ = try desk.steps(try desk.post("metrics", Self.item), answer: Self.usual)
        let id = try desk.post("metrics", Self.item)
        #expect(try fail(id, mayHaveArrived: false, &desk)?.verdict == .retry(after: nil))
        #expect(try desk.steps(id, answer: Self.usual) == ["upload_metrics"])
        let other = try desk.post("metrics", Self.item)
        guard case .reject = try fail(other, mayHaveArrived: true, &desk)?.verdict else { return #expect(Bool(false)) }
    }

    @Test func upload_thatMayHaveArrivedInAFormerRun_isDropped() throws {
        var desk = try desk()
        _ = try desk.steps(try desk.post("metrics", Self.item), answer: Self.usual)
        let id = try desk.post("metrics", Self.item)
        desk.lose(id)
        #expect(try desk.steps(id, answer: Self.usual) == [])
        #expect(desk.ended[id]?.state == .dropped)
    }

    @Test func configurationThatFailed_isAskedForAgain_andMetricsFollow() throws {
        var desk = try desk()
        let id = try desk.post("metrics", Self.item)
        #expect(try desk.steps(id) { _ in Desk.response(503, "") } == ["fetch_configuration"])
        #expect(try fail(id, mayHaveArrived: true, &desk) == nil, "a question may be asked twice")
        #expect(try desk.steps(id, answer: Self.usual) == ["fetch_configuration", "upload_metrics"])
        #expect(desk.ended[id]?.state == .delivered)
    }

    @Test(arguments: [
        (404, #"{"error":"entity_not_found"}"#), (200, "{}"),
        (200, #"{"instaOpsApplicationId":1,"orgName":"o","appName":"a","monitoringDisabled":true}"#),
    ])
    func applicationWithoutMonitoring_refusesMetrics(status: Int, body: String) throws {
        var desk = try desk()
        let id = try desk.post("metrics", Self.item)
        #expect(try desk.steps(id) { _ in Desk.response(status, body) } == ["fetch_configuration"])
        #expect(desk.ended[id]?.state == .failed)
    }

    @Test func refusedUpload_isNotRepeated() throws {
        for answer in [Desk.response(500, ""), Desk.response(200, "{}"), Desk.response(429, "")] {
            var desk = try desk()
            let id = try desk.post("metrics", Self.item)
            _ = try desk.steps(id) { $0.step == "upload_metrics" ? answer : Self.configuration }
            #expect(desk.ended[id]?.state == .failed)
        }
    }

    @Test func longTexts_areCut_andValuesAreStrings() throws {
        var desk = try desk(["customUploadUrl": .text("http://127.0.0.1:9/up")])
        let logs = (0..<101).map { #"{"logMessage":"\#(String(repeating: "m", count: 250))","timeStamp":\#($0)}"# }
        let text =
            #"{"sessionMetrics":{"appId":7,"none":null},"metrics":[{"url":"\#(String(repeating: "u", count: 300))"}],"#
            + #""logs":[\#(logs.joined(separator: ","))]}"#
        let requests = try desk.run(try desk.post("metrics", text), answer: Self.usual)
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
        var desk = try Desk()
        #expect(throws: InvalidPayload.self) { try desk.post("metrics", Self.item) }
    }
}
