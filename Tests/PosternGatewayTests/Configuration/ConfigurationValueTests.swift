import Logging
import PosternAPI
import PosternCore
import PosternDelivery
import PosternGatewayTestKit
import PosternHTTP
import PosternStore
import PosternUpstream
import Testing

@testable import PosternGateway

@Suite struct ConfigurationValueTests {
    private let digest = String(repeating: "0a", count: 32)

    @Test func emptyFile_givesTheDefaults() throws {
        #expect(try configuration("{}") == GatewayConfiguration())
    }

    @Test func everySection_takesWhatTheFileSays() throws {
        let loaded = try configuration(
            """
            {"server": {"host": "::1", "port": 0, "workerThreads": 3, "maxConnections": 7,
                        "maxConnectionsPerAddress": 2, "maxBodyBytes": 2048, "maxBodyMemoryBytes": 77,
                        "maxMessagesPerRequest": 9,
                        "headerTimeoutSeconds": 1.5, "idleTimeoutSeconds": 2, "shutdownGraceSeconds": 0,
                        "hosts": ["gateway", "a.example"], "corsOrigins": ["https://app.example:8443"]},
             "auth": {"openMetrics": true,
                      "keys": [{"name": "app", "sha256": "\(digest)", "scopes": ["write", "read"],
                                "upstreams": ["post"], "requestsPerSecond": 2.5},
                               {"name": "ops", "sha256": "\(digest.uppercased().replacing("0A", with: "FF"))",
                                "scopes": ["admin"]}]},
             "outbox": {"path": "/var/lib/p.sqlite", "maxBytes": 5, "deliveredRetentionSeconds": 1,
                        "failedRetentionSeconds": 2, "idempotencyRetentionSeconds": 3, "encryptionKey": "\(digest)",
                        "previousEncryptionKeys": ["\(digest)"]},
             "delivery": {"maxInFlight": 8, "batchMaxMessages": 2, "batchMaxBytes": 4096, "batchMaxWaitSeconds": 0.001,
                          "retryBaseSeconds": 0.25, "retryMaxSeconds": 60, "expireAfterSeconds": 1e3,
                          "connectTimeoutSeconds": 0.5, "requestTimeoutSeconds": 9, "connectionMaxAgeSeconds": 90},
             "upstreams": {"post": {}},
             "log": {"level": "trace", "format": "json"}}
            """)

        var expected = GatewayConfiguration()
        expected.server.http.host = "::1"
        expected.server.http.port = 0
        expected.server.http.workerThreads = 3
        expected.server.http.maxConnections = 7
        expected.server.http.maxConnectionsPerAddress = 2
        expected.server.limits.maxBodyBytes = 2048
        expected.server.maxBodyMemoryBytes = 77
        expected.server.limits.maxMessagesPerRequest = 9
        expected.server.http.headerTimeout = .milliseconds(1500)
        expected.server.http.idleTimeout = .seconds(2)
        expected.server.shutdownGrace = .zero
        expected.server.hosts = ["gateway", "a.example"]
        expected.server.corsOrigins = ["https://app.example:8443"]
        expected.auth.openMetrics = true
        expected.auth.keys = [
            .init(
                name: "app", sha256: Array(repeating: 0x0A, count: 32), scopes: [.write, .read],
                upstreams: [try #require(UpstreamName("post"))], limits: .init(requestsPerSecond: 2.5)),
            .init(name: "ops", sha256: Array(repeating: 0xFF, count: 32), scopes: [.admin]),
        ]
        expected.outbox.path = "/var/lib/p.sqlite"
        expected.outbox.maxBytes = 5
        expected.outbox.deliveredRetention = .seconds(1)
        expected.outbox.failedRetention = .seconds(2)
        expected.outbox.idempotencyRetention = .seconds(3)
        expected.outbox.encryptionKeys.current = Array(repeating: 0x0A, count: 32)
        expected.outbox.encryptionKeys.previous = [Array(repeating: 0x0A, count: 32)]
        expected.delivery.maxInFlight = 8
        expected.delivery.batchMaxMessages = 2
        expected.delivery.batchMaxBytes = 4096
        expected.delivery.batchMaxWait = .milliseconds(1)
        expected.delivery.retry.base = .milliseconds(250)
        expected.delivery.retry.longest = .seconds(60)
        expected.delivery.expireAfter = .seconds(1000)
        expected.delivery.transfer.connectTimeout = .milliseconds(500)
        expected.delivery.transfer.requestTimeout = .seconds(9)
        expected.delivery.transfer.connectionMaxAge = .seconds(90)
        expected.upstreams = [
            .init(name: try #require(UpstreamName("post")), type: .post, delivery: expected.delivery)
        ]
        expected.log.level = .trace
        expected.log.format = .json
        #expect(loaded == expected)
    }

    @Test func upstream_inheritsDelivery_andKeepsItsOverrides() throws {
        let loaded = try configuration(
            """
            {"delivery": {"maxInFlight": 8, "retryMaxSeconds": 60},
             "upstreams": {"b": {"type": "post", "delivery": {"retryMaxSeconds": 7.5}}, "a": {"type": "post"}}}
            """)
        #expect(loaded.upstreams.map(\.name.description) == ["a", "b"])
        #expect(loaded.upstreams.map(\.delivery.maxInFlight) == [8, 8])
        #expect(loaded.upstreams.map(\.delivery.retry.longest) == [.seconds(60), .milliseconds(7500)])
    }

    @Test func upstream_takesQueueAndSettings_ofEveryForm() throws {
        let upstream = try #require(
            try configuration(
                """
                {"upstreams": {"push-dev": {
                  "type": "post", "enabled": false, "log": {"level": "trace"}, "queue": {"maxMessages": 3, "maxBytes": 4, "whenFull": "dropOldest"},
                  "url": "https://x", "mode": "safe", "dry": true, "sizeBytes": 9, "share": 1,
                  "headers": {"X-A": "1"}, "actions": ["a", "b"]}}}
                """
            ).upstreams.first)
        #expect(upstream.type == "post")
        #expect(!upstream.isEnabled)
        #expect(upstream.logLevel == .trace)
        #expect(upstream.queue.maxMessages == 3)
        #expect(upstream.queue.maxBytes == 4)
        #expect(upstream.queue.whenFull == .dropOldest)
        #expect(upstream.values["url"] == .text("https://x"))
        #expect(upstream.values["apiKey"] == .text(""))
        #expect(upstream.values["mode"] == .text("safe"))
        #expect(upstream.values["dry"] == .bool(true))
        #expect(upstream.values["sizeBytes"] == .integer(9))
        #expect(upstream.values["share"] == .number(1))
        #expect(upstream.values["headers"] == .strings(["X-A": "1"]))
        #expect(upstream.values["actions"] == .list(["a", "b"]))
    }

    @Test func load_makesTheEnabledUpstreams_byName() throws {
        let scratch = try ScratchConfiguration(
            """
            {"upstreams": {"post": {}, "trap": {"enabled": false}, "an": {"type": "post"}}}
            """)
        #expect(try scratch.loader().load().upstreams.map(\.name.description) == ["an", "post"])
    }

    @Test func conflict_ofValidSettings_isReported() throws {
        #expect(
            try problems(in: #"{"upstreams": {"post": {"sizeBytes": 1, "dry": true}}}"#)
                == ["upstreams.post.sizeBytes is 1; must exceed 1 when dry"])
        #expect(
            try problems(in: #"{"upstreams": {"post": {"sizeBytes": 1, "dry": true, "url": ""}}}"#)
                == [#"upstreams.post.url is ""; expected an http or https URL"#])
    }

    @Test func simulatedUpstream_isAtItsSimulator_withCredentialsItAccepts() throws {
        let scratch = try ScratchConfiguration(
            #"{"upstreams": {"post": {"apiKey": ""}, "push": {"type": "post", "apiKey": "own"}}}"#)
        var loader = scratch.loader()
        loader.simulators = ["post": "http://127.0.0.1:1"]
        let settings = try loader.load().upstreams.compactMap { ($0 as? PostUpstream)?.settings }
        #expect(settings.map(\.url) == ["http://127.0.0.1:1", "http://127.0.0.1:1"])
        #expect(settings.map(\.apiKey) == ["simulated-key", "own"])
    }

    @Test(arguments: ["", ScratchConfiguration.encryption + ", "])
    func simulatedRun_encryptsWithItsOwnKey_unlessOneIsConfigured(configured: String) throws {
        let scratch = try ScratchConfiguration("{\(configured)\"upstreams\": {\"vault\": {}}}")
        var loader = scratch.loader(types: [.vault])
        loader.simulatedKey = Array(repeating: 7, count: 32)
        let expected = [UInt8](repeating: configured.isEmpty ? 7 : 0x0A, count: 32)
        #expect(try loader.load().configuration.outbox.encryptionKeys.current == expected)
    }

    @Test(arguments: ConfigurationSchema.fixed.indices)
    func number_isTakenAtTheEdgesOfItsRange_andRefusedBeyond(section: Int) throws {
        let section = ConfigurationSchema.fixed[section]
        for setting in section.settings {
            let edges: (inside: [String], outside: [String])
            switch setting.kind {
            case .integer(let range):
                edges = (
                    ["\(range.lowerBound)", "\(range.upperBound)"],
                    ["\(range.lowerBound - 1)", "\(range.upperBound + 1)"]
                )
            case .number(let range):
                edges = (
                    [numberText(range.lowerBound), numberText(range.upperBound)],
                    [numberText(range.lowerBound.nextDown), numberText(range.upperBound.nextUp)]
                )
            case .text, .url, .choice, .bool, .strings, .objects, .records, .list, .integers: continue
            }
            let path = section.path + setting.path
            for edge in edges.inside {
                #expect(try setting.value(of: .init(content: .json(.number(edge)), origin: nil)) == setting.parse(edge))
            }
            for beyond in edges.outside {
                let file = path.reversed().reduce(beyond) { "{\"\($1)\": \($0)}" }
                #expect(
                    try problems(in: file).contains("\(keyPath(path)) is \(beyond); allowed \(setting.allowed)"))
            }
        }
    }
}

extension Setting {
    /// What a number in its range stands for.
    fileprivate func parse(_ spelling: String) throws -> SettingValue {
        if case .integer = kind { return .integer(try #require(Int64(spelling))) }
        return .number(try #require(Double(spelling)))
    }
}
