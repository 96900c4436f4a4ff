import InMemoryLogging
import Logging
import PosternCommands
import PosternCore
import PosternDelivery
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing
import WebhookAdapter

@testable import PosternAPI

/// A secret in the query of a URL is shown nowhere, also if the receiver repeats it.
@Suite struct SecretQueryTests {
    private static let secret = "T0P/Secret=="

    /// The receiver accepts one message, refuses the next because of its payload, and then the credentials.
    private static let answers: [TransferResult] = {
        let body = """
            POST /hook?v=1&sig=T0P%2FSecret%3D%3D: {"sig":"T0P\\/Secret==","hex":"T0P%2fSecret=="}
            """
        return [.status(200, body), .status(400, body), .status(403, body)]
    }()

    private static func upstream(_ values: [String: SettingValue]) throws -> any Upstream {
        try UpstreamType.webhook.make(
            #require(UpstreamName("hook")), ["url": .text("http://h/hook")].merging(values) { $1 })
    }

    @Test(arguments: [
        ["url": SettingValue.text("http://h/hook?v=1&sig=T0P%2FSecret%3D%3D")],
        ["kinds": .objects(["event": ["path": "?v=1&sig=T0P/Secret=="]])],
        ["kinds": .objects(["event": ["path": "/x?T0P%2FSecret%3D%3D"]])], ["query": .strings(["sig": secret])],
    ])
    func valueOfAQuery_isShownNowhere(settings: [String: SettingValue]) throws {
        for logsAnswers in [false, true] {
            var log = InMemoryLogHandler()
            log.logLevel = .trace
            var setup = Setup(upstreams: [try Self.upstream(settings)], results: Self.answers)
            (setup.log, setup.time) = (log, ManualTime())
            setup.delivery.logsAnswers = logsAnswers
            try withGateway(setup) { gateway in
                gateway.transport.answerAll { request in
                    let detail = "TLS: \(Self.secret) is not a name"
                    return request.onlyConnects
                        ? .failure(TransferFailure(.unreachable, mayHaveArrived: false, detail: detail)) : .status(403)
                }
                let ids = try ["delivered", "failed"].map { state in
                    let id = try gateway.accept("/v1/hook/event", "{}")
                    try gateway.wait(for: "state", state, of: id)
                    return id
                }
                let held = try gateway.accept("/v1/hook/event", "{}")
                try gateway.waitFor("credentials", of: held)
                try expectSecrecy(gateway, ids + [held])
                try expectSecrecy(commandLine: gateway, ids + [held])
            }
            let lines = log.entries.map { "\($0.message) \($0.metadata)" }
            #expect(lines.contains { $0.hasPrefix("message failed permanently") })
            for line in lines { expectSecrecy(line, "the log") }
        }
    }

    private func expectSecrecy(_ text: String, _ place: String) {
        for form in ["T0P", "0P/S", "Secret", "ecret%3"] { #expect(!text.contains(form), "\(place): \(text)") }
    }

    private func expectSecrecy(_ gateway: TestGateway, _ ids: [String]) throws {
        func text(_ path: String) throws -> String {
            let answer = try gateway.client.get(path)
            #expect(answer.status == 200, "\(path)")
            expectSecrecy(answer.text, path)
            return answer.text
        }
        for id in ids { #expect(try text("/v1/messages/\(id)?include=attempts,payload").contains(#""attemptLog""#)) }
        #expect(try text("/v1/messages?include=attempts").contains("***"))
        #expect(try text("/v1/upstreams").contains(#""endpoints":[{"name":"POST http://h/"#))
        #expect(try text("/v1/upstreams/hook").contains("***"))
        #expect(try text("/v1/upstreams/hook/failures").contains("***"))
        #expect(try text("/v1/upstreams/hook/lanes").contains("lanes"))
        #expect(try text("/v1/upstreams/hook/batches/2").contains(#""detail":"HTTP 400"#))
        #expect(try text("/metrics").contains("hook"))
        for path in ["/v1/hook/event?dryRun=true", "/v1/upstreams/hook/probe", "/v1/upstreams/hook/flush"] {
            let answer = try gateway.client.post(path, path.contains("dryRun") ? "{}" : "")
            #expect((200..<300).contains(answer.status), "\(path): \(answer.text)")
            expectSecrecy(answer.text, path)
            if path.contains("dryRun") { #expect(answer.text.contains("http://h/")) }
        }
    }

    private func expectSecrecy(commandLine gateway: TestGateway, _ ids: [String]) throws {
        let store = try OutboxInspection(
            StoreLocation(path: gateway.outbox.path), now: gateway.context.time.now)
        for asJSON in [false, true] {
            for id in ids { expectSecrecy(try store.show(id, payload: true, asJSON: asJSON), "show") }
            let list = try store.list(MessageFilter(), after: nil, limit: 9, asJSON: asJSON).text
            #expect(list.contains("HTTP 400") || list.contains("***"))
            expectSecrecy(list, "list")
            expectSecrecy(store.stats(asJSON: asJSON), "stats")
        }
        var lines: [String] = []
        try store.export(MessageFilter()) { lines.append($0) }
        #expect(lines.count == 3 && lines[1].contains("***"))
        for line in lines { expectSecrecy(line, "export") }
    }
}
