package import PosternCore
package import PosternEvents

/// A listener in virtual time, without a connection: the test says when it reads.
package final class ManualListener: StreamConnection, @unchecked Sendable {
    // @unchecked: for the thread of the test only.
    private var listener: StreamListener!
    package private(set) var wakes = 0
    package private(set) var isCut = false
    package private(set) var hasEnded = false
    package private(set) var parser = EventParser()
    private let bufferBytes: Int

    package init(
        _ stream: EventStream, _ filter: StreamListener.Filter = .init(), lastID: String? = nil,
        bufferBytes: Int = 4096, expiresAt: Timestamp? = nil,
        mayListen: @escaping @Sendable (Timestamp) -> Bool = { _ in true }
    ) {
        self.bufferBytes = bufferBytes
        let place = StreamPlace.take(in: stream, for: nil)!
        listener = StreamListener(
            filter, lastID: lastID, expiresAt: expiresAt, on: self, at: place, mayListen: mayListen)
        listener.began()
    }

    package func wake() { wakes += 1 }
    package func cut() { isCut = true }

    /// Reads once. Returns false if there is nothing.
    @discardableResult package func readPart() -> Bool {
        var buffer = [UInt8](repeating: 0, count: bufferBytes)
        guard let count = buffer.withUnsafeMutableBytes({ listener.next(into: $0) }) else {
            hasEnded = true
            return false
        }
        parser.read(Array(buffer[..<count]))
        return count > 0
    }

    /// Reads everything that is available, and returns the events.
    @discardableResult package func read() -> [ReceivedEvent] {
        while readPart() {}
        return parser.takeEvents()
    }

    package func leave() {
        listener.ended()
        listener = nil
    }
}
