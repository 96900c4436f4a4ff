public import PosternCore
public import PosternStore
public import PosternUpstream

/// The names of mixed lanes, which are parts of the payloads: one payload is read for each lane.
public struct LaneNames {
    private struct Key: Hashable {
        let upstream: UpstreamNumber
        let digest: Int64
    }

    private let upstream: (UpstreamNumber) -> AnyUpstream?
    private let message: (MessageID) -> MessageRecord?
    private var known: [Key: String?] = [:]

    /// A longer name, in bytes, is shown as its digest.
    private static let longest = 256

    /// `message`: reads a message with its payload; nil if that is not possible.
    public init(
        upstream: @escaping (UpstreamNumber) -> AnyUpstream?,
        message: @escaping (MessageID) -> MessageRecord?
    ) {
        (self.upstream, self.message) = (upstream, message)
    }

    init(_ context: APIContext) {
        self.init(
            upstream: { context.upstream($0)?.adapter },
            // If the payload cannot be read, the digest is shown.
            message: { try? context.outbox.message($0, payload: true) })
    }

    /// The same message with the name of its lane, if it can be known.
    public mutating func adding(to record: MessageRecord) -> MessageRecord {
        var record = record
        if let digest = record.laneDigest { record.laneName = name(of: digest, first: record.id) }
        return record
    }

    /// The same lane with its name, if it can be known.
    public mutating func adding(to lane: LaneRecord) -> LaneRecord {
        var lane = lane
        if let digest = lane.digest { lane.key = name(of: digest, first: MessageID(rawValue: lane.number)) }
        return lane
    }

    /// `id`: one of the lane's messages.
    private mutating func name(of digest: Int64, first id: MessageID) -> String? {
        let key = Key(upstream: id.upstream, digest: digest)
        if let name = known[key] { return name }
        let name = read(digest, id)
        known[key] = .some(name)
        return name
    }

    private func read(_ digest: Int64, _ id: MessageID) -> String? {
        guard let laneName = upstream(id.upstream)?.traits.laneName,
            let record = message(id), let payload = record.payload,
            case .success(let name?) = JSONParser.ofThisThread.parse(
                payload, { laneName($0, record.kind) }),
            name.utf8.count <= Self.longest, Lane.digest(of: name.utf8) == .digest(digest)
        else { return nil }
        return name
    }
}
