import Glibc
import PosternTestKit
import Testing

@testable import PosternHTTP

/// A client that sends slowly is cut off in the middle of what it sends, which without the limit takes it a minute.
@Suite(.serialized, .timeLimit(.minutes(10))) struct TimeLimitTests {
    @Test func silentClient_isCutOff_afterTheHeaderTimeout() throws {
        try withServer(headerTimeout: .milliseconds(200)) { server, port in
            let client = try HTTPClient(port: port)
            try client.waitForEnd()
            #expect(eventually { server.openConnections == 0 }, "the connection stayed")
        }
    }

    @Test func drippingHeaders_areCutOff() throws {
        try withServer(headerTimeout: .milliseconds(200)) { server, port in
            let client = try HTTPClient(port: port)
            client.send("GET / HTTP/1.1\r\nHost: t\r\n")
            #expect(client.isCutOff(dripping: "X-Slow: " + String(repeating: "x", count: 3000)))
        }
    }

    @Test func drippingHeaders_areCutOff_onAKeptConnection() throws {
        try withServer(headerTimeout: .milliseconds(200)) { _, port in
            var client: HTTPClient
            repeat {
                // On a busy machine it may be cut off before it has sent its first request.
                client = try HTTPClient(port: port)
                client.sendPost("/", "x")
            } while (try? client.answer()) == nil
            #expect(client.isCutOff(dripping: "GET / HTTP/1.1\r\nX: " + String(repeating: "x", count: 3000)))
        }
    }

    @Test func silentBody_isCutOff() throws {
        try withServer(headerTimeout: .milliseconds(200)) { server, port in
            let client = try HTTPClient(port: port)
            client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\nabc")
            try client.waitForEnd()
            #expect(eventually { server.runningRequests == 0 }, "the request stayed")
        }
    }

    @Test func drippingBody_isCutOff_belowTheLeastRate() throws {
        try withServer(headerTimeout: .milliseconds(200)) { _, port in
            let client = try HTTPClient(port: port)
            client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 3000\r\n\r\n")
            #expect(client.isCutOff(dripping: String(repeating: "b", count: 2999)))
        }
    }

    @Test func idleConnection_isClosed_afterTheIdleTimeout() throws {
        try withServer(idleTimeout: .milliseconds(200)) { server, port in
            let client = try HTTPClient(port: port)
            client.sendPost("/", "x")
            _ = try client.answer()
            #expect(try client.readToEnd() == [])
        }
    }

    @Test func slowHandler_isNotCutOff_byAnyDeadline() throws {
        let held = PendingRequests()
        try withServer(held.handler, headerTimeout: .milliseconds(50), idleTimeout: .milliseconds(50)) { _, port in
            var client: HTTPClient
            repeat {
                // On a busy machine it may be cut off before it has sent its request.
                client = try HTTPClient(port: port)
                client.sendPost("/", "x")
                #expect(eventually { held.count > 0 || client.isClosed() }, "no request came")
            } while held.count == 0
            let other = try HTTPClient(port: port)
            try other.waitForEnd()  // By now its deadline, which is later than ours would be, is over.
            held.take()?.responder.respond(.init(status: 200))
            #expect(try client.answer().status == 200)
        }
    }
}

extension HTTPClient {
    /// Sends single bytes. Returns whether the peer closed the connection before it had all of them.
    fileprivate func isCutOff(dripping text: String) -> Bool {
        for byte in text.utf8 where !send([byte]) || isClosed(within: 20) { return true }
        return false
    }
}
