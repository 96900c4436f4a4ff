import ArgumentParser
import Glibc
import PosternCommands
import PosternCore
import PosternProcess

@main struct Postern: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "postern",
        abstract: "Accepts payloads over HTTP, stores them on disk, and delivers them to the upstreams.",
        version: PosternVersion.current,
        subcommands: [
            Serve.self,
            Check.self,
            Outbox.self,
            Keys.self,
            Healthcheck.self,
            Simulate.self,
        ])

    /// If one of them was closed, the file that is opened next would be it, and log lines would be written into that.
    private static func openStandardDescriptors() {
        for descriptor in STDIN_FILENO...STDERR_FILENO where fcntl(descriptor, F_GETFD) < 0 {
            _ = open("/dev/null", O_RDWR)
        }
    }

    /// Commands run on the main thread. Those that only wait for a gateway or a store are tasks, for which it waits.
    static func main() {
        openStandardDescriptors()
        // The standard library reads the arguments from there; without any, the help would be shown as if it were
        // requested.
        guard !CommandLine.arguments.isEmpty else {
            writeLine("postern: cannot read the command line; /proc is not mounted", to: STDERR_FILENO)
            Glibc.exit(ExitCode.validationFailure.rawValue)
        }
        do {
            var command = try parseAsRoot()
            if let command = command as? any AsyncParsableCommand {
                try wait(for: command)
            } else {
                try command.run()
            }
        } catch let failure as CommandFailure {
            exit(withError: failure.reported())
        } catch {
            exit(withError: error)
        }
    }

    private static func wait(for command: any AsyncParsableCommand) throws {
        // Only the task uses it.
        nonisolated(unsafe) var command = command
        let results = Inbox<Result<Void, any Error>>()
        Task {
            do { results.put(.success(try await command.run())) } catch { results.put(.failure(error)) }
        }
        for result in results.takeAll(waitingUntil: nil) { try result.get() }
    }
}
