import ArgumentParser
import PosternCommands
import PosternGateway
import PosternProcess

struct Nodes: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Shows and ends the gateways that share a store in PostgreSQL.",
        subcommands: [NodesList.self, NodesEvict.self], defaultSubcommand: NodesList.self)
}

/// The configuration of one of the gateways.
struct NodeOptions: ParsableArguments {
    @Option(help: ArgumentHelp("The configuration of a gateway, which names the store.", valueName: "file"))
    var config: String

    func nodes() throws(CommandFailure) -> StoreNodes {
        StoreNodes(try StoreLocation(.init(file: config)))
    }
}

struct NodesList: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list",
        abstract: "Lists the gateways with their versions, clocks, and the upstreams whose queues they work on.")

    @OptionGroup var options: NodeOptions

    @Flag(help: "Write JSON, for programs.")
    var json = false

    func run() throws {
        try reporting { () throws(CommandFailure) in
            try writeResult(options.nodes().list(asJSON: json))
        }
    }
}

struct NodesEvict: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "evict",
        abstract: "Ends a gateway for the others, whatever it does, so that another one takes over its queues.",
        discussion: """
            For a gateway that reaches the database but not the upstreams. What it was sending may arrive twice. Its process \
            notices within a quarter of the lease; if it owned the store, it ends with exit code 74, and can be started again.
            """)

    @OptionGroup var options: NodeOptions

    @Argument(help: ArgumentHelp("The gateway, as the list names it.", valueName: "name"))
    var name: String

    func run() throws {
        try reporting { () throws(CommandFailure) in try writeResult(options.nodes().evict(name)) }
    }
}
