/// The body of a response that is produced while it is sent (`Responder.stream`).
public protocol ResponseStream: AnyObject, Sendable {
    /// Fills `buffer` with the next part. Called on the connection's worker thread whenever the previous part was
    /// sent; must not block. It is not called for HEAD.
    func read(into buffer: UnsafeMutableRawBufferPointer) -> StreamPart
    /// Called once when nothing will be read any more: the response has ended, the client has left, or the server stops.
    func ended()
}

/// What a stream has to send at the moment.
public enum StreamPart: Sendable, Equatable {
    /// That many bytes of the buffer, at least one.
    case bytes(Int)
    /// Nothing until `Responder.wake`.
    case nothing
    case end
}
