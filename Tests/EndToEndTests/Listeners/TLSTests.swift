import Crypto
import Foundation
import Glibc
import Logging
import PosternCore
import PosternHTTP
import PosternTestKit
import PosternUpstream
import Synchronization
import Testing

extension EndToEnd {
    /// Certificates on both sides of the gateway, with the built binary.
    @Suite struct TLS {
        private let folder = ScratchFolder()

        private func entry(_ name: String, _ key: String, _ scopes: [String]) -> [String: Any] {
            ["name": name, "sha256": SHA256.hash(data: Array(key.utf8)).hexadecimal, "scopes": scopes]
        }

        private func settings(_ own: TestCertificate, port: UInt16 = 0) -> Settings {
            var settings = Settings()
            settings.server = [
                "port": port, "host": "0.0.0.0", "tls": ["certificateFile": own.certificate, "keyFile": own.key],
            ]
            settings.auth["keys"] = [entry("ops", "steer", ["read", "admin", "write"])]
            return settings
        }

        // MARK: The gateway's own certificate

        /// The port is not the usual one, and no authority knows the certificate, which has another name and has
        /// expired.
        @Test(.timeLimit(.minutes(10))) func commands_findAndTrustTheGatewayOfTheirConfiguration() async throws {
            let own = try TestAuthority("ours", in: folder).issue("own", names: "DNS:postern.example", days: -1)
            let directory = try GatewayDirectory(settings(own))
            let gateway = try await directory.start()
            try directory.configure(settings(own, port: gateway.port))
            let key = ["POSTERN_KEY": "steer"]

            let healthy = try await Binary.run(["healthcheck", "--config", directory.config])
            #expect(healthy.exitCode == 0, "\(healthy.errors)")
            let retry = ["outbox", "retry", "--upstream", "samsara", "--config", directory.config]
            let steered = try await Binary.run(retry, environment: key)
            #expect(steered.exitCode == 0, "\(steered.errors)")
            let cancel = ["outbox", "cancel", "--upstream", "samsara", "--yes", "--config", directory.config]
            let cancelled = try await Binary.run(cancel, environment: key)
            #expect(cancelled.exitCode == 0, "\(cancelled.errors)")

            let url = ["--url", "https://127.0.0.1:\(gateway.port)"]
            let stranger = try await Binary.run(["healthcheck"] + url)
            #expect(stranger.exitCode == 1 && stranger.errors.contains("certificate"), "\(stranger.errors)")
            let insecure = try await Binary.run(["healthcheck", "--insecure"] + url)
            #expect(insecure.exitCode == 0, "\(insecure.errors)")
            let both = try await Binary.run(["healthcheck", "--insecure", "--ca", own.certificate] + url)
            #expect(both.exitCode == 64)

            let other = try TestAuthority("others", in: folder).issue("other")
            try directory.configure(settings(other, port: gateway.port))
            let wrong = try await Binary.run(["healthcheck", "--config", directory.config])
            #expect(wrong.exitCode == 1 && wrong.errors.contains("does not respond"), "\(wrong.errors)")
            let refused = try await Binary.run(retry, environment: key)
            #expect(refused.exitCode == 75, "\(refused.errors)")
            try await gateway.stop()
        }

        /// A health check has no client certificate.
        @Test(.timeLimit(.minutes(10))) func commands_work_whereClientsNeedCertificates() async throws {
            let own = try TestCertificate("own", in: folder)
            let authority = try TestAuthority("authority", in: folder)
            let tls = ["certificateFile": own.certificate, "keyFile": own.key, "clientCAFile": authority.certificate]
            var settings = self.settings(own)
            settings.server["tls"] = tls
            let directory = try GatewayDirectory(settings)
            let gateway = try await directory.start()
            settings.server["port"] = gateway.port
            try directory.configure(settings)
            let healthy = try await Binary.run(["healthcheck", "--config", directory.config])
            #expect(healthy.exitCode == 0, "\(healthy.errors)")
            let client = try authority.issue("operator")
            let line = "GET /v1/upstreams HTTP/1.1\r\nHost: t\r\nConnection: close\r\n"
            let bearer = "Authorization: Bearer steer\r\n\r\n"
            let files = ["-cert", client.certificate, "-key", client.key]
            let (known, unknown) = (
                try openSSLClient(gateway.port, ["-quiet", "-ign_eof"] + files, sending: line + bearer),
                try openSSLClient(gateway.port, ["-quiet", "-ign_eof"], sending: line + bearer)
            )
            #expect(known.hasPrefix("HTTP/1.1 200") && unknown.hasPrefix("HTTP/1.1 403"))

            let both = folder.file("operator.pem")
            try
                (String(contentsOfFile: client.certificate, encoding: .utf8)
                + String(contentsOfFile: client.key, encoding: .utf8))
                .write(toFile: both, atomically: true, encoding: .utf8)
            let retry = ["outbox", "retry", "--upstream", "samsara", "--config", directory.config]
            let refused = try await Binary.run(retry, environment: ["POSTERN_KEY": "steer"])
            #expect(refused.exitCode == 1 && refused.errors.contains("client certificate"), "\(refused.errors)")
            let steered = try await Binary.run(retry + ["--cert", both], environment: ["POSTERN_KEY": "steer"])
            #expect(steered.exitCode == 0, "\(steered.errors)")
            try await gateway.stop()
        }

