import ArgumentParser
import PosternCommands
import PosternProcess

struct Simulate: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Runs strict simulators of the upstreams until SIGTERM or SIGINT.",
        discussion: "Runs the program postern-simulate, which is installed next to this one.")

    @Argument(
        parsing: .captureForPassthrough,
        help: ArgumentHelp("The options of postern-simulate; --help shows them.", valueName: "options"))
    var options: [String] = []

    func run() throws {
        let problem = SimulatorProgram.replaceThisProgram(arguments: options)
        throw CommandFailure(CommandFailure.unavailable, problem).reported()
    }
}
