import ArgumentParser
import PosternCommands
import PosternProcess

struct OutboxAudit: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "audit",
        abstract: "Proves that nothing accepted was lost: counts every row and compares with the books.",
        discussion: "Exits with 0 if all agree, else with 1 and what does not.")

    @OptionGroup var options: StoreOptions

    func run() throws {
        let report = try reporting { () throws(CommandFailure) in
            let inspection = try options.inspection()
            return try Progress.showing("counting rows") { (_) throws(CommandFailure) in try inspection.audit() }
        }
        writeLine(options.json ? report.json : report.text)
        throw ExitCode(report.exitCode)
    }
}
