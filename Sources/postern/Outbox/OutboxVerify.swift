import ArgumentParser
import PosternCommands
import PosternCore
import PosternProcess

struct OutboxVerify: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "verify",
        abstract: "Reads a whole store or backup: its structure, every payload, and the ledger.",
        discussion: "Exits with 0 if it is sound, or else with 1 and what is wrong. It does not change anything.")

    @OptionGroup var options: StoreOptions

    func run() throws {
        let report = try reporting { () throws(CommandFailure) in
            try PosternCommands.OutboxBackup.verify(try options.location())
        }
        try writeResult(options.json ? report.json : report.text)
        throw ExitCode(report.exitCode)
    }
}
