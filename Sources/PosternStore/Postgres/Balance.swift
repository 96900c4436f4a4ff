import PosternCore

/// Which node works on which queue. Each node computes it from what it has seen, releases the queues that are to be another's,
/// and adopts those that are free and to be its own. There is no leader: nodes that have seen the same agree, and of those that
/// have not, the database lets one adopt a queue.
struct Balance: Equatable, Sendable {
    /// A node that lives.
    struct Node: Equatable, Sendable {
        let number: Int64
        /// What it can work on, because their upstreams are configured there.
        var queues: Set<UpstreamNumber>
        /// Those of them that belong together: a request may have messages for several of them, which are checked against
        /// their states in one transaction.
        var joint: Set<UpstreamNumber> = []
        /// False for one that has not been heard of for a while: it keeps what it has.
        var mayAdopt = true
    }

    /// The node that is to work on each queue. A queue that no node can work on is not in it.
    private(set) var owners: [UpstreamNumber: Int64] = [:]

    /// Leaves as much as possible as it is. Queues without an owner go to the node with the fewest. As long as a node has two
    /// more than one that could take one of them, that moves, the one with the highest number first. Queues that belong
    /// together count as one, unless no node can work on all of them. They are the keeper's if it can: what it does for several
    /// queues may need their states.
    ///
    /// - Parameters:
    ///   - nodes: Those that live, without those that are about to stop.
    ///   - queues: All queues, with the numbers of their owners.
    ///   - keeper: The node that keeps the store; nil if there is none.
    init(_ nodes: [Node], _ queues: [UpstreamNumber: Int64?], keeper: Int64? = nil) {
        let joint = nodes.reduce(into: Set<UpstreamNumber>()) { $0.formUnion($1.joint) }.intersection(queues.keys)
        let units = Self.units(nodes, queues.keys, joint)
        var counts = Dictionary(nodes.map { ($0.number, 0) }) { first, _ in first }
        var places: [Int64?] = units.map { unit in
            let holder = unit.lazy.compactMap { queues[$0] ?? nil }.first
            return nodes.contains { $0.number == holder && $0.queues.isSuperset(of: unit) } ? holder : nil
        }
        let isKept = units.map { unit in
            joint.contains(unit[0])
                && nodes.contains { $0.number == keeper && $0.mayAdopt && $0.queues.isSuperset(of: unit) }
        }
        for index in units.indices where isKept[index] { places[index] = keeper }
        for case let place? in places { counts[place, default: 0] += 1 }

        /// The node with the fewest units that can work on this one.
        func idlest(for unit: [UpstreamNumber]) -> Int64? {
            nodes.filter { $0.mayAdopt && $0.queues.isSuperset(of: unit) }
                .min { (counts[$0.number] ?? 0, $0.number) < (counts[$1.number] ?? 0, $1.number) }?.number
        }
        for index in units.indices where places[index] == nil {
            guard let node = idlest(for: units[index]) else { continue }
            places[index] = node
            counts[node, default: 0] += 1
        }
        while true {
            // Each move makes the counts more even, so this ends.
            let moves = units.indices.compactMap { index -> (gain: Int, index: Int, to: Int64)? in
                guard !isKept[index], let from = places[index], let to = idlest(for: units[index]) else { return nil }
                return ((counts[from] ?? 0) - (counts[to] ?? 0), index, to)
            }
            guard let best = moves.max(by: { ($0.gain, $0.index) < ($1.gain, $1.index) }), best.gain >= 2,
                let from = places[best.index]
            else { break }
            places[best.index] = best.to
            counts[from, default: 0] -= 1
            counts[best.to, default: 0] += 1
        }
        for (unit, place) in zip(units, places) {
            if let place { for queue in unit { owners[queue] = place } }
        }
    }

    /// What moves as a whole, by its lowest number.
    private static func units(
        _ nodes: [Node], _ queues: some Collection<UpstreamNumber>, _ joint: Set<UpstreamNumber>
    ) -> [[UpstreamNumber]] {
        guard nodes.contains(where: { $0.queues.isSuperset(of: joint) }) else {
            return queues.sorted { $0.rawValue < $1.rawValue }.map { [$0] }
        }
        let together = joint.sorted { $0.rawValue < $1.rawValue }
        let alone = queues.filter { !joint.contains($0) }.map { [$0] }
        return (alone + (together.isEmpty ? [] : [together])).sorted { $0[0].rawValue < $1[0].rawValue }
    }
}
