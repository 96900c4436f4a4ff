import Logging
import PosternCore
import PosternDelivery
import PosternHTTP
import PosternMetrics
import PosternStore
import PosternTestKit
import PosternThreads
import PosternUpstream
import Synchronization
import Testing

@testable import PosternAPI

/// An upstream with rules, so that there is something to break: an object, `n` an integer, `name` a string if it is
/// there. Messages of one `lane` keep their order. Everything else is `PlainUpstream`'s.
struct PickyUpstream: PlainAtHeart, TokenUpstream, SettingsHoldingUpstream {
    static let secret = "hush-hush"
    let plain: PlainUpstream
    var tokenSource: (any TokenSource)?
    /// Tokens are only fetched once there is a message, so that tests control them.
    let verifiesAtStart = false

    init(_ name: String, tokenSource: (any TokenSource)? = nil) {
        plain = PlainUpstream(name, kinds: ["event", "note"])
        self.tokenSource = tokenSource
    }

    let address = "http://picky.test/"
    let missingSettings: [String] = []
    var secrets: [String] { [Self.secret] }

    func validate(_ payload: JSONValue, of kind: Kind, in context: ValidationContext) throws(InvalidPayload)
        -> ValidPayload
    {
        guard payload.kind == .object else { throw InvalidPayload([PayloadError("", "must be an object")]) }
        var faults = PayloadErrors()
        if payload["n"]?.integer == nil { faults.add("/n", "must be an integer") }
        if let name = payload["name"], name.kind != .string { faults.add("/name", "must be a string") }
        guard faults.isEmpty else { throw InvalidPayload(faults) }
        let lane = payload["lane"]?.integer.map { Lane.digest($0) } ?? .none
        return ValidPayload(lane: lane)
    }

    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        let headers = [("Content-Type", "application/json"), ("X-Key", Self.secret)]
        return .send(
            UpstreamRequest(
                url: "http://picky.test/events", headers: headers, body: messages.spliced(prefix: "[", suffix: "]")),
            count: messages.count)
    }
}

/// Returns a token or a rejection, whatever the response is.
struct TestTokens: TokenSource {
    var tokenRequest: UpstreamRequest { UpstreamRequest(url: "http://tokens.test/", headers: [], body: []) }
    func token(from response: UpstreamResponse, now: Timestamp) throws(Token.Failure) -> Token {
        guard response.status == 200 else {
            throw Token.Failure(credentialsRefused: response.status == 401, detail: "HTTP \(response.status)")
        }
        return Token(value: "t", renewAt: now + .seconds(3600), expiresAt: now + .seconds(7200))
    }
}

/// The configuration of a gateway under test.
struct Setup {
    var upstreams: [any Upstream] = [PickyUpstream("picky"), PlainUpstream("plain")]
    var caps: [String: QueueCap] = [:]
    var limits: RequestLimits = {
        var limits = RequestLimits()
        (limits.maxBodyBytes, limits.maxMessagesPerRequest) = (64 << 10, 1000)
        return limits
    }()
    var memory = ByteBudget(256 << 20)
    /// For bodies that are being read.
    var bodyMemory = ByteBudget(.max)
    var delivery = DeliverySettings.with {
        ($0.maxInFlight, $0.batchMaxWait, $0.retry) = (
            1, .zero, RetryPolicy(base: .seconds(3600), longest: .seconds(3600))
        )
    }
    var results: [TransferResult] = []
    /// Upstreams that are paused before anything is accepted.
    var paused: Set<String> = []
    var stalled: [String] = []
    var maxBytes = 0
    /// How long payloads of delivered messages are kept.
    var deliveredPayloads = Duration.zero
    var encryptionKeys = EncryptionKeys()
    /// If it is nil, the gateway gets a store of its own.
    var folder: ScratchFolder?
    var tls = TLSFiles()
    var callers = CallerPolicy()
    /// Whether there is a separate listener for operators.
    var hasAdminListener = false
    var servesConsole = true
    var time: any TimeSource = SystemTime()
    var log: any LogHandler = SwiftLogNoOpLogHandler()
}

/// A gateway with a real store and a real server. The test determines how its upstreams respond.
final class TestGateway: GatewayHarness {
    let usualUpstream = "picky"
    let folder: ScratchFolder
    let transport = ScriptedTransport()
    let outbox: Outbox
    let context: APIContext
    let handler: GatewayHandler
    let server: HTTPServer
    let adminServer: HTTPServer?
    let workers: [UpstreamWorker]
    let port: UInt16
    /// The port of the listener for operators. Without one, the port of the only listener.
    let adminPort: UInt16
    let client: HTTPClient

