import Glibc
import PosternStore

/// A configuration file that `postern init` creates.
public enum NewConfiguration {
    /// Writes `text` and a line break to a new file, which is accessible only to its owner. Throws if there is a file of that
    /// name.
    public static func write(_ text: String, to path: String) throws(CommandFailure) {
        let descriptor: Int32
        do throws(OwnFile.Refusal) {
            descriptor = try OwnFile.open(path, isNew: true)
        } catch {
            throw CommandFailure(CommandFailure.no, "Cannot write \(path): \(error.detail).")
        }
        defer { close(descriptor) }
        var rest = Array((text + "\n").utf8)[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw failure(path) }
            rest = rest.dropFirst(count)
        }
        guard fsync(descriptor) == 0 else { throw failure(path) }
    }

    /// A part of the file is of no value to the caller, and would be in the way of a second try.
    private static func failure(_ path: String) -> CommandFailure {
        let detail = String(cString: strerror(errno))
        unlink(path)
        return CommandFailure(CommandFailure.no, "Cannot write \(path): \(detail).")
    }
}
