import Glibc
import PosternAPI
import PosternDelivery
import PosternGatewayTestKit
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternGateway

/// Settings of listeners, certificates and the keys that they stand for.
@Suite struct AccessSettingsTests {
    private static let open =
        "where others can reach it, but auth.keys is empty; add a key (postern keys new), listen on 127.0.0.1, or set "
        + "auth.allowAnonymous to true"

    @Test(arguments: [
        (#"{"server": {"admin": {"port": 9}}}"#, "server.admin.host is empty; server.admin.port needs it"),
        (
            #"{"server": {"admin": {"host": "127.0.0.1", "port": 8080}}}"#,
            "server.admin.port is 8080, as is server.port; the listeners need two ports"
        ),
        (#"{"server": {"admin": {"host": "0.0.0.0"}}}"#, "server.admin.host is \"0.0.0.0\", \(open)"),
        (
            #"{"auth": {"keys": [{"name": "a", "certificateName": "backend", "scopes": ["read"]}]}}"#,
            "auth.keys[0].certificateName needs server.tls.clientCAFile, which is empty"
        ),
        (
            #"{"upstreams": {"post": {"caFile": "/no/such.pem"}}}"#,
            #"upstreams.post.caFile is "/no/such.pem"; cannot read /no/such.pem: No such file or directory"#
        ),
        (
            #"{"upstreams": {"post": {"caFile": "/dev/zero"}}}"#,
            #"upstreams.post.caFile is "/dev/zero"; /dev/zero is not a regular file"#
        ),
        (
            #"{"upstreams": {"post": {"caFile": "/etc/hostname", "enabled": false}}}"#,
            "upstreams.post.caFile is \"/etc/hostname\"; /etc/hostname holds no valid certificate: No certificate was found."
        ),
        (
            #"{"upstreams": {"post": {"clientCertificateFile": "/no/such.pem"}}}"#,
            "upstreams.post.clientKeyFile is empty; upstreams.post.clientCertificateFile needs it"
        ),
        (
            #"{"upstreams": {"post": {"clientKeyFile": "/no/such.pem"}}}"#,
            "upstreams.post.clientCertificateFile is empty; upstreams.post.clientKeyFile needs it"
        ),
        (
            #"{"upstreams": {"post": {"clientCertificateFile": "/no/such.pem", "clientKeyFile": "/no/such.key"}}}"#,
            #"upstreams.post.clientCertificateFile is "/no/such.pem"; cannot read /no/such.pem: No such file or directory"#
        ),
        (
            #"{"upstreams": {"post": {"proxyUsername": "a"}}}"#,
            "upstreams.post.proxyURL is empty; upstreams.post.proxyUsername needs it"
        ),
        (
            #"{"upstreams": {"post": {"proxyURL": "http://a:1", "proxyPassword": "secret"}}}"#,
            "upstreams.post.proxyUsername is empty; upstreams.post.proxyPassword needs it"
        ),
        (
            #"{"upstreams": {"post": {"proxyURL": "http://a:1", "proxyUsername": "b", "proxyPassword": "sec\nret"}}}"#,
            "upstreams.post.proxyPassword is ***; must not contain a control character"
        ),
        (
            #"{"upstreams": {"post": {"resolve": ["api.example:443"]}}}"#,
            "upstreams.post.resolve is an array; expected a list of texts such as api.example:443:127.0.0.1"
        ),
    ])
    func mistake_isNamed(file: String, expected: String) throws { #expect(try problems(in: file) == [expected]) }

    /// A proxy has no usual port, and credentials in its URL would be shown with it.
    @Test(arguments: [
        "http://proxy", "https://proxy:1", "socks5://proxy:1", "http://proxy:1/a", "http://proxy:65536", "proxy:1",
    ])
    func proxyURL_isRefused(url: String) throws {
        #expect(
            try problems(in: #"{"upstreams": {"post": {"proxyURL": "\#(url)"}}}"#) == [
                #"upstreams.post.proxyURL is "\#(url)"; expected http://host:port, without user name and password, "#
                    + "which are proxyUsername and proxyPassword"
            ])
    }

    @Test func proxyURL_isNotShown_withACredentialInIt() throws {
        let found = try problems(in: #"{"upstreams": {"post": {"proxyURL": "http://user:secret@proxy:1"}}}"#)
        #expect(found.count == 1 && !found[0].contains("secret"), "\(found)")
    }

    @Test func clientCertificate_hasToFitItsKey_andAnExpiredOneCausesAWarning() throws {
        let folder = ScratchFolder()
        let authority = try TestAuthority("ours", in: folder)
        let (own, other) = (try authority.issue("own"), try authority.issue("other", days: -1))
        func found(_ certificate: String, _ key: String) throws -> ConfigurationLoader.CheckResult {
            let upstream = #"{"clientCertificateFile": "\#(certificate)", "clientKeyFile": "\#(key)"}"#
            let scratch = try ScratchConfiguration(#"{"upstreams": {"post": \#(upstream)}}"#)
            return scratch.loader().examine(triesToStart: false)
        }
        #expect(try found(own.certificate, own.key).problems.isEmpty)
        #expect(try found(own.certificate, own.key).warnings.map(\.path) == ["upstreams.post.apiKey"])
        #expect(try found(own.certificate, other.key).problems.map(\.path) == ["upstreams.post.clientCertificateFile"])
        let expired = try found(other.certificate, other.key)
        #expect(expired.problems.isEmpty)
        #expect(expired.warnings.map(\.path) == ["upstreams.post.apiKey", "upstreams.post.clientCertificateFile"])
        #expect(expired.warnings.last?.detail.contains("; the certificate expired at ") == true)
    }

    @Test func connection_isThatOfTransfers_exceptToASimulator() throws {
        let folder = ScratchFolder()
        let own = try TestAuthority("ours", in: folder).issue("own")
        let scratch = try ScratchConfiguration(
            """
            {"upstreams": {"post": {"clientCertificateFile": "\(own.certificate)", "clientKeyFile": "\(own.key)",
              "proxyURL": "http://proxy.example:3128", "proxyUsername": "me", "proxyPassword": "pass:word",
              "resolve": ["api.example:443:127.0.0.1", "api.example:80:[::1]"]}}}
            """)
        var loader = scratch.loader()
        let options = try #require(try loader.load().configuration.upstreams.first).deliverySettings.transfer
        #expect(options.clientCertificate == .init(certificateFile: own.certificate, keyFile: own.key))
        #expect(options.proxy == .init(url: "http://proxy.example:3128", username: "me", password: "pass:word"))
        #expect(options.resolve == ["api.example:443:127.0.0.1", "api.example:80:[::1]"])
        loader.simulators = ["post": "http://127.0.0.1:1"]
        let simulated = try #require(try loader.load().configuration.upstreams.first).deliverySettings.transfer
        #expect(simulated.clientCertificate == nil && simulated.proxy == nil && simulated.resolve.isEmpty)
    }

    @Test func pipeAndLargeFile_areRefused_asCertificates() throws {
        let folder = ScratchFolder()
        let (pipe, large) = (folder.file("pipe.pem"), folder.file("large.pem"))
        try #require(mkfifo(pipe, 0o600) == 0)
        try #require(close(creat(large, 0o600)) == 0 && truncate(large, 1_048_577) == 0)
        let tls = #"{"certificateFile": "\#(pipe)", "keyFile": "\#(large)"}"#
        // Long values are shortened.
        let (pipeShown, largeShown) = (ConfigurationNode.string(pipe).shown, ConfigurationNode.string(large).shown)
        #expect(
            try problems(in: #"{"server": {"tls": \#(tls)}, "upstreams": {"post": {"caFile": "\#(large)"}}}"#) == [
                "server.tls.certificateFile is \(pipeShown); the file is a pipe; expected a regular file",
                "server.tls.keyFile is \(largeShown); the file is larger than 1048576 bytes; "
                    + "check that it is the right file",
                "upstreams.post.caFile is \(largeShown); \(large) is larger than 1048576 bytes",
            ])
    }

    /// Two addresses may share a port number.
    @Test func adminListener_isOnIfItHasAHost() throws {
        let found = try configuration(#"{"server": {"admin": {"host": "::1", "port": 8080}}}"#).server.admin
        #expect(found.isOn && found.host == "::1" && found.port == 8080)
        #expect(try !configuration("{}").server.admin.isOn)
    }

    @Test func certificate_mayStandForAKey_withOrWithoutADigest() throws {
        let folder = ScratchFolder()
        let (own, ca) = (try TestCertificate("own", in: folder), try TestAuthority("ca", in: folder).certificate)
        let digest = String(repeating: "0a", count: 32)
        let tls = #"{"certificateFile": "\#(own.certificate)", "keyFile": "\#(own.key)", "clientCAFile": "\#(ca)"}"#
        func text(_ second: String) -> String {
            #"{"server": {"tls": \#(tls)}, "auth": {"keys": [{"name": "a", "certificateName": "x", "scopes": ["read"]}, "#
                + #"{"name": "b", "sha256": "\#(digest)", "certificateName": "\#(second)", "scopes": ["read"]}]}}"#
        }
        let keys = try configuration(text("y")).auth.keys
        #expect(keys.map(\.certificateName) == ["x", "y"])
        #expect(keys.map(\.sha256.count) == [0, 32])
        #expect(
            try problems(in: text("x")) == [
                "auth.keys[1].certificateName is that of auth.keys[0]; a certificate can belong to one key only"
            ])
    }
}
