import PosternCore
import PosternStore
import PosternTestKit
import Testing

@testable import PosternAPI

/// The bound on messages that wait for their commit.
@Suite struct PendingBytesTests {
    /// Otherwise the gateway would reject everything once it has accepted so many bytes in all.
    @Test func bytes_areReleased_whenTheirMessagesAreStored() throws {
        var setup = Setup()
        setup.memory = ByteBudget(1000)
        try withPausedGateway(setup) { gateway in
            let body = #"{"n":1,"name":""# + String(repeating: "x", count: 400) + #""}"#
            for _ in 0..<10 { _ = try gateway.accept("/v1/picky/event", body) }
            #expect(eventually { gateway.context.memory.bytesInUse == 0 })
        }
    }

    @Test func bytes_areReleased_whenTheirMessagesAreRejected() throws {
        var setup = Setup()
        setup.memory = ByteBudget(1000)
        setup.caps = ["picky": .with { $0.maxMessages = 1 }]
        try withPausedGateway(setup) { gateway in
            let body = #"{"n":1,"name":""# + String(repeating: "x", count: 400) + #""}"#
            _ = try gateway.accept("/v1/picky/event", body)
            for _ in 0..<10 { try gateway.client.post("/v1/picky/event", body).problem(503, "outbox-full") }
            #expect(eventually { gateway.context.memory.bytesInUse == 0 })
        }
    }

    @Test func tooManyBytes_areRejected() throws {
        var setup = Setup()
        setup.memory = ByteBudget(1000)
        try withPausedGateway(setup) { gateway in
            gateway.context.memory.takeAnyway(1000)
            try gateway.client.post("/v1/picky/event", #"{"n":1}"#).problem(503, "overloaded")
        }
    }
}
