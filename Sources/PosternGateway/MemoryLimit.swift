import Foundation
import Glibc

/// The memory that the process may use.
enum MemoryLimit {
    /// The smallest limit of the process's control group and those above it, or else the machine's memory.
    static func bytes(root: String = "/") -> Int {
        let controlGroups = read("\(root)proc/self/cgroup").split(separator: "\n")
        let limits = controlGroups.flatMap { line -> [Int] in
            let parts = line.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
            guard parts.count == 3 else { return [] }
            // Version 2 has one line without controllers; version 1 one for each hierarchy.
            if parts[1].isEmpty { return Self.limits(root + "sys/fs/cgroup", parts[2], file: "memory.max") }
            guard parts[1].split(separator: ",").contains("memory") else { return [] }
            return Self.limits(root + "sys/fs/cgroup/memory", parts[2], file: "memory.limit_in_bytes")
        }
        return min(limits.min() ?? .max, sysconf(Int32(_SC_PHYS_PAGES)) * sysconf(Int32(_SC_PAGESIZE)))
    }

    /// The limits of a group and of all above it. In a container, the path may be one of the host's, of which only the
    /// top exists.
    private static func limits(_ mount: String, _ path: Substring, file: String) -> [Int] {
        var folders = [mount]
        for name in path.split(separator: "/") { folders.append("\(folders.last ?? mount)/\(name)") }
        // Without a limit the text is `max`, or a number beyond all memory.
        return folders.compactMap { Int(read("\($0)/\(file)").filter(\.isNumber)) }
    }

    private static func read(_ path: String) -> String {
        // The file does not exist or cannot be read, so no limit is known.
        (try? String(contentsOfFile: path, encoding: .utf8)) ?? ""
    }
}
