import PosternHTTP

/// A request as the node that has received it passes it to the owner of the store: who sent it is known already.
struct RelayedCall {
    /// The name of the caller's key; empty if it has none.
    let key: String
    /// The address of the client.
    let peer: String
    /// `RequestHead.serialized`
    let head: [UInt8]
    /// Without its content coding.
    let body: [UInt8]

    init(_ request: APIRequest, _ body: [UInt8]) {
        key = request.caller?.key.name ?? ""
        peer = request.head.peer.description
        // The key stays where it is. A route that requires none may read the header itself.
        head = request.head.serialized(without: request.caller == nil ? [] : ["authorization"])
        self.body = body
    }

    /// Key, address, head, and body; the first two are ended by a zero, and the head by an empty line.
    var bytes: [UInt8] { Array(key.utf8) + [0] + Array(peer.utf8) + [0] + head + body }

    init?(_ bytes: [UInt8]) {
        let parts = bytes.split(separator: 0, maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count == 3, let empty = parts[2].firstRange(of: Array("\r\n\r\n".utf8)) else { return nil }
        key = String(decoding: parts[0], as: UTF8.self)
        peer = String(decoding: parts[1], as: UTF8.self)
        head = Array(parts[2][..<empty.upperBound])
        body = Array(parts[2][empty.upperBound...])
    }
}
