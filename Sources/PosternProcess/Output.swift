import Glibc
import PosternCore

/// Writes a line to `descriptor` at once, so that who reads the other end of a pipe need not wait for a full buffer.
package func writeLine(_ text: String, to descriptor: Int32 = STDOUT_FILENO) {
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

/// Runs work that blocks on a thread of its own: waiting here, the main task occupies no thread of the cooperative pool.
package func onOwnThread<T: Sendable>(_ name: String, _ work: @escaping @Sendable () -> T) async -> T {
    var thread: OwnThread?
    let result = await withCheckedContinuation { continuation in
        thread = OwnThread(name: name) { continuation.resume(returning: work()) }
    }
    thread?.join()
    return result
}
