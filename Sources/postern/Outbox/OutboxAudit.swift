import ArgumentParser
import PosternCommands
import PosternProcess

struct OutboxAudit: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "audit",
        abstract: "Checks that no accepted message was lost: counts every row and compares with the ledger.",
        discussion: "Exits with 0 if they agree, or else with 1 and the differences.")

    @OptionGroup var options: StoreOptions

    func run() throws {
        let report = try reporting { () throws(CommandFailure) in
            try options.inspection().audit()
        }
        try writeResult(options.json ? report.json : report.text)
        throw ExitCode(report.exitCode)
    }
}
