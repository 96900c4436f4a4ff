import PosternCore
import PosternJSON
import PosternStore

/// The names of mixed lanes, which are parts of the payloads: one payload is read for each lane.
struct LaneNames {
    private let context: APIContext
    private var known: [Int64: String?] = [:]

    /// A longer name, in bytes, is shown as its digest.
    private static let longest = 256

    init(_ context: APIContext) { self.context = context }

    /// Nil if the message has no such lane, or its name is not known.
    mutating func name(of record: MessageRecord) -> String? {
        record.laneDigest.flatMap { name(of: $0, first: record.id) }
    }

    /// `id`: one of the lane's messages.
    mutating func name(of digest: Int64, first id: MessageID) -> String? {
        if let name = known[digest] { return name }
        let name = read(digest, id)
        known[digest] = .some(name)
        return name
    }

    private func read(_ digest: Int64, _ id: MessageID) -> String? {
        // If the payload cannot be read, the digest is shown.
        guard let upstream = context.target(id.upstream)?.upstream, upstream.namesLanes,
            let record = try? context.outbox.message(id, payload: true), let payload = record.payload,
            case .success(let name?) = JSONParser.ofThisThread.parse(
                payload, { upstream.laneName(of: $0, of: record.kind) }),
            name.utf8.count <= Self.longest, Lane.digest(of: name.utf8) == .digest(digest)
        else { return nil }
        return name
    }
}
