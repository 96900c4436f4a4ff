import Dispatch
import Glibc
import PosternCore
import PosternTestKit
import PosternThreads
import PosternUpstream
import Synchronization
import Testing

@testable import PosternTransport

private let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Seen: yes\r\n\r\nok"

/// Gives the same response to every request.
private func serving(_ answer: String) -> RawServer {
    RawServer { connection, _ in while connection.request() != nil, connection.send(answer) {} }
}

private final class Fixture: Sendable {
    let loop: CurlLoop
    init() throws { loop = try CurlLoop(.init(version: "1.2.3")) }
    deinit { loop.stop() }

    func send(_ request: UpstreamRequest, options: TransferOptions = TransferOptions()) async -> TransferResult {
        await loop.send(request, options: options)
    }

    /// Blocks, for the tests of connections that are kept: a task that is suspended may wait for its next turn until they
    /// are too old.
    func sendInTurn(_ request: UpstreamRequest, options: TransferOptions = TransferOptions()) -> TransferResult {
        let results = Inbox<TransferResult>()
        loop.submit(request, options: options) { results.put($0) }
        return results.takeAll(waitingUntil: nil)[0]
    }
}

extension TransferResult {
    var failure: TransferFailure? { if case .failure(let failure) = self { failure } else { nil } }
}

