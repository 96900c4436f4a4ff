import PosternCore
import PosternDelivery
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI

/// `POST /v1/upstreams/{name}/probe` (design, section 3.2). `ProbeTests` of the binary tries the types.
@Suite struct UpstreamProbeTests {
    private static let path = "/v1/upstreams/picky/probe"

    private func setup() -> Setup {
        var setup = Setup()
        setup.upstreams = [PickyUpstream("picky", tokenSource: TestTokens()), PlainUpstream("plain")]
        return setup
    }

    @Test(arguments: [(200, "ok"), (401, "unauthorized"), (404, "misconfigured"), (503, "failed")])
    func probe_fetchesAToken_andSaysWhatItFound(status: Int, outcome: String) throws {
        var setup = setup()
        setup.results = [.status(status)]
        try withPausedGateway(setup) { gateway in
            let answer = try gateway.client.post(Self.path)
            #expect(answer.status == 200)
            #expect(answer.json.keys == ["upstream", "outcome", "status", "durationMs", "detail"])
            #expect(answer.json["outcome"].string == outcome && answer.json["status"].int == status, "\(answer.text)")
            #expect(gateway.transport.requests.map(\.url) == ["http://tokens.test/"])
            #expect(try gateway.upstream()["token"]["valid"].bool != true, "the token is the delivery's")
            #expect(try eventually { try gateway.upstream()["health"].string == "paused" })
        }
    }

    @Test func probeOfADeadHost_isUnreachable() throws {
        var setup = setup()
        setup.results = [
            .failure(
                TransferFailure(.unreachable, mayHaveArrived: false, detail: "no route to \(PickyUpstream.secret)"))
        ]
        try withPausedGateway(setup) { gateway in
            let report = try gateway.client.post(Self.path).json
            #expect(report["outcome"].string == "unreachable" && !report["status"].isThere)
            #expect(report["detail"].string == "no route to ***")
        }
    }

    @Test func probeThatLacksAThread_findsNothing() throws {
        var setup = setup()
        setup.results = [
            .failure(
                TransferFailure(
                    .lackedResources, mayHaveArrived: false, detail: "no thread for \(PickyUpstream.secret)"))
        ]
        try withPausedGateway(setup) { gateway in
            let refusal = try gateway.client.post(Self.path)
            #expect(refusal.status == 503 && refusal.header("Retry-After") == "5")
            #expect(refusal.json["type"].string == "urn:postern:problem:overloaded")
            #expect(refusal.json["detail"].string == "Nothing was sent: no thread for ***.")
        }
    }

    private static let connected = TransferResult.success(UpstreamResponse(status: 0))

    @Test func probeWithoutARequest_onlyConnects_andSaysSo() throws {
        var setup = Setup()
        setup.results = [
            Self.connected,
            .failure(
                TransferFailure(.timeout, mayHaveArrived: false, detail: "TLS: timed out, \(PickyUpstream.secret)")),
        ]
        try withPausedGateway(setup) { gateway in
            let reached = try gateway.client.post(Self.path).json
            #expect(reached["outcome"].string == "ok" && !reached["status"].isThere, "\(reached)")
            #expect(reached["detail"].string?.hasPrefix("connected by TCP, and sent nothing") == true)
            let failed = try gateway.client.post(Self.path).json
            #expect(failed["outcome"].string == "unreachable" && !failed["status"].isThere, "\(failed)")
            #expect(failed["detail"].string == "TLS: timed out, ***")
            let requests = gateway.transport.requests
            #expect(requests.count == 2 && requests.allSatisfy { $0.onlyConnects && $0.url == "http://picky.test/" })
        }
    }

    /// A connection proves neither the credentials nor that requests are answered, and a failed one costs nothing.
    @Test func probe_endsNoWait_andBeginsNone() throws {
        try withGateway(Setup()) { gateway in
            gateway.transport.answerAll { $0.onlyConnects ? Self.connected : .status(403) }
            let id = try gateway.accept()
            try gateway.waitFor("credentials", of: id)
            #expect(try gateway.client.post(Self.path).json["outcome"].string == "ok")
            #expect(try gateway.upstream()["health"].string == "unauthorized")
            #expect(gateway.transport.requests.map(\.onlyConnects) == [false, true])
        }
        try withGateway(Setup()) { gateway in
            gateway.transport.answerAll { $0.onlyConnects ? .refusedConnection : .status(200) }
            for _ in 0..<6 { #expect(try gateway.client.post(Self.path).json["outcome"].string == "unreachable") }
            #expect(try gateway.upstream()["health"].string == "up")
            try gateway.waitForState("delivered", of: try gateway.accept())
        }
    }

    @Test func probeOfAnUpstreamWithoutItsSettings_namesThem_andSendsNothing() throws {
        var setup = Setup()
        setup.upstreams = [BareUpstream()]
        try withPausedGateway(setup) { gateway in
            let report = try gateway.client.post("/v1/upstreams/bare/probe").json
            #expect(report["outcome"].string == "misconfigured")
            #expect(report["detail"].string?.contains("clientId, clientSecret") == true)
            #expect(gateway.transport.requests.isEmpty)
        }
    }

    private struct BareUpstream: PlainAtHeart, TokenUpstream, SettingsHoldingUpstream {
        let plain = PlainUpstream("bare")
        let tokenSource: (any TokenSource)? = TestTokens()
        let address = ""
        let missingSettings = ["clientId", "clientSecret"]
        let secrets: [String] = []
    }

    /// It waits for its response for as long as it likes; meanwhile the upstream gets its messages, and its token.
    @Test func openProbe_delaysNoMessage_andIsAbortedIfItsCallerHangsUp() throws {
        try withGateway(setup()) { gateway in
            do {
                let client = try HTTPClient(port: gateway.port)
                client.sendRequest("POST", Self.path, [], headers: [])
                try gateway.waitForOpenRequest()
                gateway.transport.answerAll { _ in .status(200) }
                try gateway.waitForState("delivered", of: try gateway.accept())
                #expect(gateway.transport.requests.map(\.url).filter { $0 == "http://tokens.test/" }.count == 2)
                #expect(gateway.transport.openRequests.count == 1)
            }
            #expect(eventually { gateway.transport.openRequests.isEmpty })
        }
    }
}
