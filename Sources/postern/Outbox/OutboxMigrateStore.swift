import ArgumentParser
import PosternCommands
import PosternGateway
import PosternProcess

struct OutboxMigrateStore: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "migrate-store",
        abstract: "Moves the store from an SQLite file to PostgreSQL, while no gateway runs on either.",
        discussion: """
            Everything keeps its id, state, and place in the order. The schema in PostgreSQL has to be empty, and no gateway \
            starts on either store before the move is complete; run it again if it was interrupted. The file is kept, and \
            marked: no gateway starts on it any more. The other direction is not possible.
            """)

    @Option(help: ArgumentHelp("The configuration with the SQLite file.", valueName: "file"))
    var config: String

    @Option(help: ArgumentHelp("The configuration with the PostgreSQL database.", valueName: "file"))
    var to: String

    @Flag(help: "Write JSON, for programs.")
    var json = false

    func run() throws {
        let report = try reporting { () throws(CommandFailure) in
            let progress = Progress("moving messages")
            defer { progress.erase() }
            return try StoreMigration.run(
                ConfigurationLoader(file: config), to: ConfigurationLoader(file: to),
                progress: progress.advance(to:of:))
        }
        try writeResult(json ? report.json : report.text)
    }
}