@Suite(.timeLimit(.minutes(10))) struct CurlLoopTests {
    private let fixture: Fixture
    init() throws { fixture = try Fixture() }

    // MARK: Requests

    static let wire: [(UpstreamRequest.Method, [(String, String)], String, String)] = [
        (.get, [], "", "GET /p?q=1 HTTP/1.1\r\nHost: HOST\r\nUser-Agent: Postern/1.2.3\r\n\r\n"),
        (
            .get, [("Content-Type", "application/json"), ("Accept", "a/b"), ("User-Agent", "me")], "",
            "GET /p?q=1 HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\nAccept: a/b\r\nUser-Agent: me\r\n\r\n"
        ),
        (
            .post, [("Content-Type", "application/json"), ("X-Empty", "")], "{\"a\":1}",
            "POST /p?q=1 HTTP/1.1\r\nHost: HOST\r\nUser-Agent: Postern/1.2.3\r\nContent-Type: application/json\r\n"
                + "X-Empty:\r\nContent-Length: 7\r\n\r\n{\"a\":1}"
        ),
        (
            .post, [], "",
            "POST /p?q=1 HTTP/1.1\r\nHost: HOST\r\nUser-Agent: Postern/1.2.3\r\nContent-Length: 0\r\n\r\n"
        ),
        (
            .post, [("Content-Length", "99"), ("Transfer-Encoding", "chunked"), ("Expect", "100-continue")], "x",
            "POST /p?q=1 HTTP/1.1\r\nHost: HOST\r\nUser-Agent: Postern/1.2.3\r\n"
                + "Content-Length: 1\r\n\r\nx"
        ),
        (
            .put, [("Content-Type", "text/plain")], "body",
            "PUT /p?q=1 HTTP/1.1\r\nHost: HOST\r\nUser-Agent: Postern/1.2.3\r\nContent-Type: text/plain\r\n"
                + "Content-Length: 4\r\n\r\nbody"
        ),
        (.put, [], "", "PUT /p?q=1 HTTP/1.1\r\nHost: HOST\r\nUser-Agent: Postern/1.2.3\r\nContent-Length: 0\r\n\r\n"),
        (.delete, [], "", "DELETE /p?q=1 HTTP/1.1\r\nHost: HOST\r\nUser-Agent: Postern/1.2.3\r\n\r\n"),
        (
            .delete, [], "why",
            "DELETE /p?q=1 HTTP/1.1\r\nHost: HOST\r\nUser-Agent: Postern/1.2.3\r\nContent-Length: 3\r\n\r\nwhy"
        ),
    ]

    @Test(arguments: wire) func request_isExactlyThis_onTheWire(
        method: UpstreamRequest.Method, headers: [(String, String)], body: String, expected: String
    ) async {
        let seen = Mutex("")
        let server = RawServer { connection, _ in
            let request = connection.request() ?? ""
            seen.withLock { $0 = request }
            connection.send(ok)
        }
        defer { server.stop() }
        let request = UpstreamRequest(
            method: method, url: server.url + "/p?q=1", headers: headers.map { (name: $0.0, value: $0.1) },
            body: Array(body.utf8))
        _ = await fixture.send(request)
        #expect(seen.withLock { $0 } == expected.replacing("HOST", with: "127.0.0.1:\(server.port)"))
    }

    @Test func body_arrivesWhole_whenLargerThanAnyBuffer() async {
        let seen = Mutex(0)
        let server = RawServer { connection, _ in
            let request = connection.request() ?? ""
            #expect(!request.contains("Expect"))
            seen.withLock { $0 = request.utf8.count { $0 == UInt8(ascii: "~") } }
            connection.send(ok)
        }
        defer { server.stop() }
        let result = await fixture.send(
            UpstreamRequest(url: server.url, body: [UInt8](repeating: UInt8(ascii: "~"), count: 3_000_000)))
        #expect((try? result.get())?.status == 200)
        #expect(seen.withLock { $0 } == 3_000_000)
    }

    @Test(arguments: [("X-A", "1\r\nX-B: 2"), ("X A", "1"), ("", "1"), ("X-A:", "1"), ("X-A", "\u{7f}")])
    func header_isNeverSent_whenItCouldStartAnother(name: String, value: String) async {
        let result = await fixture.send(UpstreamRequest(url: "http://127.0.0.1:9/", headers: [(name, value)]))
        #expect(result.failure?.reason == .unreachable)
        #expect(result.failure?.mayHaveArrived == false)
        #expect(result.failure?.detail.contains("cannot be sent") == true)
    }

    @Test(arguments: [
        "file:///etc/hostname", "ftp://127.0.0.1/", "gopher://127.0.0.1/", "http://", "http://a b/", "http://x\0y",
    ])
    func url_isRefused_ifItsSchemeIsNotHTTP(url: String) async {
        let failure = await fixture.send(UpstreamRequest(method: .get, url: url)).failure
        #expect(failure?.reason == .unreachable)
        #expect(failure?.mayHaveArrived == false)
    }

    // MARK: Answers

    @Test func answer_isHandedOver_withStatusHeadersAndBody() async throws {
        let server = serving("HTTP/1.1 503 Busy\r\nRetry-After:  7 \r\nX-A: 1\r\nX-A:\r\nContent-Length: 4\r\n\r\nwait")
        defer { server.stop() }
        let answer = try await fixture.send(UpstreamRequest(url: server.url)).get()
        #expect(
            answer
                == UpstreamResponse(
                    status: 503,
                    headers: [("Retry-After", "7"), ("X-A", "1"), ("X-A", ""), ("Content-Length", "4")],
                    body: Array("wait".utf8)))
    }

    @Test func interimAnswersAndTrailers_leaveNoHeaders() async throws {
        let server = serving(
            "HTTP/1.1 103 Early\r\nX-Early: 1\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                + "3\r\nabc\r\n0\r\nX-Late: 1\r\n\r\n")
        defer { server.stop() }
        let answer = try await fixture.send(UpstreamRequest(url: server.url)).get()
        #expect(
            answer
                == UpstreamResponse(status: 200, headers: [("Transfer-Encoding", "chunked")], body: Array("abc".utf8)))
    }

    /// The listener is mute, and is sent nothing; a kept connection shows nothing about the present.
    @Test func requestThatOnlyConnects_sendsNothing_onAConnectionOfItsOwn_whichItCloses() async throws {
        let received = AsyncStream<String?>.makeStream()
        let server = RawServer { connection, number in
            while let request = connection.request() {
                if number > 1 { received.continuation.yield(request) }
                connection.send(ok)
            }
            if number > 1 { received.continuation.yield(nil) }
        }
        defer { server.stop() }
        _ = try await fixture.send(UpstreamRequest(url: server.url, body: [1])).get()
        var request = UpstreamRequest(method: .get, url: server.url)
        request.onlyConnects = true
        #expect(await fixture.send(request) == .success(UpstreamResponse(status: 0)))
        for await first in received.stream {
            #expect(first == nil)
            break
        }
        #expect(server.connections == 2)
    }

    /// What a probe finds costs the deliveries nothing: a time-out of theirs would replace their connections.
    @Test func requestThatOnlyConnects_leavesTheConnectionsOfOthers() throws {
        let (server, mute) = (serving(ok), RawServer { connection, _ in try? connection.waitForEnd() })
        defer { server.stop() }
        defer { mute.stop() }
        func send() throws { _ = try fixture.sendInTurn(UpstreamRequest(url: server.url, body: [1])).get() }
        try send()
        var request = UpstreamRequest(method: .get, url: "https://127.0.0.1:\(mute.port)/")
        request.onlyConnects = true
        let options = TransferOptions(connectTimeout: .seconds(1))
        #expect(fixture.sendInTurn(request, options: options).failure?.reason == .timeout)
        try send()
        #expect(server.connections == 1)
    }

    @Test func redirect_isAnAnswer_notFollowed() async throws {
        let server = serving("HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n")
        defer { server.stop() }
        #expect(try await fixture.send(UpstreamRequest(method: .get, url: server.url)).get().status == 302)
        #expect(server.connections == 1)
    }

    @Test func gzipAnswer_isNotDecoded() async throws {
        let server = serving("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain")
        defer { server.stop() }
        #expect(try await fixture.send(UpstreamRequest(url: server.url)).get().body == Array("plain".utf8))
    }

    @Test(arguments: [1000, 60_000, 3_000_000]) func answer_isCut_atTheLimit(size: Int) throws {
        let server = serving(
            "HTTP/1.1 200 OK\r\nContent-Length: \(size)\r\n\r\n" + String(repeating: "x", count: size))
        defer { server.stop() }
        let answer = try fixture.sendInTurn(
            UpstreamRequest(url: server.url, maxResponseBytes: 100)
        ).get()
        #expect(answer.status == 200)
        #expect(answer.body == [UInt8](repeating: UInt8(ascii: "x"), count: 100))
        _ = try fixture.sendInTurn(UpstreamRequest(url: server.url)).get()
        #expect(server.connections == (size > 100_000 ? 2 : 1))
    }

    /// libcurl would keep every one of them.
    @Test func trailersWithoutEnd_areCutOff_andTheResponseCounts() async throws {
        let sent = Atomic<Int>(0)
        let server = RawServer { connection, _ in
            guard connection.request() != nil else { return }
            connection.send("HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n")
            let trailers = (0..<100).map { "X-\($0): \(String(repeating: "x", count: 80))\r\n" }.joined()
            while sent.load(ordering: .relaxed) < 64 << 20, connection.send(trailers) {
                sent.wrappingAdd(trailers.utf8.count, ordering: .relaxed)
            }
        }
        defer { server.stop() }
        let answer = try await fixture.send(UpstreamRequest(url: server.url)).get()
        #expect(answer.status == 202)
        #expect(answer.body == Array("ok".utf8))
        #expect(sent.load(ordering: .relaxed) < 32 << 20)
    }

    @Test func interimAnswersWithoutEnd_areAFailure() async throws {
        let server = RawServer { connection, _ in
            guard connection.request() != nil else { return }
            let interim = String(repeating: "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", count: 100)
            for _ in 0..<10_000 where !connection.send(interim) { return }
        }
        defer { server.stop() }
        #expect(await fixture.send(UpstreamRequest(url: server.url)).failure?.reason == .garbled)
    }

    @Test func connection_isUsedAgain_forTheNextRequests() throws {
        let server = serving(ok)
        defer { server.stop() }
        for _ in 1...20 { #expect(try fixture.sendInTurn(UpstreamRequest(url: server.url)).get().status == 200) }
        #expect(server.connections == 1)
    }

    /// libcurl would otherwise send others on the connection of a request whose response is still coming.
    @Test func requestsShareNoConnection_whenAResponseClaimsHTTP2() async throws {
        let (isSlowUnderWay, othersHaveEnded) = (AsyncStream<Void>.makeStream(), DispatchSemaphore(value: 0))
        let server = RawServer { connection, _ in
            while let request = connection.request() {
                if request.hasPrefix("POST /slow") {
                    connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")
                    isSlowUnderWay.continuation.yield()
                    othersHaveEnded.wait()
                    connection.send("k")
                } else if request.hasPrefix("POST /claim") {
                    connection.send("HTTP/2 200\r\nContent-Length: 0\r\n\r\n")
                } else {
                    connection.send("HTTP/1.1 422 No\r\nContent-Length: 0\r\n\r\n")
                }
            }
        }
        defer { server.stop() }
        async let slow = fixture.send(UpstreamRequest(url: server.url + "/slow", body: [1]))
        for await _ in isSlowUnderWay.stream { break }
        _ = await fixture.send(UpstreamRequest(url: server.url + "/claim", body: [1]))
        async let first = fixture.send(UpstreamRequest(url: server.url + "/other", body: [1]))
        async let second = fixture.send(UpstreamRequest(url: server.url + "/other", body: [1]))
        // On the connection of the slow request, they would time out.
        let statuses = await [first, second].map { try? $0.get().status }
        othersHaveEnded.signal()
        #expect(statuses == [422, 422])
        #expect(try await slow.get().status == 200)
    }

    // MARK: Failures

    @Test func refusedConnection_isUnreachable_andNothingArrived() async {
        let failure = await withRefusingPort { port in
            await fixture.send(UpstreamRequest(url: "http://127.0.0.1:\(port)/")).failure
        }
        #expect(failure?.reason == .unreachable)
        #expect(failure?.mayHaveArrived == false)
    }

    @Test func unknownName_isUnreachable_andNothingArrived() async {
        let failure = await fixture.send(UpstreamRequest(url: "http://nowhere.invalid/")).failure
        #expect(failure?.reason == .unreachable)
        #expect(failure?.mayHaveArrived == false)
    }

    @Test func failedHandshake_isUnreachable_andNothingArrived() async {
        let server = RawServer { connection, _ in
            try? connection.receiveMore()
            connection.send("HTTP/1.1 400 Bad Request\r\n\r\n")
        }
        defer { server.stop() }
        let failure = await fixture.send(UpstreamRequest(url: "https://127.0.0.1:\(server.port)/", body: [1])).failure
        #expect(failure?.reason == .unreachable)
        #expect(failure?.mayHaveArrived == false)
    }

    /// The cases of TLS are in `TrustTests`.
    @Test func requestThatOnlyConnects_saysWhichPartFailed() async throws {
        func failure(_ url: String, within limit: Duration = longestWait) async -> TransferFailure? {
            var request = UpstreamRequest(method: .get, url: url)
            request.onlyConnects = true
            let options = TransferOptions(connectTimeout: limit, requestTimeout: longestWait)
            return await fixture.send(request, options: options).failure
        }
        let refused = await withRefusingPort { await failure("http://127.0.0.1:\($0)/") }
        #expect(
            refused?.reason == .unreachable && refused?.detail.hasPrefix("TCP: ") == true,
            "\(String(describing: refused))")
        let unknown = await failure("http://nowhere.invalid/")
        #expect(
            unknown?.reason == .unreachable && unknown?.detail.hasPrefix("DNS: ") == true,
            "\(String(describing: unknown))")
        let mute = RawServer { connection, _ in try? connection.waitForEnd() }
        defer { mute.stop() }
        let silent = await failure("https://127.0.0.1:\(mute.port)/", within: .seconds(2))
        #expect(
            silent?.reason == .timeout && silent?.detail.hasPrefix("TLS: ") == true, "\(String(describing: silent))")
        #expect([refused, unknown, silent].allSatisfy { $0?.mayHaveArrived == false })
    }

    @Test(arguments: [false, true]) func connectionEndedBeforeTheAnswer_isInterrupted(byReset: Bool) async {
        let server = RawServer { connection, _ in
            _ = connection.request()
            if byReset { connection.resetOnClose() }
        }
        defer { server.stop() }
        let failure = await fixture.send(UpstreamRequest(url: server.url, body: [1])).failure
        #expect(failure?.reason == .interrupted)
        #expect(failure?.mayHaveArrived == true)
        #expect(server.connections == 1)  // a fresh connection is not tried twice
    }

    static let cutAnswers = [
        "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Le", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ]
    @Test(arguments: cutAnswers, [false, true]) func cutAnswer_isInterrupted(answer: String, byReset: Bool) async {
        let server = RawServer { connection, _ in
            _ = connection.request()
            connection.send(answer)
            if byReset { connection.resetOnClose() }
        }
        defer { server.stop() }
        let failure = await fixture.send(UpstreamRequest(url: server.url, body: [1])).failure
        #expect(failure?.reason == .interrupted)
        #expect(failure?.mayHaveArrived == true)
    }

    @Test(arguments: ["garbage garbage garbage garbage\r\n\r\n", "<html>hello</html>", "HTTP/1.1 2x0 OK\r\n\r\n"])
    func responseThatIsNotHTTP_isGarbled(answer: String) async {
        let server = RawServer { connection, _ in
            _ = connection.request()
            connection.send(answer)
        }
        defer { server.stop() }
        let failure = await fixture.send(UpstreamRequest(url: server.url, body: [1])).failure
        #expect(failure?.reason == .garbled)
        #expect(failure?.mayHaveArrived == true)
    }

    @Test func endlessHeaders_areGarbled() async {
        let server = RawServer { connection, _ in
            _ = connection.request()
            connection.send("HTTP/1.1 200 OK\r\n")
            while connection.send("X-Filler: \(String(repeating: "x", count: 1000))\r\n") {}
        }
        defer { server.stop() }
        let failure = await fixture.send(UpstreamRequest(url: server.url)).failure
        #expect(failure?.reason == .garbled)
    }

    @Test func silence_isATimeout_afterTheRequestTimeout() async {
        let server = RawServer { connection, _ in try? connection.waitForEnd() }
        defer { server.stop() }
        let start = ContinuousClock.now
        let failure = await fixture.send(
            UpstreamRequest(url: server.url, body: [1]), options: TransferOptions(requestTimeout: .milliseconds(150))
        ).failure
        #expect(ContinuousClock.now - start >= .milliseconds(150))
        #expect(failure?.reason == .timeout)
        #expect(failure?.mayHaveArrived == true)
    }

    /// The timeout covers the whole request, not the pauses in it.
    @Test func drippedAnswer_isATimeout_howeverSteadilyItComes() async {
        let server = RawServer { connection, _ in
            _ = connection.request()
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
            while !connection.hasEnded(within: 10), connection.send("x") {}
        }
        defer { server.stop() }
        let failure = await fixture.send(
            UpstreamRequest(url: server.url, body: [1]), options: TransferOptions(requestTimeout: .milliseconds(300))
        ).failure
        #expect(failure?.reason == .timeout)
        #expect(failure?.mayHaveArrived == true)
    }

    @Test func silentHandshake_isATimeout_andNothingArrived() async {
        let server = RawServer { connection, _ in try? connection.waitForEnd() }
        defer { server.stop() }
        let failure = await fixture.send(
            UpstreamRequest(url: "https://127.0.0.1:\(server.port)/", body: [1]),
            options: TransferOptions(connectTimeout: .milliseconds(150))
        ).failure
        #expect(failure?.reason == .timeout)
        #expect(failure?.mayHaveArrived == false)
    }

    // MARK: Cancelling one transfer

    @Test(.timeLimit(.minutes(10))) func cancelledTask_endsItsTransfer_andTheUpstreamSeesIt() async throws {
        let (arrived, gone) = (AsyncStream<Void>.makeStream(), AsyncStream<Void>.makeStream())
        let server = RawServer { connection, number in
            _ = connection.request()
            guard number == 1 else { return _ = connection.send(ok) }
            arrived.continuation.yield()
            try? connection.waitForEnd()
            gone.continuation.yield()
        }
        defer { server.stop() }
        let task = Task { await fixture.send(UpstreamRequest(url: server.url, body: [1])) }
        for await _ in arrived.stream { break }
        task.cancel()
        let failure = await task.value.failure
        #expect(failure?.reason == .cancelled)
        #expect(failure?.mayHaveArrived == true)
        for await _ in gone.stream { break }
        #expect(try await fixture.send(UpstreamRequest(url: server.url, body: [1])).get().status == 200)
    }

    @Test func taskThatIsCancelledBefore_sendsNothing_orEndsAtOnce() async {
        let server = RawServer { connection, _ in try? connection.waitForEnd() }
        defer { server.stop() }
        let task = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            return await fixture.send(UpstreamRequest(url: server.url, body: [1]))
        }
        #expect(await task.value.failure?.reason == .cancelled)
    }

    @Test func transferThatIsNotAbortable_outlivesItsTask() async throws {
        let (arrived, cancelled) = (AsyncStream<Void>.makeStream(), DispatchSemaphore(value: 0))
        let server = RawServer { connection, _ in
            _ = connection.request()
            arrived.continuation.yield()
            cancelled.wait()
            connection.send(ok)
        }
        defer { server.stop() }
        let task = Task {
            await fixture.loop.send(
                UpstreamRequest(url: server.url, body: [1]), options: TransferOptions(), isAbortable: false)
        }
        for await _ in arrived.stream { break }
        task.cancel()
        cancelled.signal()
        #expect(try await task.value.get().status == 200)
    }

    @Test func cancellingWhatHasEnded_changesNothing() async throws {
        let server = serving(ok)
        defer { server.stop() }
        let transfer = Mutex<SubmittedTransfer?>(nil)
        let first: TransferResult = await withCheckedContinuation { done in
            let submitted = fixture.loop.submit(UpstreamRequest(url: server.url), options: TransferOptions()) {
                done.resume(returning: $0)
            }
            transfer.withLock { $0 = submitted }
        }
        #expect(try first.get().status == 200)
        // The handle may already be in use for the next transfer.
        async let next = fixture.send(UpstreamRequest(url: server.url))
        transfer.withLock { $0 }?.cancel()
        #expect(try await next.get().status == 200)
    }

    // MARK: A kept connection that the server has given up

    @Test func connectionThatEndedWhileIdle_isNoticed_beforeThePost() async throws {
        let ended = AsyncStream<Void>.makeStream()
        let server = RawServer { connection, number in
            while connection.request() != nil, connection.send(ok) {
                guard number == 1 else { continue }
                connection.end()
                ended.continuation.yield()
            }
        }
        defer { server.stop() }
        _ = try fixture.sendInTurn(UpstreamRequest(url: server.url, body: [1])).get()
        for await _ in ended.stream { break }
        #expect(try fixture.sendInTurn(UpstreamRequest(url: server.url, body: [1])).get().status == 200)
        #expect(server.connections == 2)
    }

    /// The server answers one request and ends the connection when it has the next. libcurl would send that again on a
    /// fresh connection, because no byte of an answer came; with POST and PATCH this is not its decision.
    @Test(arguments: [UpstreamRequest.Method.post, .patch, .put, .get, .delete], [false, true])
    func requestOnAStaleConnection_isSentAgain_unlessThatCouldDoHarm(method: UpstreamRequest.Method, byReset: Bool)
        throws
    {
        let seen = Mutex<[String]>([])
        let server = RawServer { connection, number in
            while let request = connection.request() {
                let count = seen.withLock { seen in
                    seen.append(request)
                    return seen.count
                }
                if number == 1, count == 2 {
                    if byReset { connection.resetOnClose() }
                    return
                }
                connection.send(ok)
            }
        }
        defer { server.stop() }
        let request = UpstreamRequest(method: method, url: server.url, body: method == .get ? [] : Array("body".utf8))
        _ = try fixture.sendInTurn(request).get()
        let result = fixture.sendInTurn(request)
        let requests = seen.withLock { $0 }
        #expect(requests.allSatisfy { $0 == requests[0] })
        if [.post, .patch].contains(method) {
            #expect(result.failure?.reason == .interrupted)
            #expect(result.failure?.mayHaveArrived == true)
            #expect(requests.count == 2)
        } else {
            #expect(try result.get().status == 200)
            #expect(requests.count == 3)
        }
    }

    @Test func staleConnection_mayHaveArrived_whenTheServerIsGoneToo() throws {
        let served = Shared<RawServer?>(nil)
        let server = RawServer { connection, _ in
            _ = connection.request()
            connection.send(ok)
            _ = connection.request()
            served.value.withLock { $0?.stop() }
        }
        served.value.withLock { $0 = server }
        _ = try fixture.sendInTurn(UpstreamRequest(method: .put, url: server.url, body: [1])).get()
        let failure = fixture.sendInTurn(UpstreamRequest(method: .put, url: server.url, body: [1])).failure
        #expect(failure?.mayHaveArrived == true)
        #expect(failure?.reason == .interrupted)
    }

    // MARK: Requests that may not be sent any more

    /// Whether requests may be sent.
    private final class Permission: Sendable {
        private let left = Mutex<Int?>(nil)
        var isGiven: Bool {
            left.withLock { left in
                guard let count = left else { return true }
                left = max(0, count - 1)
                return count > 0
            }
        }

        /// Ends after having been asked for so many times.
        func end(after count: Int = 0) { left.withLock { $0 = count } }
    }

    private func send(
        _ request: UpstreamRequest, _ permission: Permission, through proxy: RawServer? = nil
    ) async throws -> TransferResult {
        let loop = try CurlLoop(.init(version: "0", mayStillSend: { permission.isGiven }))
        defer { loop.stop() }
        return await loop.send(request, options: TransferOptions(proxy: proxy.map { .init(url: $0.url) }))
    }

    @Test func requestThatWaits_isNotSent_ifThatIsNotAllowedAnyMore() async throws {
        let server = serving(ok)
        defer { server.stop() }
        let permission = Permission()
        permission.end()
        let failure = try await send(UpstreamRequest(url: server.url, body: [1]), permission).failure
        #expect(failure?.reason == .cancelled && failure?.mayHaveArrived == false)
        #expect(server.connections == 0)
    }

    /// The permission ends before libcurl goes on, or while it does.
    @Test(arguments: [0, 1]) func requestThatConnects_isNotSent_ifThatIsNotAllowedAnyMore(asked: Int) async throws {
        let permission = Permission()
        let seen = Mutex<[String?]>([])
        let proxy = RawServer { connection, _ in
            _ = connection.request()
            permission.end(after: asked)
            connection.send("HTTP/1.1 200 Connection established\r\n\r\n")
            let request = connection.request()
            seen.withLock { $0.append(request) }
        }
        defer { proxy.stop() }
        let request = UpstreamRequest(url: "http://upstream.invalid/", body: [1])
        let failure = try await send(request, permission, through: proxy).failure
        #expect(failure?.reason == .cancelled && failure?.mayHaveArrived == false)
        #expect(eventually { seen.withLock { !$0.isEmpty } })
        #expect(seen.withLock { $0 } == [nil])
    }

    @Test func bodyThatIsBeingSent_isNotCompleted_ifThatIsNotAllowedAnyMore() async throws {
        let permission = Permission()
        let received = Mutex<Int?>(nil)
        let size = 50_000_000
        let server = RawServer { connection, _ in
            var bytes = [UInt8](repeating: 0, count: 1 << 16)
            var sum = recv(connection.socket, &bytes, 1, 0)
            permission.end()
            while case let count = recv(connection.socket, &bytes, bytes.count, 0), count > 0 { sum += count }
            received.withLock { [sum] in $0 = sum }
        }
        defer { server.stop() }
        let request = UpstreamRequest(url: server.url, body: [UInt8](repeating: 1, count: size))
        let failure = try await send(request, permission).failure
        #expect(failure?.reason == .cancelled && failure?.mayHaveArrived == true)
        #expect(eventually { received.withLock { $0 } != nil })
        #expect(received.withLock { $0 ?? 0 } < size)
    }

    @Test func requestThatWasSent_isStillAnswered() async throws {
        let permission = Permission()
        let server = RawServer { connection, _ in
            _ = connection.request()
            permission.end()
            connection.send(ok)
        }
        defer { server.stop() }
        #expect(try await send(UpstreamRequest(url: server.url, body: [1]), permission).get().status == 200)
    }

    // MARK: Threads and the end

    /// Not by tasks: a connection that waits for a minute until one goes on is not used again.
    @Test func submits_areAllAnsweredOnce_fromManyThreads() throws {
        let server = serving(ok)
        defer { server.stop() }
        let answered = Shared([Int](repeating: 0, count: 200))
        let loop = fixture.loop
        let threads = try (0..<8).map { thread in
            try DedicatedThread(name: "submits") {
                let results = Inbox<TransferResult>()
                for number in stride(from: thread, to: 200, by: 8) {
                    loop.submit(UpstreamRequest(url: server.url, body: [1]), options: TransferOptions()) {
                        results.put($0)
                    }
                    for result in results.takeAll(waitingUntil: nil) where (try? result.get())?.status == 200 {
                        answered.value.withLock { $0[number] += 1 }
                    }
                }
            }
        }
        for thread in threads { thread.join() }
        #expect(answered.value.withLock { $0 } == [Int](repeating: 1, count: 200))
        #expect(server.connections <= 8)
    }

    @Test func completion_maySubmitTheNext() async {
        let server = serving(ok)
        defer { server.stop() }
        let loop = fixture.loop
        let result = await withCheckedContinuation { done in
            loop.submit(UpstreamRequest(url: server.url), options: TransferOptions()) { _ in
                loop.submit(UpstreamRequest(url: server.url), options: TransferOptions()) { done.resume(returning: $0) }
            }
        }
        #expect((try? result.get())?.status == 200)
    }

    @Test func stop_cancelsWhatIsInFlight_andWhatComesLater() async throws {
        let arrived = AsyncStream<Void>.makeStream()
        let server = RawServer { connection, _ in
            _ = connection.request()
            arrived.continuation.yield()
            try? connection.waitForEnd()
        }
        defer { server.stop() }
        let loop = fixture.loop
        async let pending = fixture.send(UpstreamRequest(url: server.url, body: [1]))
        for await _ in arrived.stream { break }
        loop.stop()
        loop.stop()
        let failure = await pending.failure
        #expect(failure?.reason == .cancelled)
        #expect(failure?.mayHaveArrived == true)
        let late = await fixture.send(UpstreamRequest(url: server.url)).failure
        #expect(late?.reason == .cancelled)
        #expect(late?.mayHaveArrived == false)
    }
}

/// For closures that outlive the scope of a local `Mutex`.
private final class Shared<Value: Sendable>: Sendable {
    let value: Mutex<Value>
    init(_ value: Value) { self.value = Mutex(value) }
}
