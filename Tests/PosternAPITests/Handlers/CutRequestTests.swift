import PosternHTTP
import PosternTestKit
import Testing

@testable import PosternAPI

/// Clients that disconnect in the middle of a request.
@Suite struct CutRequestTests {
    /// The first line alone would be a request, too.
    private static let (first, second) = ("{\"n\":1}\n", "{\"n\":2}\n")
    private static let head =
        "POST /v1/picky/event HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"

    @Test(arguments: [
        head + "Content-Length: 16\r\n\r\n" + first + second,
        head + "Transfer-Encoding: chunked\r\n\r\n8\r\n" + first + "\r\n8\r\n" + second + "\r\n0\r\n\r\n",
    ])
    func request_isStoredWholeOrNotAtAll_cutAtAnyByte(request: String) throws {
        let bytes = Array(request.utf8)
        try withPausedGateway { gateway in
            func send(_ count: Int) throws { try HTTPClient(port: gateway.port).send(Array(bytes[..<count])) }
            for count in 0..<bytes.count { try send(count) }
            // One connection is the gateway's own client.
            #expect(eventually { gateway.server.openConnections <= 1 })
            #expect(gateway.queued == 0)
            try send(bytes.count)
            #expect(eventually { gateway.queued == 2 })
        }
    }
}
