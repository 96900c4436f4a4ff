import Glibc
import Logging
import PosternCore
import PosternGateway
import PosternGatewayTestKit
import PosternMetrics
import PosternStore
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternCommands

/// What `check` finds although every setting is valid: whatever would stop `serve`.
@Suite struct StartCheckTests {
    private let folder = ScratchFolder()

    private func report(
        on text: String, secrets: [String: String] = [:], asJSON: Bool = false
    ) throws -> (text: String, exitCode: Int32) {
        let scratch = try ScratchConfiguration(text, secrets: secrets)
        try scratch.write("no store at all, and long enough not to be taken for an empty one", to: "text.sqlite")
        let loader = ConfigurationLoader(
            types: [.post, .trap], environment: ["POSTERN_OUTBOX_PATH": scratch.directory + "/data/new.sqlite"],
            file: scratch.file, secretsDirectory: scratch.directory + "/secrets")
        let isStoreNamed = text.contains("outbox")
        let checked = isStoreNamed ? scratch.loader() : loader
        let report = CheckReport(on: checked, asJSON: asJSON)
        return (report.text.replacing(scratch.directory, with: "DIR"), report.exitCode)
    }

    @Test func soundConfiguration_isFine() throws {
        #expect(try report(on: #"{"server": {"port": 0}}"#).exitCode == 0)
    }

