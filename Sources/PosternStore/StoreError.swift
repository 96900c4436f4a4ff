import PosternCore
public import PosternThreads

/// An error of the store: what happened, where, and what to do.
public enum StoreError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The file or its folder cannot be created or written.
    case cannotCreate(path: String, detail: String)
    /// Another process is using this store.
    case alreadyRunning(path: String)
    /// The file is damaged.
    case corrupt(path: String, detail: String)
    /// Another program's SQLite database, or not a database at all.
    case foreign(path: String)
    /// Written by a later version.
    case newer(path: String)
    /// The store was moved from this file to a database.
    case moved(path: String, to: String)
    /// A move of another store to this place has not ended.
    case moving(place: String, from: String)
    /// The place to which a store is to be moved holds another one.
    case occupied(place: String)
    /// A process uses the place to which a store is to be moved.
    case inUse(place: String, by: String)
    /// The encryption keys of a configuration do not open that many of the stored credentials.
    case sealed(credentials: Int, configuration: String)
    /// The write-ahead log is damaged: its recovery would lose answered commits.
    case logDamaged(path: String, detail: String)
    /// There is no room for more messages.
    case full(detail: String)
    /// Nothing was committed, for another reason that the engine reports.
    case failed(detail: String)
    /// It is not known whether the change was committed: the disk failed while it was synced.
    case unknown(detail: String)
    /// It is not known yet whether the change was committed: the database was lost meanwhile.
    case unresolved(detail: String)
    /// The database does not answer; nothing was committed.
    case unavailable(detail: String)
    /// Another transaction of the database was in the way for too long; nothing was committed.
    case conflict(detail: String)
    /// Another process has taken over the store; this one changes nothing any more.
    case ownershipLost
    /// Another process works on the queues, and this one cannot do what was asked.
    case notOwner
    /// A process with the same name of a node is running on the store.
    case nodeRunning(name: String)
    /// The database or its settings cannot keep what the store promises, or this process lacks rights in it.
    case unsuitable(detail: String)
    /// The file of the store was deleted or replaced while the gateway ran.
    case lost(path: String)
    /// The store's threads cannot be started.
    case systemLimit(SystemLimitError)
    /// An upstream is configured as another type than the one that accepted its messages.
    case otherType(upstream: String, former: String, type: String, messages: Int)
    /// The store is closed or closing.
    case closed

    public var description: String {
        switch self {
        case .cannotCreate(let path, let detail):
            "cannot open the store at \(path): \(detail). Check that the folder exists and may be written to"
        case .alreadyRunning(let path):
            "another process is running on the store at \(path). Stop it, or give this one another outbox.path"
        case .corrupt(let path, let detail):
            "the store at \(path) is damaged: \(detail). Restore a copy, or start with --start-fresh, which keeps the "
                + "damaged file under a new name and begins an empty store"
        case .foreign(let path):
            "\(path) is not a Postern store; it was not changed. Set outbox.path to another file"
        case .newer(let path):
            "the store at \(path) was written by a later version of Postern; it was not changed. Run that version"
        case .moved(let path, let place):
            "the store at \(path) was moved to \(place). Set outbox.engine to postgres, with that database"
        case .moving(let place, let path):
            "the store at \(place) is not complete, because it is still being moved there from \(path). If nothing does that "
                + "any more, run postern outbox migrate-store again"
        case .occupied(let place):
            "there is a store at \(place), to which this one would have to be added. Name an empty schema in "
                + "outbox.postgres.schema"
        case .inUse(let place, let user): "\(user) is using the store at \(place). Stop it first"
        case .sealed(let credentials, let configuration):
            "the encryption keys of the \(configuration) configuration do not open \(credentials) stored credentials. Add "
                + "their key to outbox.previousEncryptionKeys"
        case .logDamaged(let path, let detail):
            "the store at \(path) was not opened: \(detail). All files were left as they are. Start with --recover, "
                + "which keeps a copy and restores those commits as far as they are intact"
        case .unknown(let detail): "the disk failed during a commit, and its outcome is not known: \(detail)"
        case .unresolved(let detail):
            "the database was lost during a commit, and its outcome is not known yet: \(detail)"
        case .unavailable(let detail): "the database of the store cannot be reached: \(detail)"
        case .conflict(let detail): "another transaction of the database was in the way for too long: \(detail)"
        case .ownershipLost: "another gateway has taken over the store; this one has to start again"
        case .notOwner: "another gateway works on the queues of the store, and this one cannot do that"
        case .nodeRunning(let name):
            "another gateway with the name \(name) is running on the store. Stop it, or give this one another "
                + "outbox.postgres.node"
        case .unsuitable(let detail): "the database cannot hold a store: \(detail)"
        case .lost(let path):
            "the store at \(path) was deleted or replaced while the gateway was running; nothing more is accepted. Put the file "
                + "back if it was renamed, and restart"
        case .otherType(let upstream, let former, let type, let messages):
            "the store has \(messages) messages that upstream \(upstream) accepted as type \(former); type \(type) would send "
                + "them to another API without checking them. Give the new upstream another name, or configure type "
                + "\(former) until they are delivered or cancelled, and delete those that failed or were dropped with "
                + "postern outbox purge"
        case .full(let detail): "no room to store more: \(detail)"
        case .failed(let detail): "the store failed: \(detail)"
        case .systemLimit(let error): "\(error)"
        case .closed: "the store is closed"
        }
    }

    /// Whether the database of the store is away, or belongs to another process now.
    public var isOfDatabase: Bool {
        switch self {
        case .unresolved, .unavailable, .ownershipLost: true
        default: false
        }
    }
    var isFull: Bool { if case .full = self { true } else { false } }
    /// It, if it says that the outcome is not known, or `.unknown` for its reason.
    var asUnknown: StoreError { if case .unresolved = self { self } else { .unknown(detail: "\(self)") } }
    /// It, or `.full` for its reason.
    var asFull: StoreError { isFull ? self : .full(detail: "\(self)") }
}
