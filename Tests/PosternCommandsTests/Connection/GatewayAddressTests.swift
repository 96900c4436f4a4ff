import Foundation
import PosternCore
import PosternGatewayTestKit
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternCommands

@Suite struct GatewayAddressTests {
    private let folder = ScratchFolder()

    private func address(_ text: String, _ choice: GatewayAddress.Choice = .init()) throws -> GatewayAddress {
        let scratch = try ScratchConfiguration(text)
        defer { withExtendedLifetime(scratch) {} }
        return try GatewayAddress(scratch.loader(), choice)
    }

    private func server(_ members: String) -> String {
        #"{"server": {\#(members)}, "auth": {"allowAnonymous": true}}"#
    }

    @Test(arguments: [
        (#""port": 81"#, "http://127.0.0.1:81"), (#""host": "0.0.0.0""#, "http://127.0.0.1:8080"),
        (#""host": "::", "port": 8443"#, "http://[::1]:8443"), (#""host": "10.1.2.3""#, "http://10.1.2.3:8080"),
        (#""port": 81, "admin": {"host": "0.0.0.0", "port": 82}"#, "http://127.0.0.1:82"),
    ])
    func address_isThatOfTheConfiguration_onLoopbackIfPossible(members: String, url: String) throws {
        #expect(try address(server(members)).url == url)
    }

    @Test func certificateOfTheConfiguration_isTheOnlyOneAccepted() throws {
        let own = try TestCertificate("own", in: folder)
        let tls = server(#""tls": {"certificateFile": "\#(own.certificate)", "keyFile": "\#(own.key)"}"#)
        let found = try address(tls)
        #expect(found.url == "https://127.0.0.1:8080")
        guard case .publicKey(let digest) = found.trust else {
            Issue.record("\(found.trust)")
            return
        }
        #expect(Data(base64Encoded: digest)?.count == 32)
        #expect(try address(tls, .init(url: "https://a:1")).trust == found.trust)
        #expect(try address(tls, .init(isInsecure: true)).trust == .any)
        #expect(try address(tls, .init(caFile: own.certificate)).trust == .authorities(file: own.certificate))
    }

    @Test func authoritiesThatCannotBeUsed_areNamed() throws {
        let failure = try #require(throws: CommandFailure.self) {
            try GatewayAddress(.init(caFile: "/etc/hostname"), orAt: "https://a")
        }
        #expect(failure.description.hasPrefix("--ca cannot be used: /etc/hostname holds no valid certificate"))
    }

    /// The gateway may be running with an earlier version of the file.
    @Test func problemsOfOtherSettings_areNoneOfTheAddress() throws {
        #expect(try address(#"{"server": {"port": 81}, "delivery": {"maxInFlight": 0}}"#).url == "http://127.0.0.1:81")
        let failure = try #require(throws: CommandFailure.self) { try address(#"{"server": {"port": -1}}"#) }
        #expect(failure.exitCode == 78)
        #expect(throws: CommandFailure.self) { try address("{") }
    }

    @Test func portOfTheSystem_hasToBeSaid() throws {
        let failure = try #require(throws: CommandFailure.self) { try address(server(#""port": 0"#)) }
        #expect(failure.exitCode == 1 && failure.description.contains("--url"))
        #expect(try address(server(#""port": 0"#), .init(url: "http://a:1")).url == "http://a:1")
    }
}
