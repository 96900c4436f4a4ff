import ArgumentParser
import Glibc
import PosternCommands
import PosternCore
import PosternGateway
import PosternProcess
import PosternThreads

@main struct Postern: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "postern",
        abstract: "Accepts payloads over HTTP, stores them on disk, and delivers them to the upstreams.",
        version: PosternVersion.current,
        subcommands: [
            Serve.self,
            Init.self,
            Check.self,
            Config.self,
            Outbox.self,
            Upstreams.self,
            Nodes.self,
            Failures.self,
            Operations.self,
            ReplayMessages.self,
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
            if exitCode(for: error) == .validationFailure, !message(for: error).contains("Did you mean"),
                let hint = hint(for: CommandLine.arguments.dropFirst())
            {
                writeLine("postern: \(hint)", to: STDERR_FILENO)
            }
            exit(withError: error)
        }
    }

    /// What was probably meant by an option or a subcommand that does not exist. The parser only says what is missing.
    private static func hint(for arguments: ArraySlice<String>) -> String? {
        var (command, rest): (any ParsableCommand.Type, ArraySlice<String>) = (Postern.self, arguments)
        while let word = rest.first, !word.hasPrefix("-"), !command.configuration.subcommands.isEmpty {
            let subcommands = command.configuration.subcommands
            guard let found = subcommands.first(where: { $0._commandName == word }) else {
                return nearestName(to: word, among: subcommands.map { $0._commandName }).map {
                    "\(word.printable()) is not a subcommand of \(command._commandName); did you mean \($0)?"
                }
            }
            (command, rest) = (found, rest.dropFirst())
        }
        let known = Set(helpMessage(for: command).matches(of: #/--[a-z][a-z-]+/#).map { String($0.output) })
        for word in rest.prefix(while: { $0 != "--" }) where word.hasPrefix("--") {
            let option = String(word.prefix { $0 != "=" })
            guard !known.contains(option), let near = nearestName(to: option, among: known) else { continue }
            return "\(option.printable()) is not an option of \(command._commandName); did you mean \(near)?"
        }
        return nil
    }

    private static func wait(for command: any AsyncParsableCommand) throws {
        // Only the task uses it.
        nonisolated(unsafe) var command = command
        let results = Inbox<Result<Void, any Error>>()
        // The threads of the cooperative pool are tried again without end if the system gives none.
        let executor: SerialTaskExecutor
        do throws(SystemLimitError) {
            executor = try SerialTaskExecutor(name: "postern-command", on: DedicatedThreads())
        } catch {
            throw CommandFailure(SystemLimitError.exitCode, "\(error).")
        }
        defer { executor.stop() }
        Task(executorPreference: executor) {
            do { results.put(.success(try await command.run())) } catch { results.put(.failure(error)) }
        }
        for result in results.takeAll(waitingUntil: nil) { try result.get() }
    }
}
