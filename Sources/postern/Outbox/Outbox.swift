import ArgumentParser

struct Outbox: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Inspects and edits the message store.",
        discussion: """
            Reading works while a gateway is running. Retrying and cancelling use its API while it runs, otherwise \
            the store itself; purging wants it stopped. Exits with 73 if the store cannot be opened, 75 if another \
            process is in the way, 78 if the configuration has a problem.
            """,
        subcommands: [
            OutboxStats.self,
            OutboxList.self,
            OutboxShow.self,
            OutboxLanes.self,
            OutboxRetry.self,
            OutboxCancel.self,
            OutboxPurge.self,
            OutboxErase.self,
            OutboxAudit.self,
            OutboxExport.self,
            OutboxImport.self,
            OutboxBackup.self,
            OutboxRestore.self,
            OutboxVerify.self,
            OutboxMigrateStore.self,
        ])
}
