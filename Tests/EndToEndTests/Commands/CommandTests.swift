import Crypto
import Foundation
import Glibc
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@Suite struct CommandTests {
    private let folder = ScratchFolder()

    // MARK: Help

    private struct Help: Decodable {
        let command: Command

        struct Command: Decodable {
            let commandName: String
            let abstract: String?
            let arguments: [Argument]?
            let subcommands: [Command]?
        }
        struct Argument: Decodable {
            let abstract: String?
            let valueName: String?
        }
    }

    @Test func everyCommandAndOption_isDescribed() async throws {
        let ended = try await Binary.run(["--experimental-dump-help"])
        let help = try JSONDecoder().decode(Help.self, from: Data(ended.output.utf8))
        var commands = [help.command]
        var undescribed: [String] = []
        while let command = commands.popLast() {
            // The help of the argument parser itself.
            guard command.commandName != "help" else { continue }
            if command.abstract?.isEmpty ?? true { undescribed.append(command.commandName) }
            for argument in command.arguments ?? [] where argument.abstract?.isEmpty ?? true {
                undescribed.append("\(command.commandName) \(argument.valueName ?? "")")
            }
            commands += command.subcommands ?? []
        }
        #expect(undescribed.isEmpty)
    }

    @Test(arguments: [
        (["serve", "--confg", "x"], "postern: --confg is not an option of serve; did you mean --config?"),
        (["serve", "--confg=x"], "postern: --confg is not an option of serve; did you mean --config?"),
        (["outbox", "lst"], "postern: lst is not a subcommand of outbox; did you mean list?"),
        (["serv"], "postern: serv is not a subcommand of postern; did you mean serve?"),
        (["keys", "new", "--nme", "a"], "postern: --nme is not an option of new; did you mean --name?"),
    ])
    func wrongWord_isExplained_withTheNearestOne(arguments: [String], hint: String) async throws {
        let ended = try await Binary.run(arguments)
        #expect(ended.exitCode == 64)
        #expect(ended.errors.hasPrefix(hint + "\n"), "\(ended.errors)")
    }

    /// The standard library then sees no arguments, which must not count as a request for the help. The address
    /// sanitizer finds the threads in /proc whose memory it searches for leaks, and reads there whether it is to.
    @Test(.enabled(if: SmallDisk.isAvailable && !Binary.hasAddressSanitizer))
    func commandLineThatCannotBeRead_isNoSuccess() async throws {
        let script = "umount -l /proc && exec \"$0\" \"$@\""
        let ended = try await ChildProcess([
            "/usr/bin/unshare", "--mount", "/bin/sh", "-c", script, Binary.path, "check",
        ]).end()
        #expect(ended.exitCode == 64)
        #expect(ended.errors.hasSuffix("postern: cannot read the command line; /proc is not mounted\n"))
        #expect(ended.output.isEmpty)
    }

    /// Its output may be a key that is shown once, or the only copy of messages.
    @Test func resultThatCannotBeWritten_isNoSuccess() async throws {
        let ended = try await Binary.start(
            ["keys", "new", "--name", "backend", "--scopes", "write"],
            through: ["/bin/sh", "-c", #"exec "$0" "$@" >/dev/full"#]
        ).end()
        #expect(ended.exitCode == 1)
        #expect(ended.errors == "postern: Cannot write to standard output: No space left on device.\n")
    }

    // MARK: simulate, healthcheck, keys

    @Test func simulate_printsEachAddress_andEndsOnSIGTERM() async throws {
        let simulators = try Binary.start(["simulate", "--port", "0", "--faults", "status=503:x1"])
        let line = try await simulators.line { $0.hasPrefix("samsara http://127.0.0.1:") }
        let port = try #require(line.split(separator: ":").last.flatMap { UInt16($0) })
        #expect(try HTTPClient(port: port).get("/received").status == 200)
        simulators.signal(SIGTERM)
        let ended = try await simulators.end()
        #expect(ended.exitCode == 0)
        let lines = ended.output.split(separator: "\n")
        #expect(lines.count { $0 == line } == 1)
        #expect(lines.allSatisfy { $0.contains(" http://127.0.0.1:") })
    }

    @Test func simulate_refusesFaultsThatCannotBeRead() async throws {
        let ended = try await Binary.run(["simulate", "--port", "0", "--faults", "status=9"])
        #expect(ended.exitCode == 64)
        #expect(ended.errors.contains("fault \"status=9\": a status is a number from 200 to 599"))
    }

    /// `--store` has a path or none.
    @Test(arguments: [
        [], ["--store"], ["--store", "--json"], ["--json", "--store"], ["--store", "DIR/other.sqlite"],
    ])
    func check_examinesTheConfiguredStore_unlessAnotherIsNamed(options: [String]) async throws {
        let (store, config) = (folder.file("store.sqlite"), folder.file("postern.json"))
        try Data(repeating: 1, count: 5000).write(to: URL(filePath: store))
        let isConfigured = !options.contains { $0.hasSuffix("other.sqlite") }
        try Data(#"{"outbox":{"path":"\#(store)"}}"#.utf8).write(to: URL(filePath: config))
        let ended = try await Binary.run(
            ["check", "--config", config] + options.map { $0.replacing("DIR", with: folder.path) })
        #expect(ended.exitCode == (isConfigured ? 78 : 0), "\(ended)")
        #expect(ended.output.contains("is not a Postern store") == isConfigured, "\(ended)")
    }

    @Test func init_createsAFileThatCheckAccepts_andReplacesNone() async throws {
        let file = folder.file("new.json")
        let arguments = ["init", "--webhook", "https://shop.example/hooks", "--output", file]
        #expect(try await Binary.run(arguments).exitCode == 0)
        let mode = try FileManager.default.attributesOfItem(atPath: file)[.posixPermissions] as? Int
        #expect(mode == 0o600)
        let text = try String(contentsOfFile: file, encoding: .utf8)
        #expect(try await Binary.run(Array(arguments.prefix(3))).output == text)
        let checked = try await Binary.run(["check", "--config", file])
        #expect(
            checked.exitCode == 0
                && checked.output.hasSuffix("is fine: upstream webhook, to listen on 127.0.0.1:8080.\n"))
        let again = try await Binary.run(["init", "--output", file])
        #expect(again.exitCode == 1)
        #expect(again.errors == "postern: Cannot write \(file): File exists.\n")
        #expect(try String(contentsOfFile: file, encoding: .utf8) == text)
    }

    /// A part of a configuration would be in the way of a second try. This one has more than 1024 bytes.
    @Test func init_leavesNothing_ifTheDiskIsFull() async throws {
        let script = "ulimit -f 1; trap '' XFSZ; exec \"$0\" \"$@\""
        let file = folder.file("new.json")
        let ended = try await Binary.start(
            ["init", "--type", "appservices", "--output", file], through: ["/bin/bash", "-c", script]
        ).end()
        #expect(ended.exitCode == 1)
        #expect(ended.errors == "postern: Cannot write \(file): File too large.\n")
        #expect(!FileManager.default.fileExists(atPath: file))
    }

    @Test(arguments: [
        (["--type", "shop"], "shop is not a type of upstream; the types are samsara, "),
        (["--type", "seer", "--webhook", "https://a.example"], "--webhook and --type exclude each other."),
        (["--webhook", "a.example"], "The URL a.example cannot be used: "),
    ])
    func init_refusesWhatIsNoUpstream(options: [String], error: String) async throws {
        let ended = try await Binary.run(["init"] + options)
        #expect(ended.exitCode == 64)
        #expect(ended.errors.hasPrefix("Error: " + error), "\(ended.errors)")
    }

    @Test func configSchema_isJSON() async throws {
        struct Schema: Decodable {
            let properties: [String: Property]
            struct Property: Decodable { let type: String }
        }
        let ended = try await Binary.run(["config", "schema"])
        #expect(ended.exitCode == 0)
        let schema = try JSONDecoder().decode(Schema.self, from: Data(ended.output.utf8))
        #expect(schema.properties["upstreams"]?.type == "object")
    }

    @Test func healthcheck_namesTheReasonInOneLine_ifNoGatewayAnswers() async throws {
        let ended = try await Binary.run(["healthcheck", "--url", "http://127.0.0.1:1"])
        #expect(ended.exitCode == 1)
        #expect(ended.errors.hasPrefix("postern: http://127.0.0.1:1 does not respond: "))
        #expect(ended.errors.split(separator: "\n").count == 1)
    }

    @Test func newKey_comesWithItsDigest() async throws {
        let ended = try await Binary.run(["keys", "new", "--name", "app", "--scopes", "write,read", "--json"])
        #expect(ended.exitCode == 0)
        let answer = try JSONDecoder().decode(KeyAnswer.self, from: Data(ended.output.utf8))
        #expect(answer.key.hasPrefix("postern_"))
        #expect(answer.key.count == 8 + 43 + 6)
        #expect(answer.sha256 == SHA256.hash(data: Array(answer.key.utf8)).hexadecimal)
        #expect(answer.entry == .init(name: "app", sha256: answer.sha256, scopes: ["write", "read"]))
    }

    private struct KeyAnswer: Decodable {
        struct Entry: Decodable, Equatable {
            let name, sha256: String
            let scopes: [String]
        }
        let key, sha256: String
        let entry: Entry
    }

    @Test(arguments: [
        (["outbox", "stats"], Int32(64), "with --config FILE or --store PATH"),
        (["outbox", "stats", "--store", "DIR/none.sqlite"], 73, "cannot open the store at DIR/none.sqlite"),
        (["outbox", "purge", "--store", "DIR/none.sqlite", "--upstream", "a", "--state", "failed"], 73, "cannot open"),
        (
            ["outbox", "purge", "--store", "DIR/none.sqlite", "--upstream", "a", "--state", "failed", "--yes"], 73,
            "cannot open"
        ),
        (["outbox", "purge", "--store", "DIR/none.sqlite", "--upstream", "a", "--state", "queued"], 64, "not purged"),
        (
            ["outbox", "erase", "--store", "DIR/none.sqlite", "--pointer", "/a"], 64,
            "with --pointer POINTER and --value"
        ),
        (["outbox", "erase", "--store", "DIR/none.sqlite"], 64, "either with --key KEY"),
        (["outbox", "retry", "--store", "DIR/none.sqlite"], 64, "either by their ids or with --upstream NAME"),
        (["outbox", "show", "nonsense", "--store", "DIR/none.sqlite"], 73, "DIR/none.sqlite"),
        (["outbox", "cancel", "--store", "DIR/none.sqlite"], 64, "either by their ids or with --upstream NAME"),
        (["outbox", "cancel", "--store", "DIR/none.sqlite", "--upstream", "a", "--state", "failed"], 64, "queued"),
        (
            ["outbox", "retry", "--store", "DIR/none.sqlite", "--upstream", "a", "--state", "queued"], 64,
            "failed or dropped"
        ),
        (["outbox", "retry", "--store", "DIR/none.sqlite", "00697znkr0001", "--kind", "event"], 64, "not with ids"),
        (["outbox", "audit", "--config", "DIR/none.json"], 78, "DIR/none.json"),
        (["keys", "new", "--name", "a", "--scopes", "write,all"], 64, "all is not a scope"),
    ])
    func mistake_hasAnExitCode_andASentence(arguments: [String], exitCode: Int32, sentence: String) async throws {
        let folder = folder.path
        let ended = try await Binary.run(arguments.map { $0.replacing("DIR", with: folder) })
        #expect(ended.exitCode == exitCode)
        #expect(ended.errors.contains(sentence.replacing("DIR", with: folder)), "\(ended.errors)")
    }

    /// The last line says why the process ended, in the format of all others, even if the configuration has problems.
    @Test(arguments: [
        (#"{"log":{"format":"json"},"upstreams":{"samsara":{}},"outbox":{"path":"DIR/no/such/folder/x"}}"#, 73),
        (#"{"log":{"format":"json"},"nonsense":1}"#, 78),
    ])
    func startThatFails_isJSON_ifTheLogIs(configuration: String, exitCode: Int) async throws {
        let config = folder.path + "/config.json"
        // Below a file there is no folder.
        try Data("".utf8).write(to: URL(filePath: folder.path + "/no"))
        try Data(configuration.replacing("DIR", with: folder.path).utf8).write(to: URL(filePath: config))
        let ended = try await Binary.run(["serve", "--config", config])
        #expect(ended.exitCode == Int32(exitCode))
        let lines = ended.errors.split(separator: "\n").map { JSON(Array($0.utf8)) }
        #expect(lines.allSatisfy { $0["level"].isThere }, "\(ended.errors)")
        #expect(lines.last?["level"].string == "critical" && lines.last?["exit.code"].int == exitCode)
        #expect(lines.last?["error"].string?.isEmpty == false)
    }

    // MARK: outbox

    private struct Stats: Decodable {
        struct Upstream: Decodable {
            let name: String
            let queued, accepted: Int
            let kept: [String: Int]
        }
        let upstreams: [Upstream]
    }

    private func stats(_ config: String) async throws -> Stats.Upstream {
        let ended = try await Binary.run(["outbox", "stats", "--config", config, "--json"])
        #expect(ended.exitCode == 0, "\(ended.errors)")
        return try #require(try JSONDecoder().decode(Stats.self, from: Data(ended.output.utf8)).upstreams.first)
    }

    @Test func outbox_isReadAndChanged_withAndWithoutARunningGateway() async throws {
        // The upstream of this message does not exist.
        let directory = try GatewayDirectory(Settings(upstreamURL: "http://127.0.0.1:1"))
        let gateway = try await directory.start()
        let (config, url, client) = (directory.config, "http://127.0.0.1:\(gateway.port)", try gateway.client())
        let healthy = try await Binary.run(["healthcheck", "--url", url])
        #expect(healthy.exitCode == 0, "\(healthy.errors)")
        let events = (1...3).map { #"{"timestamp":\#($0), "sourceId":"s","eventName":"e"}"# }
        let answer = try client.post(eventPath, "[\(events.joined(separator: ","))]")
        #expect(answer.status == 202)
        let ids = answer.json["ids"].strings
        try #require(ids.count == 3)

        let erase = ["outbox", "erase", "--config", config, "--pointer", "/sourceId", "--value", "s"]
        let found = try await Binary.run(erase + ["--url", url])
        #expect(found.output == "3 queued\nNothing was changed. Add --yes to erase them.\n", "\(found.errors)")

        // While the gateway runs: reads from the store, changes through the API. What is being sent at the moment cannot
        // be cancelled, so the upstream is paused first and its answer, a refusal to connect, waited for.
        let seen = try await stats(config)
        #expect(seen.queued == 3)
        #expect(try client.post("/v1/upstreams/samsara/pause").status == 202)
        #expect(try eventually { try gateway.upstream()["inFlight"].int == 0 }, "a request stays under way")
        let first = try await Binary.run(["outbox", "cancel", ids[0], "--config", config, "--url", url])
        #expect(first.exitCode == 0, "\(first.errors)\(first.output)")
        #expect(first.output == "1 message cancelled.\n")
        let again = try await Binary.run(["outbox", "retry", ids[0], "--config", config, "--url", url])
        #expect(again.exitCode == 1)
        #expect(again.output.contains("\(ids[0]): The message is cancelled; only failed or dropped ones"))
        let purge = ["outbox", "purge", "--config", config, "--upstream", "samsara", "--state", "cancelled"]
        let preview = try await Binary.run(purge + ["--url", url])
        #expect(preview.output == "1 message would be removed; nothing was changed. Add --yes to do it.\n")
        let early = try await Binary.run(purge + ["--url", url, "--older-than", "3600", "--yes"])
        #expect(early.output == "0 messages removed.\n", "\(early.errors)")
        let purged = try await Binary.run(purge + ["--url", url, "--yes"])
        #expect(purged.output == "1 message removed.\n", "\(purged.errors)")
        let gone = try await Binary.run(["outbox", "show", ids[0], "--config", config])
        #expect(gone.exitCode == 1)

        let backlog = ["outbox", "cancel", "--upstream", "samsara", "--config", config, "--url", url, "--json"]
        let counted = try await Binary.run(backlog)
        #expect(counted.output == #"{"cancelled":2,"preview":true,"refused":[]}"# + "\n")

        try await gateway.stop()

        // Without a gateway, the command edits the store itself.
        let second = try await Binary.run(["outbox", "cancel", ids[1], ids[0], "--config", config, "--json"])
        #expect(second.exitCode == 1)
        #expect(
            second.output
                == #"{"cancelled":1,"refused":[{"id":"\#(ids[0])","detail":"there is no such message"}]}"# + "\n")
        let export = try await Binary.run(["outbox", "export", "--config", config, "--state", "queued"])
        let lines = export.output.split(separator: "\n")
        #expect(lines.count == 1)
        #expect(lines.first?.contains(#""payload":\#(events[2])"#) == true)
        let removed = try await Binary.run(purge + ["--yes", "--json"])
        #expect(removed.exitCode == 0, "\(removed.errors)")
        #expect(removed.output == #"{"purged":1,"refused":[]}"# + "\n")
        let left = try await stats(config)
        #expect(left.queued == 1)
        #expect(left.accepted == 3)
        #expect(left.kept["cancelled"] == 0)
        let audit = try await Binary.run(["outbox", "audit", "--config", config])
        #expect(audit.exitCode == 0, "\(audit.output)")
        #expect(audit.output.contains("balanced"))
        let shown = try await Binary.run(["outbox", "show", ids[2], "--store", directory.store])
        #expect(shown.exitCode == 0)
        #expect(!shown.output.contains("sourceId"))

        let erased = try await Binary.run(erase + ["--yes", "--json"])
        let others = #""delivered":0,"failed":0,"cancelled":0,"dropped":0,"expired":0"#
        #expect(
            erased.output == "{\"queued\":1,\(others),\"callbacks\":0,\"idempotencyRecords\":0,\"events\":0}\n",
            "\(erased.errors)")
        let last = try await Binary.run(["outbox", "show", ids[2], "--store", directory.store, "--payload", "--json"])
        #expect(last.output.contains(#""erased":true"#) && !last.output.contains("sourceId"))
    }
}
