import GRDB
public import PosternCore

/// A store opened for reading only, beside a running gateway or without one. Writes nothing.
public final class StoreView: Sendable {
    private let queue: DatabaseQueue
    private let path: String

    public init(path: String) throws(StoreError) {
        self.path = path
        do {
            try StoreFile.examineUnopened(path)
            try StoreFile.inspect(path)
            var configuration = Configuration()
            configuration.readonly = true
            configuration.busyMode = .timeout(5)
            queue = try DatabaseQueue(path: path, configuration: configuration)
        } catch {
            throw StoreError(error, path: path)
        }
    }

    func read<T>(_ body: (StoreReader) throws -> T) throws(StoreError) -> T {
        do {
            return try queue.read { db in
                let sql = SQL(db)
                let kinds = KindTable()
                try sql.each("SELECT number, name FROM kinds") { kinds.learn(Kind($0[1]), number: $0[0]) }
                var names: [UpstreamNumber: UpstreamName] = [:]
                try sql.each("SELECT number, name FROM upstreams") { names[$0[0]] = UpstreamName($0[1]) }
                return try body(StoreReader(sql: sql, kinds: kinds, names: names))
            }
        } catch {
            throw StoreError(error, path: path)
        }
    }

    public func audit() throws(StoreError) -> Audit { try read { try Audit.run(with: $0.sql) } }

    public func message(_ id: MessageID, payload: Bool) throws(StoreError) -> MessageRecord? {
        try read { try $0.message(id, payload: payload) }
    }

    public func attempts(of id: MessageID) throws(StoreError) -> [AttemptRow] { try read { try $0.attempts(of: id) } }

    public func messages(
        _ filter: MessageFilter, after cursor: MessageID?, limit: Int, payload: Bool
    ) throws(StoreError) -> (messages: [MessageRecord], next: MessageID?) {
        try read { try $0.messages(filter, after: cursor, limit: limit, payload: payload) }
    }
}
