import PosternCore
import Testing

@testable import PosternStore

/// Which node works on which queue, as each of them decides it from what it has seen.
@Suite struct BalanceTests {
    private func queues(_ numbers: some Sequence<Int>) -> Set<UpstreamNumber> {
        Set(numbers.map { UpstreamNumber(rawValue: UInt8($0)) })
    }

    private func balance(_ nodes: [Balance.Node], _ owners: [Int: Int64?], keeper: Int64? = nil) -> [Int: Int64] {
        let owners = Dictionary(uniqueKeysWithValues: owners.map { (UpstreamNumber(rawValue: UInt8($0)), $1) })
        let balance = Balance(nodes, owners, keeper: keeper).owners
        return Dictionary(uniqueKeysWithValues: balance.map { (Int($0.key.rawValue), $0.value) })
    }

    private func nodes(_ count: Int, _ numbers: ClosedRange<Int>) -> [Balance.Node] {
        (1...count).map { Balance.Node(number: Int64($0), queues: queues(numbers)) }
    }

    // MARK: Examples

    @Test func freeQueues_goToTheNodeWithTheFewest() {
        #expect(balance(nodes(1, 1...3), [1: nil, 2: nil, 3: nil]) == [1: 1, 2: 1, 3: 1])
        #expect(balance(nodes(2, 1...4), [1: 2, 2: nil, 3: nil, 4: nil]) == [1: 2, 2: 1, 3: 1, 4: 2])
    }

    @Test func nodeThatJoins_getsTheQueuesWithTheHighestNumbers() {
        #expect(balance(nodes(2, 1...5), [1: 1, 2: 1, 3: 1, 4: 1, 5: 1]) == [1: 1, 2: 1, 3: 1, 4: 2, 5: 2])
        #expect(balance(nodes(2, 1...1), [1: 1]) == [1: 1])
    }

    @Test func nodeThatWasNotHeardOf_keepsWhatItHas_andGetsNothing() {
        var nodes = nodes(2, 1...4)
        nodes[1].mayAdopt = false
        #expect(balance(nodes, [1: 2, 2: nil, 3: nil, 4: nil]) == [1: 2, 2: 1, 3: 1, 4: 1])
    }

    @Test func queue_goesToANodeThatHasItsUpstream_orToNone() {
        let nodes = [Balance.Node(number: 1, queues: queues([1])), Balance.Node(number: 2, queues: queues([2, 3]))]
        #expect(balance(nodes, [1: 2, 2: nil, 3: 1, 4: 1]) == [1: 1, 2: 2, 3: 2])
    }

    @Test func queuesThatBelongTogether_haveOneOwner() {
        let nodes = (1...2).map { Balance.Node(number: $0, queues: queues(1...4), joint: queues([1, 4])) }
        #expect(balance(nodes, [1: nil, 2: nil, 3: nil, 4: 2]) == [1: 2, 2: 1, 3: 1, 4: 2])
        // No node has all of them.
        let apart = [
            Balance.Node(number: 1, queues: queues([1, 2]), joint: queues([1])),
            Balance.Node(number: 2, queues: queues([3, 4]), joint: queues([4])),
        ]
        #expect(balance(apart, [1: nil, 2: nil, 3: nil, 4: nil]) == [1: 1, 2: 1, 3: 2, 4: 2])
    }

    @Test func queuesThatBelongTogether_areTheKeepers_ifItHasThem() {
        var nodes = (1...3).map { Balance.Node(number: $0, queues: queues(1...5), joint: queues([1, 4])) }
        let owners: [Int: Int64?] = [1: 1, 2: 2, 3: 3, 4: 1, 5: 1]
        #expect(balance(nodes, owners, keeper: 3) == [1: 3, 2: 2, 3: 3, 4: 3, 5: 1])
        // It has more units than others could have, and no other one moves to it.
        #expect(balance(nodes, [1: 3, 2: 3, 3: 3, 4: 3, 5: 3], keeper: 3) == [1: 3, 2: 3, 3: 2, 4: 3, 5: 1])
        nodes[2].queues = queues([1, 2, 3, 5])
        #expect(balance(nodes, owners, keeper: 3) == [1: 1, 2: 2, 3: 3, 4: 1, 5: 1])
    }

