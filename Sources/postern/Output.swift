import ArgumentParser
import Glibc
import PosternApp
import PosternCore

/// Writes a line to `descriptor` at once, so that who reads the other end of a pipe need not wait for a full buffer.
func writeLine(_ text: String, to descriptor: Int32 = STDOUT_FILENO) {
    let bytes = Array((text + "\n").utf8)
    bytes.withUnsafeBytes { bytes in
        var sent = 0
        while sent < bytes.count {
            let count = write(descriptor, bytes.baseAddress! + sent, bytes.count - sent)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { return }
            sent += count
        }
    }
}

extension CommandFailure {
    /// Says what it is on standard error, and gives what ends the command with its exit code.
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

/// Runs work that blocks on a thread of its own: waiting here, the main task occupies no thread of the cooperative pool.
func onOwnThread<T: Sendable>(_ name: String, _ work: @escaping @Sendable () -> T) async -> T {
    var thread: OwnThread?
    let result = await withCheckedContinuation { continuation in
        thread = OwnThread(name: name) { continuation.resume(returning: work()) }
    }
    thread?.join()
    return result
}