        @Test(.timeLimit(.minutes(10))) func healthcheck_takesAnAuthority() async throws {
            let (ours, others) = (try TestAuthority("ours", in: folder), try TestAuthority("others", in: folder))
            let gateway = try await GatewayDirectory(settings(try ours.issue("own"))).start()
            let command = ["healthcheck", "--url", "https://localhost:\(gateway.port)", "--ca"]
            let accepted = try await Binary.run(command + [ours.certificate])
            #expect(accepted.exitCode == 0, "\(accepted.errors)")
            let refused = try await Binary.run(command + [others.certificate])
            #expect(refused.exitCode == 1, "\(refused.errors)")
            try await gateway.stop()
        }

        /// On both listeners. That they are looked at every ten seconds, too, is shown in `SupervisorTests`.
        @Test(.timeLimit(.minutes(10))) func renewedFiles_areTakenUp_onRequest() async throws {
            let own = TestCertificate(certificate: folder.file("current.crt"), key: folder.file("current.key"))
            func install(_ next: TestCertificate) throws {
                for (from, to) in [(next.certificate, own.certificate), (next.key, own.key)] {
                    try Data(contentsOf: URL(filePath: from)).write(to: URL(filePath: to), options: .atomic)
                }
            }
            let certificates = try (0..<2).map { try TestCertificate("number-\($0)", in: folder) }
            try install(certificates[0])
            var settings = self.settings(own)
            settings.server["admin"] = ["host": "127.0.0.1", "port": 0]
            let gateway = try await GatewayDirectory(settings).start()
            let admin = try #require(gateway.startLine.firstMatch(of: #/admin=127\.0\.0\.1:([0-9]+)/#))
            let ports = [gateway.port, try #require(UInt16(admin.1))]
            func expectShown(_ certificate: TestCertificate) throws {
                let pem = try String(contentsOfFile: certificate.certificate, encoding: .utf8)
                for port in ports {
                    let shown = try openSSLClient(port)
                    #expect(shown.contains(pem.trimmingCharacters(in: .whitespacesAndNewlines)))
                }
            }
            try expectShown(certificates[0])
            try install(certificates[1])
            gateway.process.signal(SIGHUP)
            _ = try await gateway.process.line(of: .errors) { $0.contains("certificate renewed") }
            try expectShown(certificates[1])
            try await gateway.stop()
        }

        /// The library's own limits are taken away, so that it is the gateway's which decides.
        @Test(.timeLimit(.minutes(10)), arguments: [("-tls1_1", false), ("-tls1_2", true)])
        func upstreamBelowTLS12_isRefused(version: String, succeeds: Bool) async throws {
            let own = try TestCertificate("own", in: folder)
            let limits = folder.file("openssl.cnf")
            try """
            openssl_conf = all
            [all]
            ssl_conf = tls
            [tls]
            system_default = any
            [any]
            MinProtocol = TLSv1
            CipherString = DEFAULT@SECLEVEL=0
            """.write(toFile: limits, atomically: true, encoding: .utf8)
            let port = freePort()
            let server = try ChildProcess(
                [
                    "/usr/bin/openssl", "s_server", "-accept", "127.0.0.1:\(port)", version, "-cert", own.certificate,
                    "-key", own.key, "-www",
                ], environment: ["OPENSSL_CONF": limits])
            _ = try await server.line { $0.hasPrefix("ACCEPT") }
            let ended = try await Binary.run(
                ["healthcheck", "--insecure", "--url", "https://127.0.0.1:\(port)"],
                environment: ["OPENSSL_CONF": limits])
            // It answers 404 or a page of its own: anything but a failed handshake.
            #expect(ended.errors.contains("does not respond") != succeeds, "\(ended.errors)")
            server.signal(SIGKILL)
        }

        // MARK: An upstream's certificate

        private final class Upstream: HTTPHandler, AdmittedRequest {
            let received = Atomic<Int>(0)
            func admit(_ head: RequestHead) -> HeaderDecision { .accept(maxBodyBytes: 1 << 20, self) }
            func answer(_ body: [UInt8], _ responder: Responder) {
                received.wrappingAdd(1, ordering: .relaxed)
                responder.respond(HTTPResponse(status: 202))
            }
        }

        @Test(.timeLimit(.minutes(10))) func privateAuthority_isTrusted_onceItIsConfigured() async throws {
            let (ours, others) = (try TestAuthority("ours", in: folder), try TestAuthority("others", in: folder))
            let own = try ours.issue("upstream")
            let handler = Upstream()
            let upstream = HTTPServer(
                HTTPServerSettings {
                    ($0.port, $0.workerThreads) = (0, 1)
                    ($0.tls.certificateFile, $0.tls.keyFile) = (own.certificate, own.key)
                },
                handler: handler, logger: Logger(label: "upstream"))
            let url = "https://127.0.0.1:\(try upstream.start())"
            defer { upstream.stopAndWait(grace: .zero) }
            var settings = Settings()
            settings.upstreams = ["samsara": ["url": url, "caFile": others.certificate]]
            let directory = try GatewayDirectory(settings)
            let gateway = try await directory.start()
            let client = try gateway.client()
            #expect(try client.post(eventPath, event(1)).status == 202)
            func samsara() throws -> JSON { try client.get("/v1/upstreams/samsara").json }
            let isRefused = try eventually {
                try samsara()["lastError"]["detail"].string?.contains("certificate") == true
            }
            #expect(isRefused)
            #expect(handler.received.load(ordering: .relaxed) == 0)

            settings.upstreams = ["samsara": ["url": url, "caFile": ours.certificate]]
            try directory.configure(settings)
            gateway.process.signal(SIGHUP)
            let line = try await gateway.process.line(of: .errors) { $0.contains("configuration reloaded") }
            #expect(line.contains("upstreams.samsara.caFile"))
            let isDelivered = try eventually { try samsara()["queued"].int == 0 }
            #expect(isDelivered)
            #expect(handler.received.load(ordering: .relaxed) == 1)
            try await gateway.stop()
        }

        /// Takes requests from clients whose certificate is verified, as others take keys. A form gets a token.
        private final class StrictUpstream: HTTPHandler, AdmittedRequest {
            let received = Mutex<[String]>([])

            struct Named: AdmittedRequest {
                let upstream: StrictUpstream
                let path: String
                let client: String
                func answer(_ body: [UInt8], _ responder: Responder) {
                    upstream.received.withLock { $0.append("\(path) by \(client)") }
                    let token = #"{"access_token":"one","expires_in":3600}"#
                    responder.respond(HTTPResponse(status: 200, body: Array(token.utf8)))
                }
            }

            func admit(_ head: RequestHead) -> HeaderDecision {
                guard case .verified(let name) = head.clientCertificate else {
                    return .accept(maxBodyBytes: 1 << 20, self)
                }
                let named = Named(upstream: self, path: head.path, client: name ?? "")
                return .accept(maxBodyBytes: 1 << 20, named)
            }

            func answer(_ body: [UInt8], _ responder: Responder) { responder.respond(HTTPResponse(status: 403)) }
        }

        /// Requests for tokens have it, too. The path of the files remains.
        @Test(.timeLimit(.minutes(10))) func clientCertificate_isPresented_andAReplacedOneAfterAReload() async throws {
            let ours = try TestAuthority("ours", in: folder)
            let own = try ours.issue("upstream")
            let handler = StrictUpstream()
            let upstream = HTTPServer(
                HTTPServerSettings {
                    ($0.port, $0.workerThreads) = (0, 1)
                    ($0.tls.certificateFile, $0.tls.keyFile) = (own.certificate, own.key)
                    $0.tls.clientCAFile = ours.certificate
                },
                handler: handler, logger: Logger(label: "upstream"))
            let url = "https://127.0.0.1:\(try upstream.start())"
            defer { upstream.stopAndWait(grace: .zero) }
            let current = TestCertificate(certificate: folder.file("current.crt"), key: folder.file("current.key"))
            func install(_ next: TestCertificate) throws {
                for (from, to) in [(next.certificate, current.certificate), (next.key, current.key)] {
                    try Data(contentsOf: URL(filePath: from)).write(to: URL(filePath: to), options: .atomic)
                }
            }
            // Of another authority: the upstream does not know who calls.
            try install(try TestAuthority("others", in: folder).issue("stranger"))
            var settings = Settings()
            settings.upstreams = [
                "hook": [
                    "type": "webhook", "url": url, "caFile": ours.certificate,
                    "clientCertificateFile": current.certificate,
                    "clientKeyFile": current.key,
                    "auth": ["type": "oauth2", "tokenURL": url + "/token", "clientId": "a", "clientSecret": "b"],
                ]
            ]
            let directory = try GatewayDirectory(settings)
            let gateway = try await directory.start()
            let client = try gateway.client()
            #expect(try client.post("/v1/hook/event", "{}").status == 202)
            let isHeld = try eventually { try gateway.upstream("hook")["health"].string == "unauthorized" }
            #expect(isHeld)
            #expect(try gateway.upstream("hook")["queued"].int == 1)

            try install(try ours.issue("first", commonName: "gateway-1"))
            gateway.process.signal(SIGHUP)
            #expect(try eventually { try gateway.upstream("hook")["queued"].int == 0 })
            #expect(handler.received.withLock { $0 } == ["/token by gateway-1", "/ by gateway-1"])

            try install(try ours.issue("second", commonName: "gateway-2"))
            gateway.process.signal(SIGHUP)
            _ = try await gateway.process.line(of: .errors) { $0.contains("configuration reloaded") }
            #expect(
                try eventually {
                    _ = try client.post("/v1/hook/event", "{}", headers: [("Prefer", "wait=60")])
                    return handler.received.withLock { $0.last } == "/ by gateway-2"
                })
            try await gateway.stop()
        }

