import ArgumentParser
import PosternCommands
import PosternCore
import PosternProcess
import PosternStore

struct OutboxErase: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "erase",
        abstract: "Erases a person's messages in the files of the store; queued ones are cancelled.",
        discussion: """
            Takes either --key, or --pointer and --value. Counts the messages only, unless --yes is given. Backups that were \
            made before still have them.
            """)

    @OptionGroup var options: StoreOptions
    @OptionGroup var gateway: GatewayOptions

    @Option(help: ArgumentHelp("Only messages of this upstream.", valueName: "name"))
    var upstream: UpstreamName?

    @Option(help: ArgumentHelp("The key of the messages.", valueName: "key"))
    var key: String?

    @Option(
        help: ArgumentHelp(
            "The place of a value in their payloads, a JSON Pointer, e.g. /user/id.", valueName: "pointer"))
    var pointer: String?

    @Option(help: ArgumentHelp("That value: a text, or with --number a number as it is spelled.", valueName: "value"))
    var value: String?

    @Flag(help: "The value is a number.")
    var number = false

    @Flag(help: "Erase them; without it they are only counted.")
    var yes = false

    func validate() throws {
        guard (pointer == nil) == (value == nil), (key == nil) != (pointer == nil) else {
            throw ValidationError(
                "Specify the messages either with --key KEY, or with --pointer POINTER and --value VALUE.")
        }
    }

    func run() async throws {
        let erasure = OutboxErasure(
            upstream: upstream, key: key, pointer: pointer, value: value, isNumber: number, isPreview: !yes)
        let result = try await reportingAsync { () async throws(CommandFailure) in
            try await erasure.run(on: try options.location(gateway.choice))
        }
        try writeResult(options.json ? result.json : result.text)
    }
}
