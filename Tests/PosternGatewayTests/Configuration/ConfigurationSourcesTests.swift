import Foundation
import Glibc
import PosternCore
import PosternDelivery
import PosternGatewayTestKit
import PosternHTTP
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternGateway

@Suite struct ConfigurationSourcesTests {
    private let file = """
        {"server": {"port": 1}, "outbox": {"maxBytes": 1}, "upstreams": {"push-dev": {"type": "post", "apiKey": "file"}}}
        """

    @Test func environment_winsOverSecrets_whichWinOverTheFile() throws {
        let scratch = try ScratchConfiguration(
            file, secrets: ["server-port": "2\n", "outbox-maxBytes": "2", "upstreams-push-dev-apiKey": " secret \n"])
        let loaded = try scratch.load(environment: ["POSTERN_SERVER_PORT": "3"])
        #expect(loaded.server.http.port == 3)
        #expect(loaded.outbox.maxBytes == 2)
        #expect(loaded.upstreams[0].values["apiKey"] == .text("secret"))
        #expect(
            try scratch.load(environment: ["POSTERN_UPSTREAMS_PUSH_DEV_API_KEY": "env"])
                .upstreams[0].values["apiKey"] == .text("env"))
    }

    @Test(arguments: [
        (["upstreams", "seer", "clientSecret"], "POSTERN_UPSTREAMS_SEER_CLIENT_SECRET"),
        (["upstreams", "push-dev", "apiKey"], "POSTERN_UPSTREAMS_PUSH_DEV_API_KEY"),
        (["upstreams", "curio", "serverURL"], "POSTERN_UPSTREAMS_CURIO_SERVER_URL"),
        (["server", "tls", "clientCAFile"], "POSTERN_SERVER_TLS_CLIENT_CA_FILE"),
        (["delivery", "batchMaxWaitSeconds"], "POSTERN_DELIVERY_BATCH_MAX_WAIT_SECONDS"),
        (["upstreams", "appservices", "apiV2URL"], "POSTERN_UPSTREAMS_APPSERVICES_API_V2URL"),
    ])
    func environmentName_isThePathInCapitals(path: [String], expected: String) {
        #expect(environmentName(of: path) == expected)
    }

    @Test func variables_giveValuesOfEveryForm() throws {
        let upstream = try configuration(
            #"{"upstreams": {"p": {"mode": "fast"}}}"#,
            environment: [
                "POSTERN_UPSTREAMS_P_TYPE": "post", "POSTERN_UPSTREAMS_P_MODE": "safe",
                "POSTERN_UPSTREAMS_P_DRY": "true", "POSTERN_UPSTREAMS_P_SIZE_BYTES": "7",
                "POSTERN_UPSTREAMS_P_SHARE": "0.25", "POSTERN_UPSTREAMS_P_HEADERS": #"{"X-A": "1"}"#,
                "POSTERN_UPSTREAMS_P_ACTIONS": "a, b", "POSTERN_UPSTREAMS_P_DELIVERY_RETRY_BASE_SECONDS": "0.5",
                "POSTERN_UPSTREAMS_P_QUEUE_WHEN_FULL": "dropOldest", "POSTERN_UPSTREAMS_P_ENABLED": "false",
            ]
        ).upstreams[0]
        #expect(upstream.values["mode"] == .text("safe"))
        #expect(upstream.values["dry"] == .bool(true))
        #expect(upstream.values["sizeBytes"] == .integer(7))
        #expect(upstream.values["share"] == .number(0.25))
        #expect(upstream.values["headers"] == .strings(["X-A": "1"]))
        #expect(upstream.values["actions"] == .list(["a", "b"]))
        #expect(upstream.delivery.retry.base == .milliseconds(500))
        #expect(upstream.queue.whenFull == .dropOldest)
        #expect(!upstream.isEnabled)
    }

    @Test(arguments: [
        (
            "POSTERN_SERVER_PORT", "x",
            #"server.port is "x" (from POSTERN_SERVER_PORT); expected a whole number, 0 to 65535"#
        ),
        (
            "POSTERN_SERVER_PORT", "",
            #"server.port is "" (from POSTERN_SERVER_PORT); expected a whole number, 0 to 65535"#
        ),
        ("POSTERN_SERVER_PORT", "70000", "server.port is 70000 (from POSTERN_SERVER_PORT); allowed 0 to 65535"),
        (
            "POSTERN_DELIVERY_RETRY_MAX_SECONDS", "inf",
            #"delivery.retryMaxSeconds is "inf" (from POSTERN_DELIVERY_RETRY_MAX_SECONDS); expected a number of seconds, 0.01 to 86400"#
        ),
        (
            "POSTERN_DELIVERY_RETRY_BASE_SECONDS", "301",
            "delivery.retryBaseSeconds is 301 (from POSTERN_DELIVERY_RETRY_BASE_SECONDS); must not exceed "
                + "delivery.retryMaxSeconds, which is 300"
        ),
        (
            "POSTERN_AUTH_ALLOW_ANONYMOUS", "1",
            #"auth.allowAnonymous is "1" (from POSTERN_AUTH_ALLOW_ANONYMOUS); expected true or false"#
        ),
        (
            "POSTERN_OUTBOX_ENCRYPTION_KEY", "hunter2",
            "outbox.encryptionKey is *** (from POSTERN_OUTBOX_ENCRYPTION_KEY); "
                + "expected 64 hexadecimal digits (openssl rand -hex 32), or nothing"
        ),
        (
            "POSTERN_UPSTREAMS_PUSH_DEV_HEADERS", "A=1",
            #"upstreams.push-dev.headers is "A=1" (from POSTERN_UPSTREAMS_PUSH_DEV_HEADERS); "#
                + "expected an object of texts"
        ),
        ("POSTERN_SERVER_POTR", "1", "POSTERN_SERVER_POTR matches no setting; did you mean POSTERN_SERVER_PORT?"),
        ("POSTERN_COLOUR", "1", "POSTERN_COLOUR matches no setting; correct its name, or remove it"),
        (
            "POSTERN_AUTH_KEYS", "[]",
            "POSTERN_AUTH_KEYS matches no setting; auth.keys can only be set in the file"
        ),
        (
            "POSTERN_UPSTREAMS_ELSEWHERE_CLIENT_SECRET", "s",
            "POSTERN_UPSTREAMS_ELSEWHERE_CLIENT_SECRET matches no setting; check that its upstream is in the file"
        ),
    ])
    func variable_isRefused_withItsName(name: String, value: String, expected: String) throws {
        #expect(try problems(in: file, environment: [name: value]) == [expected])
    }

    @Test func foreignVariables_areIgnored() throws {
        let environment = [
            "PATH": "/bin", "POSTERN_SECRETS_DIR": "/run/secrets", "POSTERN_SERVICE_HOST": "10.0.0.1",
            "POSTERN_SERVICE_PORT": "8080", "POSTERN_SERVICE_PORT_HTTP": "8080", "POSTERN_PORT": "tcp://10.0.0.1:8080",
            "POSTERN_PORT_8080_TCP": "tcp://10.0.0.1:8080", "POSTERN_PORT_8080_TCP_ADDR": "10.0.0.1",
        ]
        #expect(try configuration("{}", environment: environment) == GatewayConfiguration())
    }

    /// As Kubernetes sets them for services called `postern-server` and `postern-server-admin`.
    @Test func serviceLink_isIgnored_alsoWithTheNameOfASetting() throws {
        let environment = [
            "POSTERN_SERVER_PORT": "tcp://10.0.0.1:8080", "POSTERN_SERVER_ADMIN_PORT": "udp://[fd00::1]:8080",
            "POSTERN_SERVER_SERVICE_HOST": "10.0.0.1", "POSTERN_SERVER_SERVICE_PORT": "8080",
            "POSTERN_SERVER_PORT_8080_TCP": "tcp://10.0.0.1:8080", "POSTERN_SERVER_PORT_8080_TCP_PORT": "8080",
        ]
        let scratch = try ScratchConfiguration(#"{"server": {"port": 7}}"#)
        #expect(try scratch.load(environment: environment).server.http.port == 7)
        // Without the port of a service, it is a mistake.
        #expect(
            try problems(in: "{}", environment: ["POSTERN_SERVER_PORT": "tcp://10.0.0.1"]) == [
                #"server.port is "tcp://10.0.0.1" (from POSTERN_SERVER_PORT); expected a whole number, 0 to 65535"#
            ])
    }

    @Test func variableForTwoSettings_isRefused() throws {
        let type = UpstreamType(OddUpstream.self)
        let scratch = try ScratchConfiguration(
            #"{"upstreams": {"a": {"type": "odd"}, "a-delivery": {"type": "odd"}}}"#)
        #expect(
            scratch.problems(environment: ["POSTERN_UPSTREAMS_A_DELIVERY_MAX_IN_FLIGHT": "1"], types: [type]) == [
                "POSTERN_UPSTREAMS_A_DELIVERY_MAX_IN_FLIGHT fits upstreams.a-delivery.maxInFlight and "
                    + "upstreams.a.delivery.maxInFlight; rename one of these upstreams"
            ])
    }

    @Test func secretFile_isRefused_withItsPathButNotItsContents() throws {
        let scratch = try ScratchConfiguration("{}", secrets: ["outbox-encryptionKey": "hunter2"])
        #expect(
            scratch.problems() == [
                "outbox.encryptionKey is *** (from DIR/secrets/outbox-encryptionKey); "
                    + "expected 64 hexadecimal digits (openssl rand -hex 32), or nothing"
            ])
    }

    @Test func foreignSecretFiles_areIgnored() throws {
        let scratch = try ScratchConfiguration(
            "{}", secrets: ["database-password": "x", "server-unknown": "x", "README": "x"])
        try FileManager.default.createDirectory(
            atPath: scratch.directory + "/secrets/other", withIntermediateDirectories: false)
        #expect(try scratch.load() == GatewayConfiguration())
    }

    /// As Kubernetes mounts them.
    @Test func secretFile_isRead_throughASymbolicLink() throws {
        let scratch = try ScratchConfiguration()
        try scratch.write("9999", to: "elsewhere")
        try FileManager.default.createSymbolicLink(
            atPath: scratch.directory + "/secrets/server-port", withDestinationPath: scratch.directory + "/elsewhere")
        #expect(try scratch.load().server.http.port == 9999)
    }

    @Test func secretFile_isRefused_whenItCannotBeRead() throws {
        let scratch = try ScratchConfiguration()
        try FileManager.default.createSymbolicLink(
            atPath: scratch.directory + "/secrets/server-port", withDestinationPath: "/no/such/file")
        #expect(scratch.problems() == ["DIR/secrets/server-port cannot be read: No such file or directory"])
    }

    @Test func secretFile_isRefused_whenItIsAPipe_orEndless() throws {
        let scratch = try ScratchConfiguration()
        let file = scratch.directory + "/secrets/server-port"
        try #require(mkfifo(file, 0o600) == 0)
        #expect(scratch.problems() == ["DIR/secrets/server-port is a pipe; expected a regular file"])
        try FileManager.default.removeItem(atPath: file)
        try FileManager.default.createSymbolicLink(atPath: file, withDestinationPath: "/dev/zero")
        #expect(
            scratch.problems() == [
                "DIR/secrets/server-port is larger than 65536 bytes; check that it is the right file"
            ])
    }

    @Test func secretsDirectory_isRefused_whenItIsMissing() throws {
        let scratch = try ScratchConfiguration()
        let loader = ConfigurationLoader(
            types: [], environment: [:], file: scratch.file, secretsDirectory: "/no/such/directory")
        let expected = ConfigurationProblems([
            .init("/no/such/directory", "cannot be listed: No such file or directory; see POSTERN_SECRETS_DIR")
        ])
        #expect(throws: expected) { try loader.load() }
    }
}

/// Has a setting whose variable may be that of another upstream's `delivery`.
private struct OddUpstream: SilentUpstream {
    struct Settings: SettingsSection {
        var limit = 0
        static let fields: [SettingField<Self>] = [.integer("maxInFlight", 0...1, \.limit, "Meets `delivery`.")]
    }

    static let typeName = "odd"
    let name: UpstreamName
    let settings: Settings

    init(_ name: UpstreamName, _ settings: Settings) {
        self.name = name
        self.settings = settings
    }
}
