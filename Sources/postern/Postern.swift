import ArgumentParser
import PosternCore

@main struct Postern: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "postern",
        abstract: "Takes payloads over HTTP, keeps them on disk, and delivers them to the upstreams.",
        version: PosternVersion.current,
        subcommands: [
            Serve.self,
            Check.self,
            Outbox.self,
            Keys.self,
            Healthcheck.self,
            Simulate.self,
        ])
}
