import ArgumentParser
import Glibc
import PosternCommands
import PosternCore
import PosternProcess
import PosternStore

struct OutboxLanes: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "lanes", abstract: "Lists the lanes of an upstream that wait, and why.",
        discussion: """
            A lane is what keeps its order: a visitor, an account, a kind. Lanes that are being sent, or are about to be, \
            are left out.
            """)

    @OptionGroup var options: StoreOptions

    @Option(help: ArgumentHelp("The upstream.", valueName: "name"))
    var upstream: UpstreamName

    @Option(help: ArgumentHelp("Only lanes in this state.", valueName: "state"))
    var state: LaneRecord.State?

    @Option(help: ArgumentHelp("The largest number of lanes to list.", valueName: "n"))
    var limit = 100

    @Option(help: ArgumentHelp("Continue after this lane.", valueName: "lane"))
    var cursor: Int64?

    func validate() throws {
        guard limit > 0 else { throw ValidationError("--limit must be at least 1.") }
    }

    func run() throws {
        try reporting { () throws(CommandFailure) in
            let list = try options.inspection().lanes(
                of: upstream, in: state, after: cursor, limit: limit, asJSON: options.json)
            try writeResult(list.text)
            if let next = list.next, !options.json {
                writeLine("To continue: --cursor \(next)", to: STDERR_FILENO)
            }
        }
    }
}
