import ArgumentParser
import CLinux
import Logging
import PosternCore
import PosternGateway
import PosternProcess
import PosternThreads

struct Serve: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Runs the gateway until SIGTERM or SIGINT.",
        discussion: """
            A second signal stops it without waiting for what is under way; nothing that was accepted is lost. SIGHUP \
            reloads the configuration. Exits with 69 if it cannot listen, 71 if the system gives it too few threads or \
            file descriptors, 73 if the store cannot be opened, 74 if another gateway has taken it over, 75 if another process \
            runs on it, 78 if the configuration has a problem. If the store is in PostgreSQL, it waits while another \
            gateway owns it.
            """)

    @Option(help: ArgumentHelp("The JSON file.", valueName: "file"))
    var config: String

    @Flag(help: "Also run simulators of the upstreams, and deliver to them, from a separate store.")
    var simulate = false

    @Option(
        help: ArgumentHelp(
            "Port of the first simulator; the others follow. 0 lets the system choose. By default 9000, or others if "
                + "those are in use.", valueName: "n"))
    var simulatePort: UInt16?

    @Flag(help: "If the store is damaged, keep it under a new name and start with an empty one.")
    var startFresh = false

    @Flag(help: "If the write-ahead log is damaged, keep a copy of the store and restore what can be restored.")
    var recover = false

    func validate() throws {
        guard simulatePort == nil || simulate else { throw ValidationError("--simulate-port requires --simulate.") }
    }

    func run() throws {
        postern_unmap_large_blocks()
        _ = postern_forbid_dumps()
        // A pipe can be read only once.
        let file = ConfigurationFile(config)
        let format = logFormat(of: file)
        LoggingSystem.bootstrap { StandardErrorLog(label: $0, format: format) }
        do throws(AppError) {
            let signals = try receiveSignals()
            try App(
                .init(
                    configFile: file, simulate: simulate, simulatorPort: simulatePort, startFresh: startFresh,
                    recover: recover),
                signals: signals, logger: Logger(label: "postern")
            ).run()
        } catch {
            switch format {
            case .text: StandardErrorLog.say("postern: \(error)")
            case .json:
                Logger(label: "postern").critical(
                    "cannot run", metadata: ["error": "\(error)", "exit.code": .stringConvertible(error.exitCode)])
            }
            throw ExitCode(error.exitCode)
        }
    }

    private func receiveSignals() throws(AppError) -> Signals {
        do throws(SystemLimitError) { return try Signals.receive() } catch { throw .system("\(error).") }
    }

    /// The format has to be known before the first log line, even if the configuration has problems. `App` reports them.
    private func logFormat(of file: ConfigurationFile) -> StandardErrorLog.Format {
        let loader = ConfigurationLoader(file: file)
        let found = (try? loader.settings()) ?? loader.settingsOfEnvironment()
        return found.configuration.log.format == .json ? .json : .text
    }
}
