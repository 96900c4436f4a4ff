import PosternCore
import PosternTestKit
import Testing

@testable import PosternAPI

/// Pages of lists are bounded in bytes too.
@Suite struct ListBytesTests {
    private func withGateway(memory: Int, _ body: (TestGateway) throws -> Void) throws {
        var setup = Setup()
        setup.paused = ["picky", "plain"]
        setup.limits = RequestLimits()
        setup.memory = ByteBudget(memory)
        setup.bodyMemory = setup.memory
        let gateway = try TestGateway(setup)
        defer { gateway.stop() }
        try body(gateway)
    }

    @Test func page_endsEarly_whenItsBytesAreUsedUp() throws {
        try withGateway(memory: 8 << 20) { gateway in
            var ids: [String] = []
            let filler = String(repeating: "x", count: 60_000)
            for number in 0..<50 {
                let upstream = number.isMultiple(of: 2) ? "picky/event" : "plain/thing"
                ids.append(try gateway.accept("/v1/\(upstream)", #"{"n":\#(number),"filler":"\#(filler)"}"#))
            }
            var listed: [String] = []
            var cursor = ""
            var pages = 0
            repeat {
                let page = try gateway.client.get("/v1/messages?limit=1000&include=payload" + cursor)
                #expect(page.status == 200)
                #expect(page.body.count <= 1 << 20)
                listed += page.json["messages"].array.compactMap(\.["id"].string)
                cursor = page.json["next"].string.map { "&cursor=\($0)" } ?? ""
                pages += 1
            } while !cursor.isEmpty && pages < 100
            #expect(listed == ids)
            #expect((3...5).contains(pages))
            // Without payloads they fit on one page.
            #expect(try gateway.client.get("/v1/messages?limit=1000").json["next"].string == nil)
            #expect(gateway.context.memory.bytesInUse == 0)
        }
    }

    @Test func list_isOverloaded_whenTooMuchIsInFlight() throws {
        try withGateway(memory: 8 << 20) { gateway in
            let memory = gateway.context.memory
            memory.takeAnyway(7 << 20)
            let answer = try gateway.client.get("/v1/messages")
            answer.problem(503, "overloaded")
            #expect(answer.header("Retry-After") == "1")
            memory.give(7 << 20)
            #expect(try gateway.client.get("/v1/messages").status == 200)
        }
    }

    @Test func largeBody_isOverloaded_whenParsingItDoesNotFit() throws {
        try withGateway(memory: 8 << 20) { gateway in
            let memory = gateway.context.memory
            memory.takeAnyway(7 << 20)
            let body = #"{"n":1,"filler":"\#(String(repeating: "x", count: 200_000))"}"#
            // It is refused before it is sent, and its connection is closed.
            try HTTPClient(port: gateway.port).post("/v1/picky/event", body).problem(503, "overloaded")
            memory.give(7 << 20)
            _ = try gateway.accept("/v1/picky/event", body)
            let isGivenBack = eventually { memory.bytesInUse == 0 }
            #expect(isGivenBack)
        }
    }
}
