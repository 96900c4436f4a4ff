/// The body of a response that is produced while it is sent (`Responder.stream`).
public protocol ResponseStream: AnyObject, Sendable {
    /// Called once before the head of the response is sent, so that nothing is missed that happens after a client has
    /// it. Called on the connection's worker thread, like `read`; neither must block, and neither is called for HEAD.
    func began()
    /// Fills `buffer` with the next part, whenever the previous one was sent.
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