        /// Nothing was processed, so nothing is ambiguous.
        @Test(.timeLimit(.minutes(10))) func rejectedClientCertificate_isNamed_andMessagesAreKept() async throws {
            let (ours, others) = (try TestAuthority("ours", in: folder), try TestAuthority("others", in: folder))
            let (own, client) = (try ours.issue("upstream"), try others.issue("client"))
            let port = freePort()
            let server = try ChildProcess([
                "/usr/bin/openssl", "s_server", "-accept", "127.0.0.1:\(port)", "-cert", own.certificate, "-key",
                own.key,
                "-CAfile", ours.certificate, "-Verify", "2", "-verify_return_error", "-www",
            ])
            _ = try await server.line { $0.hasPrefix("ACCEPT") }
            var settings = Settings()
            settings.upstreams = [
                "samsara": [
                    "url": "https://127.0.0.1:\(port)", "caFile": ours.certificate,
                    "clientCertificateFile": client.certificate, "clientKeyFile": client.key,
                ]
            ]
            let gateway = try await GatewayDirectory(settings).start()
            #expect(try gateway.client().post(eventPath, event(1)).status == 202)
            let start = "The upstream rejected the client certificate: "
            let isNamed = try eventually {
                try gateway.upstream("samsara")["lastError"]["detail"].string?.contains(start) == true
            }
            let upstream = try gateway.upstream("samsara")
            #expect(isNamed, "\(upstream)")
            #expect(upstream["queued"].int == 1)
            #expect(try eventually { try gateway.upstream("samsara")["health"].string == "down" })
            #expect(try gateway.client().get("/metrics").text.contains(#"ambiguous_sends_total{upstream="samsara"} 0"#))
            try await gateway.stop()
            server.signal(SIGKILL)
        }

        @Test(.timeLimit(.minutes(10))) func authorityThatCannotBeRead_stopsTheStart_andIsFoundByCheck() async throws {
            var settings = Settings()
            settings.upstreams = ["samsara": ["url": "https://127.0.0.1:9", "caFile": folder.file("none.pem")]]
            let directory = try GatewayDirectory(settings)
            let (served, checked) = (
                try await directory.fail(), try await Binary.run(["check", "--config", directory.config])
            )
            for ended in [served, checked] {
                #expect(ended.exitCode == 78)
                #expect((ended.errors + ended.output).contains("upstreams.samsara.caFile is "), "\(ended)")
            }
        }
    }
}
