import Glibc
import PosternAPI
import PosternGatewayTestKit
import PosternTestKit
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
    ])
    func mistake_isNamed(file: String, expected: String) throws { #expect(try problems(in: file) == [expected]) }

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
