import Logging
import PosternCore
import PosternDelivery
import PosternGatewayTestKit
import PosternHTTP
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing
@testable import PosternStore

@testable import PosternGateway

/// Reloads of the services while they run, with a real store and no listener.
@Suite(.timeLimit(.minutes(10))) struct ReloadTests {
    private let scratch: ScratchConfiguration
    private let services: Services

    init() throws {
        let scratch = try ScratchConfiguration(nil)
        self.scratch = scratch
        services = try Services(
            Self.load(#""a""#, in: scratch), App.Options(configFile: ConfigurationFile(scratch.file)),
            in: Environment(makeListeners: { _, _, _, _ in NoListeners() }),
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    }

    /// The configuration with an upstream that has these kinds.
    private static func load(
        _ kinds: String, in scratch: ScratchConfiguration
    ) throws -> ConfigurationLoader.LoadedConfiguration {
        let text = """
            {"outbox": {"path": "\(scratch.directory)/store.sqlite"}, "upstreams": {"listed": {"kinds": [\(kinds)]}}}
            """
        try scratch.write(text, to: "config.json")
        return try scratch.loader(types: [UpstreamType(ListedUpstream.self)]).load()
    }

    private func execute(_ sql: String) throws {
        try DedicatedThreads().result {
            services.outbox.writer.change({ try $0.sql.connection.execute(sql) }, completion: $0)
        }
    }

    private var kinds: [Kind] { services.upstreams.flatMap(\.queue.upstream.kinds) }

    @Test func settings_areThoseBefore_untilAReload_ifTheStoreFails() throws {
        _ = try services.start()
        defer { services.stop { true } }
        try execute("CREATE TRIGGER refusal BEFORE INSERT ON kinds BEGIN SELECT RAISE(ABORT, 'refused'); END")
        let (old, new) = (try Self.load(#""a""#, in: scratch), try Self.load(#""a", "b""#, in: scratch))
        for _ in 0..<2 {
            #expect(services.reload(new).live == ["upstreams.listed.kinds"])
            #expect(kinds == ["a"])
        }
        #expect(services.reload(old).isEmpty, "the settings in force are the ones before")
        try execute("DROP TRIGGER refusal")
        _ = services.reload(new)
        #expect(kinds == ["a", "b"])
    }

    @Test func callers_takeTurns_fromTheSecondKeyThatMayWrite_untilTheSettingEndsIt() throws {
        _ = try services.start()
        defer { services.stop { true } }
        func key(_ name: String, _ scope: String = "write", weight: Int = 1) -> String {
            let digest = String(repeating: name, count: 64)
            return #"{"name":"\#(name)","sha256":"\#(digest)","scopes":["\#(scope)"],"weight":\#(weight)}"#
        }
        func fairness(_ keys: [String], by setting: String = "caller") throws -> Fairness? {
            let text = """
                {"outbox": {"path": "\(scratch.directory)/store.sqlite"},
                "auth": {"keys": [\(keys.joined(separator: ","))]}, "delivery": {"fairBy": "\(setting)"}, "upstreams": {"listed": {"kinds": ["a"]}}}
                """
            try scratch.write(text, to: "config.json")
            _ = services.reload(try scratch.loader(types: [UpstreamType(ListedUpstream.self)]).load())
            let queue = try #require(services.upstreams.first?.queue)
            #expect(queue.hasTurns == (queue.fairness != nil))
            return queue.fairness
        }
        #expect(try fairness([key("a"), key("b", "read")]) == nil)
        let both = try fairness([key("a"), key("b", weight: 5)])
        #expect(both == Fairness(by: .caller, callers: ["a": 1, "b": 5]))
        #expect(try fairness([key("a"), key("b")], by: "none") == nil)
        #expect(try fairness([key("a")], by: "key") == Fairness(by: .key, callers: ["a": 1]))
        #expect(try fairness([]) == nil)
    }

    @Test func upstream_isServed_whileNoWorkerSends_andIsDisabledByAReload() throws {
        _ = try services.start()
        defer { services.stop { true } }
        let name = try #require(services.upstreams.first?.name)
        let queue = services.upstreams[0].queue
        for isHurried in [false, true] {
            services.release(name, isHurried: isHurried)
            #expect(
                eventually {
                    services.endRetired(); return !services.workerGroup.isRetiring(name)
                })
            #expect(services.upstreams.map { $0.worker == nil } == [true])
            let message = NewMessage(queue: queue, kind: "a", acceptedAt: SystemTime().now, bytes: Array("{}".utf8))
            _ = try DedicatedThreads().result { services.outbox.append([message], completion: $0) }
            #expect(services.condition.queued > 0)
            try services.adopt(name)
            #expect(services.upstreams.map { $0.worker == nil } == [false])
        }
        services.release(name)
        #expect(
            eventually {
                services.endRetired(); return !services.workerGroup.isRetiring(name)
            })
        try scratch.write(#"{"outbox": {"path": "\#(scratch.directory)/store.sqlite"}}"#, to: "config.json")
        _ = services.reload(try scratch.loader(types: []).load())
        #expect(services.upstreams.isEmpty)
        #expect(services.outbox.target(queue.number)?.isDisabled == true)
    }
}

/// A type whose kinds are settings.
private struct ListedUpstream: SilentUpstream {
    struct Settings: SettingsSection {
        var kinds: [String] = []
        static let fields: [SettingField<Self>] = [.list("kinds", \.kinds, "What it takes.")]
    }

    static let typeName = "listed"
    let name: UpstreamName
    let settings: Settings
    var kinds: [Kind] { settings.kinds.map { Kind($0) } }

    init(_ name: UpstreamName, _ settings: Settings) {
        self.name = name
        self.settings = settings
    }
}

private struct NoListeners: Listeners {
    let runningRequests = 0
    let certificateExpiry: Timestamp? = nil

    func start() -> (main: UInt16, admin: UInt16?) { (0, nil) }
    func stopAccepting() {}
    func stop() {}
    func renewCertificates() -> (isRenewed: Bool, failure: HTTPServerError?) { (false, nil) }
}

/// Services that get only some of the threads that they require.
@Suite(.timeLimit(.minutes(10))) struct FewThreadsTests {
    /// What was opened is closed again, so that the next start succeeds.
    @Test func services_doNotStart_withoutAnyOfTheirThreads() throws {
        let scratch = try ScratchConfiguration(nil)
        var refused: [String] = []
        for count in 0... {
            do {
                let services = try services(FewThreads(count), of: scratch)
                do {
                    _ = try services.start()
                    services.stop { true }
                    break
                } catch {
                    services.abandon()
                    throw error
                }
            } catch let error as AppError {
                #expect(error.exitCode == 71)
                refused += "\(error)".split(separator: " ").filter { $0.hasSuffix(":") }.map {
                    "\($0.dropLast())"
                }
            }
            try #require(count < 100)
        }
        #expect(
            refused == [
                "postern-check", "postern-writer", "postern-reads-0", "postern-timer", "postern-calls",
                "postern-logins", "postern-proofs", "to-listed",
            ])
    }

    @Test func upstreamWithoutAThread_isAddedByALaterReload() throws {
        let scratch = try ScratchConfiguration(nil)
        let services = try services(FewThreads(8), of: scratch)
        _ = try services.start()
        defer { services.stop { true } }
        let text = """
            {"outbox": {"path": "\(scratch.directory)/store.sqlite"}, "upstreams": {"listed": {}, "other": {"type": "listed"}}}
            """
        try scratch.write(text, to: "config.json")
        _ = services.reload(try scratch.loader(types: [UpstreamType(ListedUpstream.self)]).load())
        #expect(services.upstreams.map(\.name.description) == ["listed"])
        #expect(services.configuration.upstreams.first { $0.name.description == "other" }?.isEnabled == false)
    }

    private func services(_ threads: FewThreads, of scratch: ScratchConfiguration) throws -> Services {
        let text = #"{"outbox": {"path": "\#(scratch.directory)/store.sqlite"}, "upstreams": {"listed": {}}}"#
        try scratch.write(text, to: "config.json")
        return try Services(
            scratch.loader(types: [UpstreamType(ListedUpstream.self)]).load(),
            App.Options(configFile: ConfigurationFile(scratch.file)),
            in: Environment(threads: threads, makeListeners: { _, _, _, _ in NoListeners() }),
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    }
}
