/// The room in one request: how many messages it holds, and how many bytes with the commas between them.
///
/// The claims of a worker and a dry run both fill requests by it.
package struct BatchRoom: Sendable, Equatable {
    let limits: BatchLimits
    /// Messages that were taken so far.
    package private(set) var count = 0
    private var bytes: Int

    package init(_ limits: BatchLimits) {
        self.limits = limits
        bytes = limits.overhead
    }

    /// Whether a message of `size` bytes fits. One that is too large for any request is sent alone.
    package func fits(_ size: Int) -> Bool {
        count == 0 || (count < limits.maxMessages && bytes + 1 + size <= limits.maxBytes)
    }

    /// Whether so many messages fit, which have `size` bytes together.
    package func fits(_ messages: Int, of size: Int) -> Bool {
        count + messages <= limits.maxMessages && bytes + messages + size <= limits.maxBytes
    }

    /// Adds a message of `size` bytes, whether or not it fits.
    package mutating func take(_ size: Int) {
        bytes += size + (count == 0 ? 0 : 1)
        count += 1
    }

    /// Whether no further message fits, however small it is.
    package var isFull: Bool { count >= limits.maxMessages || (count > 0 && bytes >= limits.maxBytes) }
}
