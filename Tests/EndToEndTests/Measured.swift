import Foundation

/// The kernel's figures for a process (`man 5 proc`).
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
}
