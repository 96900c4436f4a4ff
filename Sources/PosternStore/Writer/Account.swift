import GRDB
import PosternCore

/// One upstream as the writer works on it: its books, and what the transaction at hand has brought it.
///
/// Lives on the writer's thread and outlasts transactions, so that the hot path touches no dictionary.
final class Account {
    let number: UpstreamNumber
    var ledger: Ledger
    /// The books as they are on disk.
    private(set) var committed: Ledger
    var arrival: Arrival?
    /// Lanes to look after before the commit; true for those that were served and go behind the others.
    var touchedLanes: [Int64: Bool] = [:]
    /// The named lane that got a message last: neighbours are mostly of one. Nil when its row may have changed since.
    var openLane: OpenLane?
    var settled = [Int](repeating: 0, count: MessageState.allCases.count)
    // The kind bound last: neighbours are mostly of one.
    private var lastKind: (kind: Kind, number: Int64)?

    init(number: UpstreamNumber, ledger: Ledger) {
        self.number = number
        self.ledger = ledger
        committed = ledger
    }

    var isChanged: Bool { ledger != committed }

    func kindNumber(of kind: Kind, in kinds: KindTable) -> Int64 {
        if let lastKind, lastKind.kind == kind { return lastKind.number }
        let number = Int64(kinds.number(of: kind))
        lastKind = (kind, number)
        return number
    }

    func begin() {
        arrival = nil
        openLane = nil
        touchedLanes.removeAll(keepingCapacity: true)
        for state in settled.indices { settled[state] = 0 }
    }

    func didCommit() { committed = ledger }
    func didRollBack() { ledger = committed }
}

/// A named lane with something queued, as its row stands.
struct OpenLane {
    let name: String
    let number: Int64
    /// Nil while it is parked.
    let readyAt: Timestamp?
    /// Held or parked: arrivals make it ready no sooner.
    let isBound: Bool

    func isReady(by moment: Timestamp) -> Bool { isBound || readyAt.map { $0 <= moment } ?? false }
}

/// What a transaction brought to one queue.
struct Arrival {
    let queue: UpstreamQueue
    /// Messages that can be sent at once, and their payload bytes.
    var messages = 0
    var bytes = 0
    var newest: Int64 = 0
    /// When the first scheduled one is due, or the first lane.
    var dueAt: Timestamp?

    mutating func isDue(at moment: Timestamp) { dueAt = min(dueAt ?? moment, moment) }
}

/// The accounts by number.
final class Accounts {
    private var all = [Account?](repeating: nil, count: 256)
    private(set) var open: [Account] = []

    init(_ ledgers: [UpstreamNumber: Ledger]) {
        for (number, ledger) in ledgers { add(Account(number: number, ledger: ledger)) }
    }

    private func add(_ account: Account) {
        all[Int(account.number.rawValue)] = account
        open.append(account)
    }

    subscript(number: UpstreamNumber) -> Account {
        if let known = all[Int(number.rawValue)] { return known }
        let account = Account(number: number, ledger: Ledger())
        add(account)
        return account
    }
}