    @Test func keysOffLoopback_areFine() throws {
        let digest = String(repeating: "0a", count: 32)
        let report = try report(
            on: #"{"server": {"host": "0.0.0.0", "port": 0}, "#
                + #""auth": {"keys": [{"name": "a", "sha256": "\#(digest)", "scopes": ["read"]}]}}"#)
        #expect(report.exitCode == 0, "\(report.text)")
    }

    @Test func digestOfAKey_isReadFromASecretFile() throws {
        let text = #"{"server": {"port": 0}, "auth": {"keys": [{"name": "app", "scopes": ["read"]}]}}"#
        let digest = String(repeating: "0a", count: 32)
        #expect(try report(on: text, secrets: ["auth-keys-app": digest + "\n"]).text.contains("Warning") == false)
        #expect(try report(on: text, secrets: ["auth-keys-app": digest]).exitCode == 0)
        #expect(try report(on: text).text.contains("auth.keys[0].sha256 is missing"))
        let wrong = try report(on: text, secrets: ["auth-keys-app": "short"])
        #expect(wrong.exitCode == 78 && !wrong.text.contains("short"))
    }

    @Test func keyOfAnotherCertificate_isFound() throws {
        let (own, other) = (try TestCertificate("own", in: folder), try TestCertificate("other", in: folder))
        let tls = #"{"certificateFile": "\#(own.certificate)", "keyFile": "\#(other.key)"}"#
        let report = try report(on: #"{"server": {"port": 0, "tls": \#(tls)}}"#)
        #expect(report.text.contains("server.tls cannot be used: \(own.certificate) and \(other.key) are refused: "))
    }

    @Test func certificateThatCannotBeRead_isFoundOnce() throws {
        let tls = #"{"certificateFile": "/nowhere/a.crt", "keyFile": "/nowhere/a.key"}"#
        let report = try report(on: #"{"server": {"port": 0, "tls": \#(tls)}}"#)
        #expect(report.text.contains("has 2 problems:"), "\(report.text)")
    }

    @Test func addressOfAnotherMachine_isFound() throws {
        let report = try report(
            on: #"{"server": {"host": "192.0.2.1", "port": 0}, "auth": {"allowAnonymous": true}}"#)
        #expect(report.text.contains("server.host cannot be used: cannot listen on 192.0.2.1:0: "))
    }

    @Test func adminAddressOfAnotherMachine_isFound() throws {
        let report = try report(
            on: #"{"server": {"port": 0, "admin": {"host": "192.0.2.1"}}, "auth": {"allowAnonymous": true}}"#)
        #expect(report.text.contains("server.admin.host cannot be used: cannot listen on 192.0.2.1:0: "))
    }

    @Test func storeBelowAFile_isFound_byItsAbsolutePath() throws {
        let report = try report(on: #"{"server": {"port": 0}, "outbox": {"path": "/dev/null/a/b.sqlite"}}"#)
        #expect(
            report.text.contains(
                "outbox.path cannot be used: no store can be created at /dev/null/a/b.sqlite: /dev/null is not a "
                    + "directory"), "\(report.text)")
    }

    /// Whether `check` accepts a name, and whether a store can be created under it.
    @Test func nameThatNoStoreCanHave_isFound() throws {
        symlink(folder.file("nowhere"), folder.file("link"))
        func name(_ bytes: Int) -> String { String(repeating: "n", count: bytes) }
        let start = folder.file("\(name(200))/\(name(150))/")
        let paths = [
            (folder.file(name(243)), true), (folder.file(name(244)), false), (folder.file("new/"), false),
            (start + name(500 - start.utf8.count), true), (start + name(501 - start.utf8.count), false),
            (folder.file("link/new"), false),
        ]
        for (path, isUsable) in paths {
            let report = try report(on: #"{"server": {"port": 0}, "outbox": {"path": "\#(path)"}}"#)
            #expect((report.exitCode == 0) == isUsable, "\(path): \(report.text)")
            var options = OutboxOptions()
            options.path = path
            let outbox = try? PosternStore.Outbox(
                options.located, time: SystemTime(), threads: DedicatedThreads(), metrics: Metrics(),
                logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
            #expect((outbox != nil) == isUsable, "\(path)")
            outbox?.close()
        }
    }

    @Test func fileThatIsNotAStore_isCalledThat() throws {
        let scratch = try ScratchConfiguration("{}")
        try scratch.write("no store at all, and long enough not to be taken for an empty one", to: "text.sqlite")
        try scratch.write(
            #"{"server": {"port": 0}, "outbox": {"path": "\#(scratch.directory)/text.sqlite"}}"#, to: "config.json")
        let text = CheckReport(on: scratch.loader()).text.replacing(scratch.directory, with: "DIR")
        #expect(text.contains("outbox.path cannot be used: DIR/text.sqlite is not a Postern store"), "\(text)")
        #expect(!text.contains("--start-fresh"))
    }

    /// A store with a message that the upstream `post` accepted as another type.
    private func store(queued: Bool, at path: String) throws {
        var options = OutboxOptions()
        options.path = path
        let threads = DedicatedThreads()
        let outbox = try PosternStore.Outbox(
            options, time: SystemTime(), threads: threads, metrics: Metrics(),
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        outbox.setCallbacks([])
        let queue = try outbox.register(PlainUpstream("post"), type: "former", cap: QueueCap())
        if queued {
            let message = NewMessage(
                queue: queue, kind: queue.upstream.kinds[0], acceptedAt: SystemTime().now, bytes: Array("{}".utf8))
            _ = try threads.result { outbox.append([message], completion: $0) }
        }
        outbox.close()
    }

    @Test(arguments: [false, true]) func messagesOfAnotherType_areAProblem_whileTheyAreQueued(queued: Bool) throws {
        let path = folder.file("store.sqlite")
        try store(queued: queued, at: path)
        let report = try report(
            on: #"{"server": {"port": 0}, "upstreams": {"post": {}}, "outbox": {"path": "\#(path)"}}"#)
        #expect(report.exitCode == (queued ? 78 : 0), "\(report.text)")
        guard queued else { return }
        #expect(
            report.text.contains(
                "upstreams.post.type cannot be used: the store has 1 messages that upstream post accepted"))
        #expect(report.text.contains("another name") && report.text.contains("postern outbox purge"))
    }

    @Test func storeThatOthersCanRead_isWarnedAbout() throws {
        let path = folder.file("store.sqlite")
        try store(queued: false, at: path)
        chmod(folder.path, 0o755)
        chmod(path, 0o644)
        let report = try report(on: #"{"server": {"port": 0}, "outbox": {"path": "\#(path)"}}"#)
        #expect(report.exitCode == 0)
        #expect(
            report.text.contains(
                "Warning: outbox.path is not private: other users can read or change \(path), mode 0644"),
            "\(report.text)")
    }

    @Test func relativePath_isNamedAbsolutely() {
        var settings = OutboxOptions()
        settings.path = "data/../x.sqlite"
        #expect(settings.absolutePath.hasPrefix("/"))
        #expect(settings.absolutePath.hasSuffix("/x.sqlite"))
        #expect(!settings.absolutePath.contains(".."))
    }

    @Test func everyProblem_isReportedAtOnce() throws {
        let digest = String(repeating: "0a", count: 32)
        let report = try report(
            on: #"{"server": {"host": "0.0.0.0", "port": 0, "prot": 1}, "delivery": {"retryBaseSeconds": 400}, "#
                + #""auth": {"keys": [{"name": "a", "sha256": "\#(digest)", "scopes": ["read"]}]}, "#
                + #""upstreams": {"post": {"apiKey": "wrong", "url": "ftp://x"}}, "outbox": {"path": "/dev/null/x"}}"#)
        for part in ["server.prot", "retryBaseSeconds", "post.url", "/dev/null/x"] {
            #expect(report.text.contains(part), "\(part): \(report.text)")
        }
    }

    // MARK: Secret files

    @Test func misspeltSecretFile_isWarnedAbout_withTheNearestName() throws {
        let secrets = ["outbox-encriptionKey": "x", "oubtox-encryptionKey": "y", "of-another-program": "z"]
        let found = try report(on: #"{"server": {"port": 0}}"#, secrets: secrets)
        #expect(found.exitCode == 0)
        #expect(
            found.text.split(separator: "\n").dropFirst() == [
                "Warning: DIR/secrets/oubtox-encryptionKey is not read by any setting; did you mean outbox-encryptionKey?",
                "Warning: DIR/secrets/outbox-encriptionKey is not read by any setting; did you mean outbox-encryptionKey?",
            ], "\(found.text)")
        let json = try report(on: #"{"server": {"port": 0}}"#, secrets: ["outbox-encriptionKey": "x"], asJSON: true)
        #expect(json.text.contains(#""warnings":[{"path":"DIR/secrets/outbox-encriptionKey","#))
    }

    // MARK: A gateway that starts and does not deliver

    private func warnings(_ upstreams: String, _ rest: String = "") throws -> [String] {
        let scratch = try ScratchConfiguration(#"{"server": {"port": 0}, "upstreams": \#(upstreams)\#(rest)}"#)
        let loader = ConfigurationLoader(
            types: UpstreamRegistry.all,
            environment: ["POSTERN_OUTBOX_PATH": scratch.directory + "/data/new.sqlite"],
            file: scratch.file, secretsDirectory: nil)
        let report = CheckReport(on: loader)
        #expect(report.exitCode == 0, "\(report.text)")
        return report.text.split(separator: "\n").dropFirst().map { String($0.dropFirst("Warning: ".count)) }
    }

    @Test(arguments: [
        (#"{"hook": {"type": "webhook"}}"#, ["hook.url"]),
        (#"{"hook": {"type": "webhook", "url": "https://h.test", "auth": {"type": "bearer"}}}"#, ["hook.auth.token"]),
        (#"{"seer": {}}"#, ["seer.clientId", "seer.clientSecret"]),
        (#"{"samsara": {}, "hook": {"type": "webhook", "enabled": false}}"#, []),
    ])
    func settingsThatMessagesWaitFor_areWarnedAbout(upstreams: String, missing: [String]) throws {
        let sayings = missing.map { "upstreams.\($0) has to be filled in; messages wait until it is" }
        #expect(try warnings(upstreams) == sayings)
    }

    @Test func expiredKey_isWarnedAbout_andNoOther() throws {
        let keys = ["2020-01-01T00:00:00Z", "9000-01-01T00:00:00Z"].enumerated().map { index, time in
            let digest = String(repeating: "0\(index)", count: 32)
            return #"{"name": "k\#(index)", "sha256": "\#(digest)", "scopes": ["read"], "expiresAt": "\#(time)"}"#
        }
        let found = try warnings("{}", #", "auth": {"keys": [\#(keys.joined(separator: ","))]}"#)
        #expect(found == ["auth.keys[0].expiresAt is 2020-01-01T00:00:00.000Z; the key has expired"])
    }

}
