import ArgumentParser
import Glibc
import PosternCommands
import PosternProcess

extension CommandFailure {
    /// Writes the error to standard error, and returns the error that ends the command with its exit code.
    func reported() -> ExitCode {
        writeLine("postern: \(self)", to: STDERR_FILENO)
        return ExitCode(exitCode)
    }
}

/// Writes the result of a command to standard output: JSON, or text whose control characters are escaped already. A script
/// must not take a part of it for all of it.
func writeResult(_ text: String) throws(CommandFailure) {
    guard writeLine(text.printableJSON()) else {
        throw CommandFailure(
            CommandFailure.no, "Cannot write to standard output: \(String(cString: strerror(errno))).")
    }
}

/// Runs a command's work; a failure ends the process with its exit code.
func reporting<T>(_ work: () throws(CommandFailure) -> T) throws -> T {
    do throws(CommandFailure) { return try work() } catch { throw error.reported() }
}

func reportingAsync<T>(_ work: () async throws(CommandFailure) -> T) async throws -> T {
    do throws(CommandFailure) { return try await work() } catch { throw error.reported() }
}