    init(_ setup: Setup) throws {
        folder = setup.folder ?? ScratchFolder()
        let logger = Logger(label: "test") { _ in setup.log }
        let metrics = Metrics()
        let time = setup.time
        var options = OutboxOptions(path: folder.file("postern.sqlite"))
        (options.maxBytes, options.encryptionKeys) = (setup.maxBytes, setup.encryptionKeys)
        options.deliveredPayloadRetention = setup.deliveredPayloads
        outbox = try Outbox(options, time: time, threads: DedicatedThreads(), metrics: metrics, logger: logger)
        for result in setup.results { transport.expect(result) }
        let dependencies = UpstreamWorker.Dependencies(
            outbox: outbox, transport: transport, time: time, metrics: metrics, logger: logger, random: { 1 })
        var workers: [UpstreamWorker] = []
        for upstream in setup.upstreams {
            let target = try outbox.register(
                upstream, type: "plain", cap: setup.caps[upstream.name.description] ?? QueueCap())
            let queue = try outbox.adopt(target)
            let worker = try UpstreamWorker(queue: queue, settings: setup.delivery, dependencies: dependencies)
            if setup.paused.contains(upstream.name.description) { worker.pause() }
            workers.append(worker)
        }
        self.workers = workers
        try outbox.registerStored()
        outbox.setCallbacks([])
        let stalled = setup.stalled
        context = try APIContext(
            outbox: outbox, upstreams: workers.map { ServedUpstream(type: "plain", worker: $0) }, limits: setup.limits,
            memory: setup.memory, servesConsole: setup.servesConsole,
            time: time, metrics: metrics, logger: logger, stalledWorkers: { stalled })
        try workers.forEach { try $0.start() }
        context.resumeReplays()
        handler = GatewayHandler(context, callers: setup.callers, hasAdminListener: setup.hasAdminListener)
        let settings = HTTPServerSettings {
            ($0.port, $0.workerThreads, $0.tls) = (0, 2, setup.tls)
            // No time limit ends a connection before the test is over.
            ($0.headerTimeout, $0.idleTimeout) = (.seconds(3600), .seconds(3600))
        }
        server = HTTPServer(settings, memory: setup.bodyMemory, handler: handler, logger: logger)
        port = try server.start()
        adminServer = setup.hasAdminListener ? HTTPServer(settings, handler: handler.admin, logger: logger) : nil
        adminPort = try adminServer?.start() ?? port
        client = try HTTPClient(port: port)
    }

    func stop() {
        context.beginDraining()
        server.stopAndWait(grace: .seconds(5))
        adminServer?.stopAndWait(grace: .seconds(5))
        workers.forEach { $0.beginStopping() }
        // Cancels the requests that the test left open, as the real transport does when it stops.
        let cancelled = TransferResult.failure(TransferFailure(.cancelled, mayHaveArrived: false, detail: "stopped"))
        while transport.answer(cancelled) {}
        workers.forEach { $0.join() }
        outbox.close()
    }

    // MARK: Common requests

    /// Posts one message and returns its id.
    func accept(_ path: String = "/v1/picky/event", _ body: String = #"{"n":1}"#) throws -> String {
        let answer = try client.post(path, body)
        return try #require(answer.json["id"].string, "\(answer.text)")
    }

    /// A message of the first upstream as no request to the API brings it.
    func newMessage(
        _ text: String = #"{"n":1}"#, expiresAt: Timestamp? = nil, isFromSDK: Bool = false, failure: String? = nil
    ) -> NewMessage {
        NewMessage(
            queue: workers[0].queue.target, kind: "event", acceptedAt: SystemTime().now, expiresAt: expiresAt,
            bytes: Array(text.utf8), isFromSDK: isFromSDK, failure: failure)
    }

    /// Stores messages without a request.
    @discardableResult func append(_ messages: [NewMessage]) throws -> AppendReceipt {
        let receipt = Mutex<AppendReceipt?>(nil)
        outbox.append(messages, recording: nil) { result in receipt.withLock { $0 = try? result.get() } }
        try #require(eventually { receipt.withLock { $0 != nil } }, "they were not stored")
        return try #require(receipt.withLock { $0 })
    }

    /// Stores a message that has expired already, and returns its id.
    func storeExpired() throws -> String {
        try append([newMessage(expiresAt: SystemTime().now)]).ids[0].description
    }

    func waitFor(_ reason: String?, of id: String) throws { try wait(for: "waitingFor", reason, of: id) }

    func waitForOpenRequest() throws {
        try #require(eventually { !transport.openRequests.isEmpty }, "nothing was sent")
    }

    var queued: Int { workers.reduce(0) { $0 + outbox.ledger(of: $1.queue.number).queued } }

    func connection() -> HTTPClient { client }
}

/// Runs `body` against a gateway of its own, stops it, and checks its audit.
func withGateway(_ setup: Setup = Setup(), _ body: (TestGateway) throws -> Void) throws {
    let gateway = try TestGateway(setup)
    let result = Result { try body(gateway) }
    let audit = Result { try gateway.outbox.audit().isBalanced }
    gateway.stop()
    try result.get()
    #expect(try audit.get(), "the books do not balance")
}

/// All upstreams are paused, so accepted messages stay queued.
func withPausedGateway(_ setup: Setup = Setup(), _ body: (TestGateway) throws -> Void) throws {
    var setup = setup
    setup.paused = Set(setup.upstreams.map(\.name.description))
    try withGateway(setup) { gateway in
        // Each worker shows it after its first turn.
        #expect(eventually { gateway.workers.allSatisfy(\.snapshot.isPaused) })
        try body(gateway)
    }
}

extension HTTPClient.Answer {
    /// Checks that this is a problem of RFC 9457 with all of its members. `slug` is the last part of its type.
    func problem(
        _ status: Int, _ slug: String, sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(self.status == status, "\(text)", sourceLocation: sourceLocation)
        #expect(header("Content-Type") == "application/problem+json", sourceLocation: sourceLocation)
        #expect(json["type"].string == "urn:postern:problem:\(slug)", "\(text)", sourceLocation: sourceLocation)
        #expect(json["status"].int == status, sourceLocation: sourceLocation)
        #expect(json["title"].string?.isEmpty == false, sourceLocation: sourceLocation)
        #expect(json["detail"].string?.isEmpty == false, sourceLocation: sourceLocation)
        #expect(json["instance"].string?.hasPrefix("/") == true, sourceLocation: sourceLocation)
        #expect(json["requestId"].string == header("X-Request-Id"), sourceLocation: sourceLocation)
    }
}
