public import PosternCore

/// A store that is opened for reading only, with or without a running gateway. Writes nothing.
public final class StoreView: Sendable {
    private let engine: StoreEngineKind
    private let place: String
    private let readers: Readers
    let now: Timestamp

    /// `now` decides whether what is due later still waits.
    public convenience init(path: String, now: Timestamp = SystemTime().now) throws(StoreError) {
        try self.init(OutboxOptions(path: path), now: now)
    }

    /// The same of the store that the options name.
    public init(_ options: OutboxOptions, now: Timestamp = SystemTime().now) throws(StoreError) {
        (engine, place, self.now) = (options.engine, options.path, now)
        do {
            readers = try engine.view(place)
            try readers.readSnapshot { _ in }
        } catch {
            throw engine.error(error, at: place)
        }
    }

    func read<T>(_ body: (StoreReader) throws -> T) throws(StoreError) -> T {
        do {
            return try readers.readSnapshot { sql in
                let kinds = KindTable()
                try sql.each("SELECT number, name FROM kinds") { kinds.learn(Kind($0[1]), number: $0[0]) }
                var names: [UpstreamNumber: UpstreamName] = [:]
                try sql.each("SELECT number, name FROM upstreams") { names[$0[0]] = UpstreamName(stored: $0[1]) }
                return try body(StoreReader(sql: sql, kinds: kinds, names: names))
            }
        } catch {
            throw engine.error(error, at: place)
        }
    }

    /// The processes that share the store, by name. Only for one in PostgreSQL.
    public func nodes() throws(StoreError) -> [StoreNode] { try read { try StoreNode.all(with: $0.sql) } }

    /// Counts every row on one snapshot.
    public func audit() throws(StoreError) -> Audit { try read { try Audit.run(with: $0.sql) } }

    public func message(_ id: MessageID, payload: Bool) throws(StoreError) -> MessageRecord? {
        try read { reader in
            try reader.message(id, payload: payload).flatMap { try reader.addingClaims(to: [$0], now: now).first }
        }
    }

    public func attempts(of id: MessageID) throws(StoreError) -> [AttemptRow] {
        try read { try $0.attempts(of: id, examining: StoreReader.maxAttempts) }
    }

    public func lanes<T>(
        of number: UpstreamNumber, in state: LaneRecord.State?, after cursor: Int64?, limit: Int,
        waits: @escaping (Kind) -> KindWait?, _ body: @escaping (LaneRecord) -> T?
    ) throws(StoreError) -> (lanes: [T], next: Int64?) {
        try read { try $0.lanes(of: number, in: state, after: cursor, limit: limit, now: now, waits: waits, body) }
    }

    public func messages(
        _ filter: MessageFilter, order: MessageOrder = .oldest, after cursor: MessageID?, limit: Int, payload: Bool
    ) throws(StoreError) -> (messages: [MessageRecord], next: MessageID?) {
        try read { reader in
            let page = try reader.messages(filter, order: order, after: cursor, limit: limit, payload: payload)
            return (try reader.addingClaims(to: page.messages, now: now), page.next)
        }
    }
}