    // MARK: Model

    /// The nodes of a run, which look, release, and adopt in any order. What one has seen may be old when it acts.
    private struct Cluster {
        var owners: [UpstreamNumber: Int64?] = [:]
        var nodes: [Int64: Balance.Node] = [:]
        var seen: [Int64: (nodes: [Balance.Node], owners: [UpstreamNumber: Int64?])] = [:]
        var adoptions = 0

        mutating func look(_ node: Int64) {
            seen[node] = (nodes.values.sorted { $0.number < $1.number }, owners)
        }

        mutating func act(_ node: Int64) {
            guard let seen = seen[node] else { return }
            let wanted = Balance(seen.nodes, seen.owners, keeper: seen.nodes.first?.number).owners
                .filter { $0.value == node }.keys
            for (queue, owner) in owners {
                // The database lets a node adopt what is free, and release what is its own.
                if owner == node, !wanted.contains(queue) { owners[queue] = .some(nil) }
                if owner == nil, wanted.contains(queue), nodes[node]?.queues.contains(queue) == true {
                    owners[queue] = node
                    adoptions += 1
                }
            }
        }

        mutating func beat(shuffledBy random: inout SplitMix64) {
            for node in nodes.keys.sorted().shuffled(using: &random) {
                look(node)
                act(node)
            }
        }

        /// What is wrong; empty if all queues that can have an owner have one, and the numbers of queues differ by one at most.
        var findings: [String] {
            var found: [String] = []
            for (queue, owner) in owners {
                let able = nodes.values.filter { $0.queues.contains(queue) }.map(\.number)
                if let owner { if !able.contains(owner) { found.append("\(queue) is at \(owner), which lacks it") } }
                if owner == nil, !able.isEmpty { found.append("\(queue) has no owner") }
            }
            return found
        }

        var spread: Int {
            let counts = nodes.keys.map { node in owners.values.count { $0 == node } }
            return (counts.max() ?? 0) - (counts.min() ?? 0)
        }
    }

    @Test(arguments: 0..<300) func nodesSettle_inThreeBeats_whateverHappens(seed: UInt64) {
        var random = SplitMix64(state: seed)
        let count = Int.random(in: 1...12, using: &random)
        let isSame = Bool.random(using: &random)
        let joint = (1...count).filter { _ in Int.random(in: 0..<3, using: &random) == 0 }
        var cluster = Cluster()
        for number in 1...count { cluster.owners[UpstreamNumber(rawValue: UInt8(number))] = .some(nil) }
        var next: Int64 = 1
        func node(_ random: inout SplitMix64) -> Balance.Node {
            let numbers = (1...count).filter { _ in isSame || Int.random(in: 0..<4, using: &random) > 0 }
            defer { next += 1 }
            return Balance.Node(number: next, queues: queues(numbers), joint: queues(joint))
        }
        for _ in 0..<6 {
            for _ in 0..<Int.random(in: 0...3, using: &random) {
                let joined = node(&random)
                cluster.nodes[joined.number] = joined
            }
            // Some end, and what they had is free.
            for gone in cluster.nodes.keys.sorted()
            where cluster.nodes.count > 1 && Int.random(in: 0..<5, using: &random) == 0 {
                cluster.nodes[gone] = nil
                for (queue, owner) in cluster.owners where owner == gone { cluster.owners[queue] = .some(nil) }
            }
            if cluster.nodes.isEmpty { cluster.nodes[next] = node(&random) }
            // Nodes that have seen the former state act on it.
            for node in cluster.nodes.keys.sorted() where Bool.random(using: &random) { cluster.act(node) }
            for _ in 0..<3 { cluster.beat(shuffledBy: &random) }
            #expect(cluster.findings == [])
            #expect(!isSame || !joint.isEmpty || cluster.spread <= 1)
            // Nothing moves any more.
            let (settled, adoptions) = (cluster.owners, cluster.adoptions)
            for _ in 0..<3 { cluster.beat(shuffledBy: &random) }
            #expect(cluster.owners == settled && cluster.adoptions == adoptions)
        }
    }
}
