import ArgumentParser
import Glibc
import PosternCore
import PosternProcess

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

    static func main() async {
        // The standard library reads the arguments from there; without any, the help would be shown as if asked for.
        guard !CommandLine.arguments.isEmpty else {
            writeLine("postern: cannot read the command line; /proc is not mounted", to: STDERR_FILENO)
            Glibc.exit(ExitCode.validationFailure.rawValue)
        }
        await main(nil)
    }
}
