import Glibc

/// A file with messages that this process writes: it belongs to this user, and no other user can open it.
public enum OwnFile {
    /// Why a file was not opened; complete without its path.
    public struct Refusal: Error { public let detail: String }

    /// Opens a file for reading and writing; creates it if there is none, and with `isNew` only then. A file that is
    /// already there is not truncated.
    ///
    /// What another user left under the name is refused: through a symbolic link, or a second name of a file, its target
    /// would be overwritten, and a file of another user could be read by that user. Returns the descriptor, which the caller
    /// closes.
    public static func open(_ path: String, isNew: Bool = false) throws(Refusal) -> Int32 {
        let flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | (isNew ? O_EXCL : 0)
        let descriptor = Glibc.open(path, flags, 0o600)
        guard descriptor >= 0 else {
            throw Refusal(detail: errno == ELOOP ? "it is a symbolic link; remove it" : lastSystemError())
        }
        if let detail = problem(of: descriptor) {
            close(descriptor)
            throw Refusal(detail: detail)
        }
        return descriptor
    }

    private static func problem(of descriptor: Int32) -> String? {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { return lastSystemError() }
        guard status.st_mode & S_IFMT == S_IFREG else { return "it is not a regular file" }
        guard status.st_uid == geteuid() else { return "it belongs to another user; remove it" }
        guard status.st_nlink == 1 else { return "it is another name of a file; remove it" }
        // Also after an earlier version, or another program, created it.
        guard status.st_mode & 0o077 == 0 || fchmod(descriptor, 0o600) == 0 else { return lastSystemError() }
        return nil
    }
}
