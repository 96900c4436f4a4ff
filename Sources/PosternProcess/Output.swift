import Glibc

/// Writes a line to `descriptor` at once, so that the reader of a pipe does not have to wait for a full buffer. Returns
/// false if not all of it could be written; `errno` says why.
@discardableResult package func writeLine(_ text: String, to descriptor: Int32 = STDOUT_FILENO) -> Bool {
    let bytes = Array((text + "\n").utf8)
    return bytes.withUnsafeBytes { bytes in
        var sent = 0
        while sent < bytes.count {
            let count = write(descriptor, bytes.baseAddress! + sent, bytes.count - sent)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { return false }
            sent += count
        }
        return true
    }
}
