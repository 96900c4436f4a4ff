import Foundation
import PosternCore
import PosternStore
import PosternTestKit
import Testing

extension EndToEnd {
    /// Malicious and faulty clients, while others are served.
    @Suite struct Abuse {
        /// Runs `body` while another client is served continuously.
        private func servingAnotherClient(
            _ settings: Settings, _ body: (GatewayProcess) throws -> Void
        ) async throws {
            let directory = try GatewayDirectory(settings)
            let gateway = try await directory.start()
            let other = try gateway.client()
            #expect(try other.post(eventPath, event(1)).status == 202)
            try body(gateway)
            #expect(try other.post(eventPath, event(2)).status == 202)
            #expect(try gateway.client().get("/readyz").status == 200)
            try await gateway.stop()
            #expect(try directory.audit().accounts[0].ledger.accepted == 2)
        }

        private var quick: Settings {
            Settings(server: ["port": 0, "headerTimeoutSeconds": 1, "shutdownGraceSeconds": 0])
        }

        @Test(.timeLimit(.minutes(10))) func drippedHeaders_areCutOff() async throws {
            try await servingAnotherClient(quick) { gateway in
                let slow = try gateway.client(patience: .milliseconds(50))
                let text = Array(
                    "POST \(eventPath) HTTP/1.1\r\nHost: localhost\r\nX-Filler: \(String(repeating: "x", count: 9000))"
                        .utf8)
                var isOpen = true
                for byte in text where isOpen {
                    isOpen = slow.send([byte])
                    // This is slow, because each check waits for a response that does not arrive.
                    do { _ = try slow.answer() } catch HTTPClient.Failure.deadline {} catch { isOpen = false }
                }
                #expect(!isOpen)
            }
        }

        @Test(.timeLimit(.minutes(10))) func drippedBody_isCutOff() async throws {
            try await servingAnotherClient(quick) { gateway in
                let slow = try gateway.client()
                slow.send(
                    "POST \(eventPath) HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
                )
                try slow.waitForEnd()
            }
        }

        @Test(.timeLimit(.minutes(10))) func tenMebibytes_areRefused() async throws {
            try await servingAnotherClient(quick) { gateway in
                let announced = try gateway.client()
                announced.send(
                    "POST \(eventPath) HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                        + "Content-Length: \(10 << 20)\r\n\r\n")
                #expect(try announced.answer().status == 413)

                let chunked = try gateway.client()
                chunked.send(
                    "POST \(eventPath) HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                        + "Transfer-Encoding: chunked\r\n\r\n")
                let chunk = "10000\r\n" + String(repeating: " ", count: 0x10000) + "\r\n"
                for _ in 0..<160 where !chunked.send(chunk) { break }
                #expect(try chunked.answer().status == 413)
            }
        }

        @Test(.timeLimit(.minutes(10))) func twoFramings_areRefusedAndClosed() async throws {
            try await servingAnotherClient(quick) { gateway in
                let smuggler = try gateway.client()
                smuggler.send(
                    "POST \(eventPath) HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4\r\n"
                        + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
                #expect(try smuggler.answer().status == 400)
                try smuggler.waitForEnd()
            }
        }
    }
}
