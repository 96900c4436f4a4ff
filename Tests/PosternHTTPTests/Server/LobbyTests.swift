import Foundation
import PosternTestKit
import Testing

@testable import PosternHTTP

/// Which worker gets a new connection.
@Suite(.timeLimit(.minutes(10))) struct LobbyTests {
    /// Responds with the name of the thread that serves the connection.
    private static let handler: TestHandler = {
        var handler = TestHandler { _, responder in
            let name = (try? String(contentsOfFile: "/proc/thread-self/comm", encoding: .utf8)) ?? ""
            responder.respond(HTTPResponse(status: 200, body: Array(name.utf8.dropLast())))
        }
        handler.streamPath = "/stream"
        return handler
    }()

    private static func get(_ path: String) -> String { "GET \(path) HTTP/1.1\r\nHost: t\r\n\r\n" }

    @Test(arguments: ["/stream", "/stream?upstream=x"]) func clientsOfStreams_haveAWorkerOfTheirOwn(path: String) throws
    {
        try withServer(Self.handler) { _, port in
            let client = try HTTPClient(port: port)
            client.send(Self.get(path))
            #expect(try client.answer().text == "postern-streams")
            // The connection stays there.
            client.send(Self.get("/"))
            #expect(try client.answer().text == "postern-streams")
        }
    }

    @Test(arguments: ["/", "/streams", "/strea", "/stream/x"]) func otherClients_areServedByTheOthers(path: String)
        throws
    {
        try withServer(Self.handler) { _, port in
            for _ in 0..<4 {
                let client = try HTTPClient(port: port)
                client.send(Self.get(path))
                #expect(try client.answer().text.hasPrefix("postern-http-"))
            }
        }
    }

    @Test func clientThatSendsItsFirstBytesSlowly_isServed() throws {
        try withServer(Self.handler) { server, port in
            let client = try HTTPClient(port: port)
            client.send("GET /str")
            #expect(eventually { server.livingConnections == 1 }, "it stays in the lobby")
            client.send(String(Self.get("/stream").dropFirst(8)))
            #expect(try client.answer().text.hasPrefix("postern-http-"))
        }
    }

    @Test func silentClients_leaveTheLobby_andAreServedLater() throws {
        try withServer(Self.handler) { server, port in
            let clients = try (0..<20).map { _ in try HTTPClient(port: port) }
            #expect(eventually { server.openConnections == 20 }, "the clients are not counted")
            // Workers know a connection only once it has left the lobby.
            #expect(eventually { server.livingConnections == 20 }, "they stay in the lobby")
            for client in clients {
                client.send(Self.get("/stream"))
                #expect(try client.answer().text.hasPrefix("postern-http-"))
            }
        }
    }

    @Test func clientThatLeaves_isForgotten() throws {
        try withServer(Self.handler) { server, port in
            for _ in 0..<20 { _ = try HTTPClient(port: port) }
            let last = try HTTPClient(port: port)
            last.sendPost("/", "")
            _ = try last.answer()
            #expect(eventually { server.openConnections == 1 }, "a connection is still counted")
        }
    }

    @Test func clientInTheLobby_isServed_whileTheServerStops() throws {
        try withServer(Self.handler) { server, port in
            let client = try HTTPClient(port: port)
            #expect(eventually { server.openConnections == 1 }, "it is not accepted")
            server.stopAccepting()
            client.sendPost("/", "")
            let answer = try client.answer()
            #expect(answer.text.hasPrefix("postern-http-"))
            #expect(answer.header("Connection") == "close")
        }
    }
}
