import ArgumentParser

struct Outbox: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Looks into the store, and changes what stands there.",
        discussion: """
            Reading works beside a running gateway. Retrying and cancelling go through its API while it runs, else into \
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
            OutboxAudit.self,
            OutboxExport.self,
        ])
}
