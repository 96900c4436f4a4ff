import PosternCompression
import PosternCore
import PosternHTTP
import PosternTestKit
import PosternUpstream
import Synchronization
import Testing

@testable import PosternAPI

/// Routes that check their callers themselves, such as those for an SDK: what they do before they know the caller.
@Suite struct OpenRouteTests {
    /// A check lasts until the test lets it end, or until it is cancelled.
    private final class Checks: Sendable {
        let begun = Atomic<Int>(0)
        let cancelled = Atomic<Int>(0)
        let mayEnd = Atomic<Bool>(false)

        func run(_ isCancelled: () -> Bool) -> Bool {
            begun.wrappingAdd(1, ordering: .relaxed)
            _ = eventually { mayEnd.load(ordering: .relaxed) || isCancelled() }
            if isCancelled() { cancelled.wrappingAdd(1, ordering: .relaxed) }
            return true
        }

        var count: Int { begun.load(ordering: .relaxed) }
    }

    private let checks = Checks()

    private func setup() -> Setup {
        let resources = [
            UpstreamRoute(
                .post, "proven/{name}", query: nil, access: .open, body: .any,
                .perform { [checks] request, tools throws(UpstreamRouteResponse) in
                    do throws(OverloadError) {
                        _ = try await tools.check(request.body.count) { checks.run($0) }
                        try tools.reserveToParse(request.body.count)
                    } catch {
                        throw .problem(slug: .overloaded, status: 503, detail: "Too much is in progress.")
                    }
                    return .json("\(request.body.count)")
                }),
            UpstreamRoute(.post, "known", body: .any, .perform { request, _ in .json("\(request.body.count)") }),
        ]
        var setup = Setup()
        setup.upstreams = [PlainUpstream("plain", routes: resources)]
        setup.limits.maxBodyBytes = 256 << 10
        setup.memory = ByteBudget(16 << 20)
        return setup
    }

    private let body = [UInt8](repeating: 120, count: 100 << 10)
    private let bytes = [("Content-Type", "application/octet-stream")]

    private func begin(_ gateway: TestGateway, _ body: [UInt8]) throws -> HTTPClient {
        let client = try HTTPClient(port: gateway.port)
        client.sendRequest("POST", "/v1/plain/proven/a", body, headers: bytes)
        return client
    }

    /// The check has a thread of its own, and so has whatever a key is needed for.
    @Test func checkOfAStranger_holdsUpNoOtherCall() throws {
        try withGateway(setup()) { gateway in
            let strangers = try (0..<4).map { _ in try begin(gateway, body) }
            #expect(eventually { checks.count == 1 && gateway.context.unproven.waiting == 3 })
            // Large enough to leave the connection's thread.
            #expect(try gateway.client.ask("POST", "/v1/plain/known", body, headers: bytes).status == 200)
            #expect(try gateway.client.post("/v1/picky/event", #"{"n":1}"#).status == 404)
            #expect(checks.count == 1)
            checks.mayEnd.store(true, ordering: .relaxed)
            for client in strangers { #expect(try client.answer().text == "\(body.count)\n") }
        }
    }

    /// Of two large bodies more would wait for too long.
    @Test func addressWithTooMuchToCheck_isRefused() throws {
        try withGateway(setup()) { gateway in
            let strangers = try (0..<5).map { _ in try begin(gateway, body) }
            #expect(eventually { checks.count == 1 && gateway.context.unproven.waiting == 4 })
            try begin(gateway, body).answer().problem(503, "overloaded")
            // A small body costs little, and is checked at once.
            let small = try begin(gateway, Array("small".utf8))
            #expect(eventually { checks.count == 2 })
            checks.mayEnd.store(true, ordering: .relaxed)
            for client in strangers + [small] { #expect(try client.answer().status == 200) }
        }
    }

    @Test func clientThatHangsUp_endsItsCheck() throws {
        try withGateway(setup()) { gateway in
            do {
                var strangers = try (0..<3).map { _ in try begin(gateway, body) }
                #expect(eventually { checks.count == 1 && gateway.context.unproven.waiting == 2 })
                strangers.removeAll()
            }
            #expect(eventually { checks.cancelled.load(ordering: .relaxed) == 3 })
            #expect(eventually { gateway.context.memory.bytesInUse == 0 })
            #expect(gateway.context.unproven.waiting == 0)
        }
    }

    /// Its body is in memory as long as the request, not only until the connection's thread has passed it on.
    @Test func memoryOfARequest_isCountedUntilItsEnd() throws {
        try withGateway(setup()) { gateway in
            let memory = gateway.context.memory
            let client = try begin(gateway, body)
            #expect(eventually { checks.count == 1 })
            #expect(memory.bytesInUse >= body.count)
            checks.mayEnd.store(true, ordering: .relaxed)
            #expect(try client.answer().status == 200)
            #expect(eventually { memory.bytesInUse == 0 })
        }
    }

    /// Strangers have a quarter of the memory for bodies, from the headers on.
    @Test func strangersThatSendSlowly_leaveRoomForOthers() throws {
        var setup = setup()
        setup.memory = ByteBudget(4 << 20)
        try withGateway(setup) { gateway in
            let head = "POST /v1/plain/proven/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 262144\r\n\r\n"
            var slow = try (0..<4).map { _ in
                let client = try HTTPClient(port: gateway.port)
                client.send(head)
                return client
            }
            #expect(eventually { gateway.context.unprovenBodies.bytesInUse == 1 << 20 })
            let refused = try HTTPClient(port: gateway.port)
            refused.send(head)
            try refused.answer().problem(503, "overloaded")
            #expect(try gateway.client.ask("POST", "/v1/plain/known", body, headers: bytes).status == 200)
            checks.mayEnd.store(true, ordering: .relaxed)
            #expect(try begin(gateway, Array("small".utf8)).answer().status == 200)
            slow.removeAll()
            #expect(eventually { gateway.context.unprovenBodies.bytesInUse == 0 })
        }
    }

    /// A few hundred bytes of gzip take as long as a large body.
    @Test func compressedBodyOfAStranger_waitsForItsTurn() throws {
        try withGateway(setup()) { gateway in
            let stranger = try begin(gateway, body)
            #expect(eventually { checks.count == 1 })
            let packed = try HTTPClient(port: gateway.port)
            packed.sendRequest(
                "POST", "/v1/plain/proven/b", Gzip.compress([UInt8](repeating: 7, count: 4000)),
                headers: bytes + [("Content-Encoding", "gzip")])
            #expect(eventually { gateway.context.unproven.waiting == 1 })
            #expect(checks.count == 1)
            checks.mayEnd.store(true, ordering: .relaxed)
            #expect(try packed.answer().text == "4000\n")
            #expect(try stranger.answer().status == 200)
        }
    }
}
