import Glibc

/// A file with messages that every user of the machine can read or change, for example after a restore with `cp`. The
/// gateway creates its files for its own user only.
///
/// The members of the group are not counted: where a volume is mounted for a group, they are meant to have access.
public struct ExposedFile: Sendable, Equatable, CustomStringConvertible {
    let path: String
    let mode: mode_t
    let isFolder: Bool

    /// What to do.
    var remedy: String { "chmod \(isFolder ? "o-w" : "600") \(path)" }
    var modeText: String {
        let digits = String(mode, radix: 8)
        return String(repeating: "0", count: max(0, 4 - digits.count)) + digits
    }

    public var description: String {
        "other users can \(isFolder ? "replace the files in" : "read or change") \(path), mode \(modeText); run: \(remedy)"
    }

    /// Those in the folder of the store that belong to it by name, or are a store or a backup by content; and the folder.
    public static func all(of store: String) -> [ExposedFile] {
        guard let resolved = realpath(store, nil) else { return [] }
        defer { free(resolved) }
        let store = String(cString: resolved)
        let folder = Files.folder(of: store)
        guard isReachable(folder) else { return [] }
        let files = names(in: folder).sorted().compactMap { name -> ExposedFile? in
            let path = folder == "/" ? "/\(name)" : "\(folder)/\(name)"
            guard let mode = mode(of: path, S_IFREG), mode & 0o006 != 0 else { return nil }
            guard path.hasPrefix(store) || isStore(path) else { return nil }
            return ExposedFile(path: path, mode: mode, isFolder: false)
        }
        // In a folder such as /tmp, only the owner of a file can replace it.
        guard let mode = mode(of: folder, S_IFDIR), mode & 0o1002 == 0o002 else { return files }
        return [ExposedFile(path: folder, mode: mode, isFolder: true)] + files
    }

    /// Whether other users can open files below the folder whose names they know.
    private static func isReachable(_ folder: String) -> Bool {
        var folder = folder
        while mode(of: folder, S_IFDIR).map({ $0 & 0o001 != 0 }) ?? false {
            if folder == "/" { return true }
            folder = Files.folder(of: folder)
        }
        return false
    }

    private static func names(in folder: String) -> [String] {
        guard let directory = opendir(folder) else { return [] }
        defer { closedir(directory) }
        var names: [String] = []
        while names.count < 1000, let entry = readdir(directory) {
            names.append(
                withUnsafePointer(to: &entry.pointee.d_name) { name in
                    name.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
                })
        }
        return names
    }

    /// Nil if it is something else than `type`.
    private static func mode(of path: String, _ type: mode_t) -> mode_t? {
        var status = stat()
        return lstat(path, &status) == 0 && status.st_mode & S_IFMT == type ? status.st_mode & 0o7777 : nil
    }

    /// Whether the file is a database of ours: `application_id` is in its header.
    private static func isStore(_ path: String) -> Bool {
        guard let header = try? Files.read(path, atMost: 72, for: path), header.count == 72 else { return false }
        return header[68..<72].elementsEqual((0..<4).map { UInt8(Migrations.applicationID >> (24 - 8 * $0) & 0xFF) })
    }
}
