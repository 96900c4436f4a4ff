import Foundation
import Glibc
import PosternConformance
import PosternCore
import PosternSimulatorKit
import PosternSimulators
import PosternStore
import PosternTestKit
import Testing

/// All tests of the built binary, one after the other, because each needs the whole machine.
@Suite(.serialized) enum EndToEnd {}

/// The settings that a test changes; all others have their defaults.
struct Settings {
    var upstreamURL = "http://127.0.0.1:9"
    var server: [String: Any] = ["port": 0]
    var outbox: [String: Any] = [:]
    /// Retries are quick, so that a test need not wait for an outage to be noticed as over.
    var delivery: [String: Any] = ["retryBaseSeconds": 0.05, "retryMaxSeconds": 0.2]
    var logLevel = "info"
    var auth: [String: Any] = [:]
    /// By name; nil: Samsara at `upstreamURL`.
    var upstreams: [String: [String: Any]]?
    var callbacks: [[String: Any]] = []

    func json(store: String) -> String {
        var outbox = ["encryptionKey": String(repeating: "5a", count: 32)].merging(outbox) { $1 }
        outbox["path"] = store
        // No time limit ends the connection of a client that waits for its turn on a busy machine.
        let server = ["headerTimeoutSeconds": 3600, "idleTimeoutSeconds": 3600].merging(server) { $1 }
        let root: [String: Any] = [
            "server": server, "auth": auth, "outbox": outbox, "delivery": delivery, "log": ["level": logLevel],
            "upstreams": upstreams ?? ["samsara": ["url": upstreamURL]], "callbacks": callbacks,
        ]
        let data = try? JSONSerialization.data(withJSONObject: root, options: .sortedKeys)
        return data.map { String(decoding: $0, as: UTF8.self) } ?? ""
    }
}

/// A folder with a configuration and a store, which outlives the gateways that run on it.
final class GatewayDirectory: Sendable {
    let folder = ScratchFolder()
    var store: String { folder.file("data/postern.sqlite") }
    var config: String { folder.file("postern.json") }

    init(_ settings: Settings) throws { try configure(settings) }

    func configure(_ settings: Settings) throws { try write(settings.json(store: store)) }

    func write(_ text: String) throws { try text.write(toFile: config, atomically: true, encoding: .utf8) }

    /// Starts a gateway here and waits until it serves.
    func start(_ arguments: [String] = [], program: [String] = []) async throws -> GatewayProcess {
        let process = try Binary.start(["serve", "--config", config] + arguments, through: program)
        return try await GatewayProcess(process, at: self)
    }

    /// Runs a gateway that is expected to exit at start.
    func fail(_ arguments: [String] = []) async throws -> ChildProcess.Ended {
        try await Binary.run(["serve", "--config", config] + arguments)
    }

    /// The store, and the files next to it, that contain `text`.
    func files(with text: String) throws -> [String] { try folder.files(in: "data", with: text) }

    /// Whether the audit balances. Only without a gateway, whose ledgers are ahead of a reader's snapshot.
    func audit() throws -> Audit { try StoreView(path: store).audit() }
}

/// A running gateway.
final class GatewayProcess: GatewayHarness, Sendable {
    let usualUpstream = "samsara"
    let process: ChildProcess
    let port: UInt16
    /// The log line that reported that it serves.
    let startLine: String
    /// Its folder is removed with the last reference.
    private let directory: GatewayDirectory?

    init(_ process: ChildProcess, at directory: GatewayDirectory? = nil) async throws {
        self.process = process
        self.directory = directory
        let line = try await process.line(of: .errors) { $0.contains(" started ") && $0.contains(" port=") }
        let port = line.split(separator: " ").first { $0.hasPrefix("port=") }.flatMap { UInt16($0.dropFirst(5)) }
        startLine = line
        self.port = try #require(port, "no port in: \(line)")
    }

    func client(patience: Duration = longestWait) throws -> HTTPClient {
        try HTTPClient(port: port, patience: patience)
    }

    /// Stops it in an orderly way.
    @discardableResult func stop() async throws -> ChildProcess.Ended {
        process.signal(SIGTERM)
        let ended = try await process.end()
        #expect(ended.exitCode == 0, "\(ended.errors)")
        return ended
    }

    func kill() async throws {
        process.signal(SIGKILL)
        _ = try await process.end()
    }

    func connection() throws -> HTTPClient { try client() }

    /// Posts a message that expires in two seconds, or later if that is too early for a busy machine. Returns its id.
    func postExpiring(_ envelope: (_ expiresAt: Timestamp) -> String) throws -> String {
        for seconds in [2, 20, 200] {
            let answer = try client().post("/v1/messages", envelope(SystemTime().now + .seconds(seconds)))
            if let id = answer.json["id"].string { return id }
            try #require(answer.status == 422, "\(answer.text)")
        }
        throw ChildProcess.Failure(description: "no message was accepted before it expired")
    }

    /// Waits until no message is queued.
    func waitUntilDelivered(to name: String = "samsara") throws {
        let client = try client()
        var last = JSON([])
        let isDone = try eventually(every: .milliseconds(20)) {
            last = try client.get("/v1/upstreams/\(name)").json
            return last["queued"].int == 0 && last["inFlight"].int == 0
        }
        try #require(isDone, "still queued: \(last)")
    }
}

extension HostedSimulator {
    convenience init(_ type: String = "samsara", faults: String = "") throws {
        let known = try #require(SimulatorRegistry.all.first { $0.name == type })
        try self.init(known, faults: faults)
    }
}

/// An event in Samsara's format.
func event(_ sequence: Int, source: String = "device-1", name: String = "test.event") -> String {
    #"{"timestamp":1479988864057,"sourceId":"\#(source)","eventName":"\#(name)","seq":\#(sequence)}"#
}

func events(_ sequences: Range<Int>, source: String = "device-1") -> String {
    "[" + sequences.map { event($0, source: source) }.joined(separator: ",") + "]"
}

/// The path that messages are posted to.
let eventPath = "/v1/samsara/event"

/// A port of this machine on which no process listened a moment ago.
func freePort() -> UInt16 {
    let socket = boundSocket()
    defer { close(socket) }
    return port(of: socket)
}
