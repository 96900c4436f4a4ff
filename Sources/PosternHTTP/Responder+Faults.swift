// What no honest server does: for simulators that test how their clients take it. Plain HTTP only.

extension Responder {
    /// Aborts the connection: the peer sees a reset.
    public func reset() { settle(.reset) }

    /// Closes the connection without an answer.
    public func hangUp() { settle(.hangUp) }

    /// Never answers; ends when the peer closes or the server stops.
    public func hold() { settle(.held) }

    /// Writes `bytes` as they are, then closes.
    public func respondRaw(_ bytes: [UInt8]) { settle(.dripped(.raw(bytes))) }

    /// Writes the answer, headers included, in pieces of `chunk` bytes with a pause between two, then closes.
    public func respond(_ response: HTTPResponse, dripping chunk: Int, every pause: Duration) {
        precondition(chunk > 0, "a piece has at least one byte")
        settle(.dripped(.response(response, chunk: chunk, every: pause)))
    }

    /// Answers after a delay, unless the server stops before.
    public func respond(_ response: HTTPResponse, after delay: Duration) {
        guard use() else { return }
        let (connection, turn) = (connection, turn)
        connection.keeper.run(after: delay) { connection.settle(.response(response), turn: turn) }
    }
}
