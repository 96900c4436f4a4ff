import Glibc
import PosternCore
import PosternProcess
import PosternStore
import PosternThreads

/// The simulators of a run with `--simulate`: a child process that ends with this one, however this one ends.
struct Simulators {
    /// Addresses by type.
    let urls: [String: String]
    /// Encrypts what this run stores, unless a key is configured. The next run cannot read it, and its messages wait for new
    /// credentials.
    let encryptionKey = (0..<EncryptionKeys.length).map { _ in UInt8.random(in: .min ... .max) }
    private let process: pid_t
    /// The child exits when this is closed.
    private let lifeline: Int32

    enum Failure: Error {
        /// The program cannot be run.
        case noProgram(String)
        /// One of the ports is in use, or cannot be used.
        case ports(String)
        /// Anything else.
        case failed(String)
    }

    /// Starts them and waits until they listen.
    ///
    /// - Parameter port: Of the first; the others follow. 0 lets the system choose, nil is the default.
    init(port: UInt16?) throws(Failure) {
        var (input, output): ([Int32], [Int32]) = ([-1, -1], [-1, -1])
        guard pipe(&input) == 0, pipe(&output) == 0 else { throw .failed("\(SystemLimitError.descriptors)") }
        for end in input + output { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        let child: Result<pid_t, SimulatorProgram.SpawnFailure>
        do throws(SimulatorProgram.SpawnFailure) {
            child = .success(
                try SimulatorProgram.spawn(
                    arguments: ["--until-end-of-input"] + (port.map { ["--port", "\($0)"] } ?? []), input: input[0],
                    output: output[1]))
        } catch {
            child = .failure(error)
        }
        close(input[0])
        close(output[1])
        defer { close(output[0]) }
        lifeline = input[1]
        switch child {
        case .success(let child): process = child
        case .failure(let failure):
            close(lifeline)
            throw .noProgram(failure.description)
        }
        let lines = Self.text(from: output[0]).split(separator: "\n")
        var urls: [String: String] = [:]
        for line in lines {
            let words = line.split(separator: " ")
            if words.count == 2, words[1].hasPrefix("http://") { urls[String(words[0])] = String(words[1]) }
        }
        self.urls = urls
        guard urls.count == lines.count, !urls.isEmpty else {
            let exitCode = stop()
            let detail = lines.isEmpty ? "the simulators ended" : lines.joined(separator: " ")
            throw exitCode == SimulatorProgram.portsExitCode ? .ports(detail) : .failed(detail)
        }
    }

    /// Stops them and waits until they have exited. Returns their exit code; nil if a signal ended them.
    @discardableResult func stop() -> Int32? {
        close(lifeline)
        var status: Int32 = 0
        while waitpid(process, &status, 0) < 0, errno == EINTR {}
        return status & 0x7F == 0 ? status >> 8 & 0xFF : nil
    }

    private static func text(from descriptor: Int32) -> String {
        var bytes: [UInt8] = []
        var part = [UInt8](repeating: 0, count: 4096)
        while true {
            let count = read(descriptor, &part, part.count)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return String(decoding: bytes, as: UTF8.self) }
            bytes += part.prefix(count)
        }
    }
}
