internal import CMicrohttpd
import Synchronization

public enum HTTPVersion: String, Sendable {
    case http10 = "HTTP/1.0"
    case http11 = "HTTP/1.1"
}

/// Request line and headers.
///
/// Headers stay in libmicrohttpd's memory while the handler runs and are looked up there. A head that is kept for
/// later gets a copy of them first, at that cost, unless its keeper says that it will not ask for them.
public final class RequestHead: Sendable {
    public let method: String
    /// As sent: not decoded, without the query.
    public let path: String
    /// As sent, without the `?`; nil when there is none.
    public let query: String?
    public let version: HTTPVersion
    public let peer: PeerAddress
    /// The client's `X-Request-Id` if it is 1 to 128 visible ASCII characters, otherwise a fresh one.
    public let requestID: String

    // @unchecked: the pointer is only used under the lock of `fields`.
    private enum Fields: @unchecked Sendable {
        /// Valid until the callback in which the head was lent out ends: then `detach` replaces it.
        case borrowed(OpaquePointer)
        case copied(HeaderCopy)
        case forgotten
    }
    private let fields: Mutex<Fields>
    /// Which lengths header names have: most of what handlers ask for is not there, and this says so at once.
    private let nameLengths: UInt64

    init(
        method: String, target: RequestTarget, version: HTTPVersion, peer: PeerAddress, requestID: String,
        nameLengths: UInt64, connection: OpaquePointer
    ) {
        self.method = method
        path = target.path
        query = target.query
        self.version = version
        self.peer = peer
        self.requestID = requestID
        self.nameLengths = nameLengths
        fields = Mutex(.borrowed(connection))
    }

    /// The first header of that name, in whatever case.
    public func header(_ name: String) -> String? {
        guard nameLengths & Framing.bit(forLength: name.utf8.count) != 0 else { return nil }
        return fields.withLock { fields in
            switch fields {
            // `withCString`, here and below: a `String` passed as it is would be copied into an array first.
            case .borrowed(let connection):
                name.withCString { MHD_lookup_connection_value(connection, .HEADER_KIND, $0) }
                    .map { String(cString: $0) }
            case .copied(let copy): copy.first(name)
            case .forgotten: nil
            }
        }
    }

    /// All headers in their order, with duplicates.
    public var headers: [(name: String, value: String)] {
        fields.withLock { fields in
            switch fields {
            case .borrowed(let connection): HeaderCopy(of: connection).all
            case .copied(let copy): copy.all
            case .forgotten: []
            }
        }
    }

    /// The pairs of the query in their order, percent-decoded.
    public var queryPairs: [(name: String, value: String)] { query.map { PosternHTTP.queryPairs(of: $0) } ?? [] }

    /// Nobody will ask for headers any more.
    public func forgetHeaders() { fields.withLock { $0 = .forgotten } }

    /// To be called before libmicrohttpd may touch the memory again, when somebody still holds this head.
    func detach() {
        fields.withLock { fields in
            if case .borrowed(let connection) = fields { fields = .copied(HeaderCopy(of: connection)) }
        }
    }
}

/// Headers in one piece of memory.
private struct HeaderCopy {
    private var bytes: [UInt8] = []
    private var lines: [(name: Range<Int>, value: Range<Int>)] = []

    init(of connection: OpaquePointer) {
        withUnsafeMutablePointer(to: &self) {
            _ = MHD_get_connection_values_n(connection, .HEADER_KIND, copyHeader, $0)
        }
    }

    mutating func append(_ name: UnsafeBufferPointer<UInt8>, _ value: UnsafeBufferPointer<UInt8>) {
        let start = bytes.count
        bytes.append(contentsOf: name)
        bytes.append(contentsOf: value)
        lines.append((start..<start + name.count, start + name.count..<bytes.count))
    }

    func first(_ name: String) -> String? {
        let wanted = name.lowercased().utf8
        let line = lines.first { line in
            line.name.count == wanted.count
                && zip(bytes[line.name], wanted).allSatisfy { ((0x41...0x5A).contains($0) ? $0 | 0x20 : $0) == $1 }
        }
        return line.map { text($0.value) }
    }

    var all: [(name: String, value: String)] { lines.map { (text($0.name), text($0.value)) } }

    private func text(_ range: Range<Int>) -> String { String(decoding: bytes[range], as: UTF8.self) }
}

private let copyHeader: MHD_KeyValueIteratorN = { context, _, name, nameSize, value, valueSize in
    context!.assumingMemoryBound(to: HeaderCopy.self).pointee
        .append(bytes(name, nameSize), bytes(value, valueSize))
    return .YES
}

/// A C text of known length; valid for the call it came with.
func bytes(_ text: UnsafePointer<CChar>?, _ count: Int) -> UnsafeBufferPointer<UInt8> {
    UnsafeBufferPointer(start: UnsafeRawPointer(text)?.assumingMemoryBound(to: UInt8.self), count: count)
}
