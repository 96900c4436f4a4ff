package import Glibc

/// The program `postern-simulate`, which is installed next to `postern`.
package enum SimulatorProgram {
    package static let name = "postern-simulate"
    /// Its exit code if it cannot listen on its ports (`EX_UNAVAILABLE`).
    package static let portsExitCode: Int32 = 69

    /// The path where it has to be.
    static var path: String {
        var path = [UInt8](repeating: 0, count: Int(PATH_MAX))
        let count = path.withUnsafeMutableBytes { bytes in
            readlink("/proc/self/exe", bytes.baseAddress!, bytes.count)
        }
        guard count > 0 else { return name }
        let folder = String(decoding: path.prefix(count), as: UTF8.self).split(
            separator: "/", omittingEmptySubsequences: false
        ).dropLast()
        return (folder + [name[...]]).joined(separator: "/")
    }

    /// Replaces this program by it. Returns only if that fails, with the error number.
    package static func replaceThisProgram(arguments: [String]) -> String {
        let path = path
        withArguments([name] + arguments) { _ = execv(path, $0) }
        return missing(errno)
    }

    /// The error text if it cannot be run.
    static func missing(_ error: Int32) -> String {
        "The simulators are a program of their own, \(path), which cannot be run: \(String(cString: strerror(error))). "
            + "`make build` builds it, `make install` installs it."
    }

    /// Starts it as a child in a process group of its own, so that a Ctrl-C for this program does not reach it, with
    /// the descriptors as its standard input and output.
    ///
    /// - Returns: Its process id.
    package static func spawn(arguments: [String], input: Int32, output: Int32) throws(SpawnFailure) -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO)
        posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO)
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK))
        var child: pid_t = 0
        let path = path
        let error = withArguments([name] + arguments) {
            posix_spawn(&child, path, &actions, &attributes, $0, environ)
        }
        guard error == 0 else { throw SpawnFailure(description: missing(error)) }
        return child
    }

    package struct SpawnFailure: Error, CustomStringConvertible { package let description: String }

    private static func withArguments<R>(
        _ arguments: [String], _ body: (UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>) -> R
    ) -> R {
        var copies = arguments.map { strdup($0) } + [nil]
        defer { for copy in copies { free(copy) } }
        return body(&copies)
    }
}
