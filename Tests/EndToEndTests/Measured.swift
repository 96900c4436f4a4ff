import Foundation

/// A process as the kernel sees it (`man 5 proc`).
struct Measured {
    let pid: pid_t

    enum Kind: String {
        case now = "VmRSS:"
        /// Without the pages of files, the program's own among them.
        case anonymous = "RssAnon:"
        case peak = "VmHWM:"
    }

    struct Unreadable: Error {}

    /// Bytes.
    func memory(_ kind: Kind) throws -> Int {
        let lines = try String(contentsOfFile: "/proc/\(pid)/status", encoding: .utf8).split(separator: "\n")
        guard let line = lines.first(where: { $0.hasPrefix(kind.rawValue) }),
            let kilobytes = line.split(whereSeparator: \.isWhitespace).dropFirst().first.flatMap({ Int($0) })
        else { throw Unreadable() }
        return kilobytes << 10
    }

    func resetPeak() throws { try "5".write(toFile: "/proc/\(pid)/clear_refs", atomically: false, encoding: .utf8) }

    /// The processor time of the threads that serve connections, which the load of others does not change.
    func timeOfServerThreads() throws -> Duration {
        let tasks = "/proc/\(pid)/task"
        var sum = Duration.zero
        for task in try FileManager.default.contentsOfDirectory(atPath: tasks) {
            let name = try String(contentsOfFile: "\(tasks)/\(task)/comm", encoding: .utf8)
            guard name.hasPrefix("postern-http") else { continue }
            let times = try String(contentsOfFile: "\(tasks)/\(task)/schedstat", encoding: .utf8)
            guard let nanoseconds = times.split(separator: " ").first.flatMap({ Int64($0) }) else { throw Unreadable() }
            sum += .nanoseconds(nanoseconds)
        }
        return sum
    }
}
