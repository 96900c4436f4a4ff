import Glibc
import PosternTestKit
import Testing

@testable import PosternHTTP

@Suite(.serialized) struct TimeLimitTests {
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
            #expect(client.drip("X-Slow: abcdefghijklmnopqrstuvwxyz", every: 20) < 30)
        }
    }

    @Test func drippingHeaders_areCutOff_onAKeptConnection() throws {
        try withServer(headerTimeout: .milliseconds(200), idleTimeout: .seconds(60)) { _, port in
            let client = try HTTPClient(port: port)
            client.sendPost("/", "x")
            _ = try client.answer()
            client.pause(milliseconds: 50)
            #expect(client.drip("GET / HTTP/1.1\r\nHost: t\r\n" + String(repeating: "X", count: 200), every: 20) < 100)
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
            client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1000\r\n\r\n")
            #expect(client.drip(String(repeating: "b", count: 500), every: 10) < 300)
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
            let client = try HTTPClient(port: port)
            client.sendPost("/", "x")
            let other = try HTTPClient(port: port)
            try other.waitForEnd()  // By now its deadline, which is later than ours would be, is over.
            held.take()?.responder.respond(.init(status: 200))
            #expect(try client.answer().status == 200)
        }
    }
}

extension HTTPClient {
    /// Sends single bytes. Returns how many were accepted before the peer closed the connection.
    fileprivate func drip(_ text: String, every milliseconds: Int32) -> Int {
        var taken = 0
        for byte in text.utf8 {
            guard send([byte]) else { break }
            taken += 1
            if pause(milliseconds: milliseconds) { break }
        }
        return taken
    }

    /// Waits for the peer to close the connection. Returns whether it did so in time.
    @discardableResult fileprivate func pause(milliseconds: Int32) -> Bool {
        let peerHasClosed: Int16 = 0x2000  // POLLRDHUP, which Glibc does not export.
        var ready = pollfd(fd: socket, events: peerHasClosed, revents: 0)
        return poll(&ready, 1, milliseconds) > 0
    }
}
