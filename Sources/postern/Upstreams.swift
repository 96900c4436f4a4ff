import ArgumentParser
import PosternCommands
import PosternCore
import PosternProcess
import PosternStore

struct Upstreams: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Shows and steers the upstreams of a running gateway.",
        discussion: "The key in POSTERN_KEY needs the scope read for the list, and admin for all else.",
        subcommands: [
            UpstreamsList.self, UpstreamsPause.self, UpstreamsResume.self, UpstreamsFlush.self, UpstreamsProbe.self,
        ],
        defaultSubcommand: UpstreamsList.self)
}

/// The gateway of a command that only calls it.
struct RunningGatewayOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "The gateway's configuration, which contains its address and certificate.", valueName: "file"))
    var config: String?

    @OptionGroup var gateway: GatewayOptions

    @Flag(help: "Write JSON, for programs.")
    var json = false

    func console() throws(CommandFailure) -> UpstreamConsole {
        UpstreamConsole(try gateway.address(config: config))
    }
}

struct UpstreamsList: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "Lists the upstreams with their health, backlog, and last error.")

    @OptionGroup var options: RunningGatewayOptions

    func run() async throws {
        try writeResult(
            await reportingAsync { () async throws(CommandFailure) in
                try await options.console().upstreams(asJSON: options.json)
            })
    }
}

/// One upstream, and what is done with it.
protocol UpstreamCommand: AsyncParsableCommand {
    var options: RunningGatewayOptions { get }
    var name: UpstreamName { get }
    var action: UpstreamConsole.Action { get }
    var wait: Int { get }
}

extension UpstreamCommand {
    var wait: Int { 0 }

    func run() async throws {
        let result = try await reportingAsync { () async throws(CommandFailure) in
            try await options.console().perform(action, on: name, wait: wait, asJSON: options.json)
        }
        try writeResult(result.text)
        throw ExitCode(result.exitCode)
    }
}

struct UpstreamsPause: UpstreamCommand {
    static let configuration = CommandConfiguration(
        commandName: "pause", abstract: "Stops sending to an upstream. Its messages are still accepted.")

    @Argument(help: "The upstream.") var name: UpstreamName
    @OptionGroup var options: RunningGatewayOptions
    var action: UpstreamConsole.Action { .pause }
}

struct UpstreamsResume: UpstreamCommand {
    static let configuration = CommandConfiguration(
        commandName: "resume", abstract: "Starts sending to an upstream again, and ends its waits.")

    @Argument(help: "The upstream.") var name: UpstreamName
    @OptionGroup var options: RunningGatewayOptions
    var action: UpstreamConsole.Action { .resume }
}

struct UpstreamsFlush: UpstreamCommand {
    static let configuration = CommandConfiguration(
        commandName: "flush",
        abstract: "Sends now what waits for a retry, a schedule, or its circuit.",
        discussion: "Exits with 1 if not every message could be sent.")

    @Argument(help: "The upstream.") var name: UpstreamName
    @Option(help: ArgumentHelp("How long to wait for the end.", valueName: "seconds")) var wait = 30
    @OptionGroup var options: RunningGatewayOptions
    var action: UpstreamConsole.Action { .flush }

    func validate() throws {
        guard (1...60).contains(wait) else { throw ValidationError("--wait takes 1 to 60 seconds.") }
    }
}

struct UpstreamsProbe: UpstreamCommand {
    static let configuration = CommandConfiguration(
        commandName: "probe",
        abstract: "Tries the credentials of an upstream without a message.",
        discussion: """
            If the type has no request that tries them without an effect, only a connection is made. Exits with 1 if the \
            upstream rejects the credentials, or cannot be reached.
            """)

    @Argument(help: "The upstream.") var name: UpstreamName
    @OptionGroup var options: RunningGatewayOptions
    var action: UpstreamConsole.Action { .probe }
}

struct Failures: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "failures",
        abstract: "Groups the failed messages of a running gateway by their errors.",
        discussion: "`postern outbox list --group ID` lists the messages of a group, `outbox retry` sends them again.")

    @Argument(help: "The upstream; all of them by default.") var name: UpstreamName?
    @Option(help: ArgumentHelp("Continue where an earlier page ended.", valueName: "cursor")) var cursor: MessageID?
    @OptionGroup var options: RunningGatewayOptions

    func validate() throws {
        guard cursor == nil || name != nil else { throw ValidationError("--cursor requires an upstream.") }
    }

    func run() async throws {
        try writeResult(
            await reportingAsync { () async throws(CommandFailure) in
                try await options.console().failures(of: name, after: cursor, asJSON: options.json)
            })
    }
}

struct ReplayMessages: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "replay",
        abstract: "Queues messages again that a running gateway has delivered, as new messages in their order.",
        discussion: """
            As far as their payloads are kept (outbox.deliveredPayloadSeconds). `postern operations` shows how far it is, and \
            stops it. The key in POSTERN_KEY needs the scope admin.
            """)

    @Argument(help: "The upstream to which they were delivered.") var name: UpstreamName
    @Option(help: ArgumentHelp("The upstream that gets them now; by default the same.", valueName: "name"))
    var to: UpstreamName?
    @Option(help: ArgumentHelp("Only those of this kind.", valueName: "kind")) var kind: String?
    @Option(help: ArgumentHelp("Only those with this key.", valueName: "key")) var key: String?
    @Option(
        help: ArgumentHelp("Only those settled at this time or later, e.g. 2026-01-31T12:00:00Z.", valueName: "time"))
    var settledAfter: Timestamp?
    @Option(help: ArgumentHelp("Only those settled before this time.", valueName: "time"))
    var settledBefore: Timestamp?
    @Option(help: ArgumentHelp("The id of the replay. What has the same id is done once.", valueName: "id"))
    var id: String?
    @Flag(help: "Only count them.") var dryRun = false
    @OptionGroup var options: RunningGatewayOptions

    func run() async throws {
        let members = [
            ("id", id), ("upstream", "\(name)"), ("to", to?.description), ("kind", kind), ("key", key),
            ("settledAfter", settledAfter?.description), ("settledBefore", settledBefore?.description),
        ]
        try writeResult(
            await reportingAsync { () async throws(CommandFailure) in
                try await options.console().replay(members, isPreview: dryRun, asJSON: options.json)
            })
    }
}

struct Operations: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "operations",
        abstract: "Lists what a running gateway retries, cancels, or removes step by step, and has done so lately.",
        discussion: "The key in POSTERN_KEY needs the scope read, and admin for --stop.")

    @Option(help: ArgumentHelp("Stop this operation after its current step.", valueName: "id")) var stop: String?
    @OptionGroup var options: RunningGatewayOptions

    func validate() throws {
        guard stop?.allSatisfy({ $0.isASCII && ($0.isHexDigit || $0 == "-") }) ?? true else {
            throw ValidationError("--stop takes the id of an operation.")
        }
    }

    func run() async throws {
        try writeResult(
            await reportingAsync { () async throws(CommandFailure) in
                try await options.console().operations(stopping: stop, asJSON: options.json)
            })
    }
}
