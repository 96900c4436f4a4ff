import PosternCore

/// What a node sees of all nodes and queues at one look, in one statement: it is taken several times a second.
struct SeenNodes {
    /// The instants before the database was asked, and after it has answered.
    let start: MonotonicInstant
    let end: MonotonicInstant
    /// Those that are up or about to stop, and those that are dead and still own something.
    private(set) var nodes: [Node] = []
    /// Those of all queues; nil: none.
    private(set) var owners: [UpstreamNumber: Int64?] = [:]
    /// Nil if none of `nodes` keeps the store.
    var keeper: Node? { nodes.first(where: \.isKeeper) }

    struct Node {
        let number: Int64
        let name: String
        let beat: Int64
        let state: Int
        /// See `QueueView.text`.
        let serves: String
        let isKeeper: Bool
    }

    init(as node: Int64, with sql: SQL) throws {
        start = .sinceBoot
        var queues = ""
        nodes = try sql.all(
            """
            SELECT node, name, beat, state, serves, coalesce(node = store.owner, FALSE),
              (SELECT coalesce(string_agg(number || ' ' || coalesce(owner, 0), ',' ORDER BY number), '') FROM queues)
            FROM nodes CROSS JOIN store
            WHERE state <> ? OR node = store.owner OR node IN (SELECT owner FROM queues) OR node = ? ORDER BY node
            """, PostgresSchema.dead, node
        ) { row in
            queues = row[6]
            return Node(
                number: row[0], name: row[1], beat: row[2], state: row[3], serves: row[4], isKeeper: row[5])
        }
        end = .sinceBoot
        for queue in queues.split(separator: ",") {
            let parts = queue.split(separator: " ").compactMap { Int64($0) }
            guard parts.count == 2, let number = UInt8(exactly: parts[0]) else { continue }
            owners[UpstreamNumber(rawValue: number)] = parts[1] == 0 ? .some(nil) : parts[1]
        }
    }
}

/// Which queues the nodes work on, and which this one is to, as of its last look.
struct QueueView: Sendable {
    /// Counts the looks.
    private(set) var number = 0
    /// The names of the nodes that work on the queues; nil: none does.
    private(set) var ownerNames: [UpstreamNumber: String?] = [:]
    /// The queues that this node is to work on.
    private(set) var wanted: Set<UpstreamNumber> = []
    /// Those of them that it may adopt now, with why they are free.
    private(set) var free: [UpstreamNumber: Reason] = [:]

    /// Those that it works on, or is about to begin or to end that, and those of other nodes.
    private(set) var mine: Set<UpstreamNumber> = []
    private(set) var others: Set<UpstreamNumber> = []

    private var owners: [UpstreamNumber: Int64] = [:]
    /// Those that were about to stop, or were up, at the last look at which they were seen.
    private var states: [Int64: Int] = [:]

    /// Why a queue can be adopted: `reason` of `postern_queue_moves_total`.
    enum Reason: String, Sendable {
        /// No node had it, or one that has stopped.
        case free
        /// Its node was silent, or was evicted.
        case takeover
        /// Its node has released it to this one.
        case balance
    }

    init() {}

    /// - Parameter late: Nodes that are to adopt nothing for now.
    init(_ seen: SeenNodes, as node: Int64, late: Set<Int64>, after former: QueueView) {
        number = former.number + 1
        states = former.states.filter { former.owners.values.contains($0.key) }
        for other in seen.nodes where other.state != PostgresSchema.dead { states[other.number] = other.state }
        let names = Dictionary(seen.nodes.map { ($0.number, $0.name) }) { first, _ in first }
        ownerNames = seen.owners.mapValues { owner in owner.flatMap { names[$0] } }
        let live = seen.nodes.filter { $0.state == PostgresSchema.up }.map { other in
            let (queues, joint) = Self.queues(other.serves)
            return Balance.Node(
                number: other.number, queues: queues, joint: joint, mayAdopt: !late.contains(other.number))
        }
        wanted = Set(Balance(live, seen.owners, keeper: seen.keeper?.number).owners.filter { $0.value == node }.keys)
        // A queue keeps the name of its last owner until it has another one.
        owners = former.owners.filter { seen.owners.keys.contains($0.key) }
        for (queue, owner) in seen.owners {
            if let owner {
                owners[queue] = owner
                guard owner == node else {
                    others.insert(queue)
                    continue
                }
                mine.insert(queue)
                // Its release has failed, or its adoption.
                if wanted.contains(queue) { free[queue] = .free }
            } else if wanted.contains(queue) {
                free[queue] = reason(of: queue, seen)
            }
        }
    }

    private func reason(of queue: UpstreamNumber, _ seen: SeenNodes) -> Reason {
        guard let owner = owners[queue] else { return .free }
        if seen.nodes.contains(where: { $0.number == owner && $0.state == PostgresSchema.up }) { return .balance }
        return states[owner] == PostgresSchema.stopping ? .free : .takeover
    }

    // MARK: As text

    /// The value of `nodes.serves`: the numbers of queues, with a `+` behind those that belong together.
    static func text(of queues: Set<UpstreamNumber>, joint: Set<UpstreamNumber>) -> String {
        queues.map(\.rawValue).sorted()
            .map { "\($0)" + (joint.contains(UpstreamNumber(rawValue: $0)) ? "+" : "") }.joined(separator: " ")
    }

    private static func queues(_ text: String) -> (all: Set<UpstreamNumber>, joint: Set<UpstreamNumber>) {
        var (all, joint): (Set<UpstreamNumber>, Set<UpstreamNumber>) = ([], [])
        for word in text.split(separator: " ") {
            guard let number = UInt8(word.filter { $0 != "+" }) else { continue }
            all.insert(UpstreamNumber(rawValue: number))
            if word.hasSuffix("+") { joint.insert(UpstreamNumber(rawValue: number)) }
        }
        return (all, joint)
    }
}
