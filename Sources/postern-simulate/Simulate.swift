public import ArgumentParser
import Glibc
import Logging
import PosternCore
import PosternProcess
public import PosternSimulatorKit
import PosternSimulators
import PosternThreads

extension SimulatorHost.Keep: ExpressibleByArgument {}

@main struct Simulate: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: SimulatorProgram.name,
        abstract: "Runs strict simulators of the upstreams until SIGTERM or SIGINT.",
        discussion: """
            Prints the address of each, one a line, once all of them listen: `samsara http://127.0.0.1:9000`. GET \
            /received shows what one of them took and what was wrong with it; POST /faults changes its faults.
            """)

    @Option(help: ArgumentHelp("Address to listen on.", valueName: "address"))
    var host = "127.0.0.1"

    @Option(help: ArgumentHelp("Port of the first; the others follow. 0 lets the system choose.", valueName: "n"))
    var port = SimulatorHost.defaultPort

    @Option(
        help: ArgumentHelp(
            "Their faults, e.g. status=503/30:0.1,reset-after:x3,poison=eventName:bad.", valueName: "text"),
        transform: { text in
            do throws(FaultsProblem) { return try Faults(parsing: text) } catch { throw ValidationError("\(error)") }
        })
    var faults = Faults()

    @Option(help: ArgumentHelp("Seed of the faults with a probability.", valueName: "n"))
    var seed: UInt64 = 0

    @Option(help: "What they store of each item: its text, a digest to detect duplicates, or counts only.")
    var keep = SimulatorHost.Keep.texts

    @Flag(help: "Also end when standard input ends; close standard output once they listen.")
    var untilEndOfInput = false

    func run() throws {
        let signals: Signals
        do throws(SystemLimitError) {
            signals = try Signals.receive()
        } catch {
            report("\(error)")
            throw ExitCode(SystemLimitError.exitCode)
        }
        LoggingSystem.bootstrap { StandardErrorLog(label: $0, format: .text) }
        let simulators: SimulatorHost
        do throws(SimulatorHost.StartFailure) {
            simulators = try SimulatorHost.start(
                SimulatorRegistry.all, host: host, port: port, faults: faults, seed: seed, keep: keep,
                logger: Logger(label: "postern.simulate"))
        } catch {
            // The gateway has another option for the ports.
            let advice = error.isAboutPorts && !untilEndOfInput ? ". Choose other ports with --port." : ""
            report("\(error)\(advice)")
            throw ExitCode(error.isAboutPorts ? SimulatorProgram.portsExitCode : SystemLimitError.exitCode)
        }
        for (name, url) in simulators.urls.sorted(by: { $0.key < $1.key }) { writeLine("\(name) \(url)") }
        if untilEndOfInput { close(STDOUT_FILENO) }
        waitForTheEnd(signals)
        simulators.stop()
    }

    /// If a gateway waits for the addresses, it reports the error.
    private func report(_ error: String) {
        writeLine(untilEndOfInput ? error : "postern: \(error)", to: untilEndOfInput ? STDOUT_FILENO : STDERR_FILENO)
    }

    /// Waits for a stop signal, or for the end of the input if the program has to end with it.
    private func waitForTheEnd(_ signals: Signals) {
        var byte: UInt8 = 0
        while true {
            if signals.wait(until: .distantFuture, orFor: untilEndOfInput ? STDIN_FILENO : nil) {
                if signals.take() == .stop { return }
            } else if untilEndOfInput, read(STDIN_FILENO, &byte, 1) == 0 {
                return
            }
        }
    }
}
