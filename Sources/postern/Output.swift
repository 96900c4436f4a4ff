import ArgumentParser
import Glibc
import PosternCommands
import PosternCore
import PosternProcess

extension CommandFailure {
    /// Writes the error to standard error, and returns the error that ends the command with its exit code.
    func reported() -> ExitCode {
        writeLine("postern: \(self)", to: STDERR_FILENO)
        return ExitCode(exitCode)
    }
}

/// Runs a command's work; a failure ends the process with its exit code.
func reporting<T>(_ work: () throws(CommandFailure) -> T) throws -> T {
    do throws(CommandFailure) { return try work() } catch { throw error.reported() }
}

func reportingAsync<T>(_ work: () async throws(CommandFailure) -> T) async throws -> T {
    do throws(CommandFailure) { return try await work() } catch { throw error.reported() }
}
