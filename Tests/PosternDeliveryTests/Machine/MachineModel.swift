import PosternCore
import PosternUpstream

@testable import PosternDelivery
@testable import PosternStore

/// The machine with a queue on values: what the store and the worker do for it, and nothing more.
struct MachineModel {
    struct Entry: Equatable {
        var message: Message
        var endpoint: String
        var dueAt: Timestamp
        var history = BatchHistory()
        /// Those of one group are sent together.
        var group: Int
        var hasFailed = false
    }

    var machine: DeliveryMachine
    var now = Timestamp(milliseconds: 1_000_000)
    /// In the order of acceptance.
    var queue: [Entry] = []
    var flights: [(flight: InFlightBatch, entries: [Entry])] = []
    var ended: [(id: MessageID, state: MessageState)] = []
    var notices: [DeliveryMachine.Notice] = []
    private var batches: Int64 = 0
    private var groups = 100

    init(most: Int = 2) {
        machine = DeliveryMachine(health: UpstreamHealth(upstream: Circuit(most: most)))
    }

    static func id(_ number: Int) -> MessageID {
        MessageID(sequence: Int64(number), upstream: UpstreamNumber(rawValue: 1))
    }

    mutating func accept(_ number: Int, lane: Int64, to endpoint: String = "", group: Int? = nil) {
        let message = Message(
            id: Self.id(number), kind: "thing", lane: .digest(lane), acceptedAt: now, payload: Array("{}".utf8))
        queue.append(Entry(message: message, endpoint: endpoint, dueAt: now, group: group ?? number))
    }

    // MARK: Sending

    /// Groups whose lanes are free and that are due.
    private var candidates: [[Entry]] {
        let busy = Set(flights.flatMap { $0.entries.map(\.message.lane) })
        return Dictionary(grouping: queue, by: \.group).values.sorted { $0[0].message.id < $1[0].message.id }.filter {
            group in
            group.allSatisfy { entry in
                let earlier = queue.first { $0.message.lane == entry.message.lane && $0.group != entry.group }
                return entry.dueAt <= now && !busy.contains(entry.message.lane)
                    && earlier.map { $0.message.id > entry.message.id } ?? true
            }
        }
    }

    var canSend: Bool { next != nil }

    private var next: [Entry]? {
        guard machine.maySend(now: now) else { return nil }
        let open = candidates.filter { machine.health.wait(of: $0[0].endpoint, now: now) == nil }
        let suspects = open.filter { $0.count == 1 && $0[0].history.suspectTries > 0 }
        let others = open.filter { !suspects.contains($0) }
        let isProbe = machine.health.upstream.state != .closed
        if isProbe, let fresh = others.first(where: { !$0[0].hasFailed }) { return fresh }
        if let first = others.first { return first }
        return machine.suspectsInFlight == 0 ? suspects.first : nil
    }

    /// Sends the batch that the worker would send next.
    mutating func send() {
        guard var entries = next else { return }
        if let limit = machine.probeLimit(of: entries[0].endpoint), entries.count > limit {
            groups += 1
            for position in queue.indices where entries.dropFirst(limit).contains(queue[position]) {
                queue[position].group = groups
                queue[position].hasFailed = true
            }
            entries = Array(entries.prefix(limit))
        }
        batches += 1
        let claim = Claim(
            messages: entries.map(\.message), expired: [], isGroup: entries[0].hasFailed, history: entries[0].history)
        let batch = Batch(
            id: BatchID(rawValue: batches), messages: claim.messages,
            request: UpstreamRequest(url: "http://model.test/", endpoint: entries[0].endpoint))
        let flight = InFlightBatch(
            batch: batch, claim: claim, startedAt: MonotonicInstant(nanoseconds: now.milliseconds * 1_000_000),
            generation: machine.tokens.generation)
        machine.began(flight, now: now)
        queue.removeAll { entries.contains($0) }
        flights.append((flight, entries))
    }

    // MARK: Answering

    private var others: DeliveryMachine.OtherMessages {
        if queue.isEmpty { return .none }
        return candidates.isEmpty ? queue.contains { $0.dueAt > now } || flights.count > 1 ? .later : .blocked : .ready
    }

    @discardableResult mutating func answer(
        _ transfer: TransferResult, _ judgement: Judgement? = nil, at index: Int = 0, random: Double = 0.5
    ) -> Settlement {
        let (flight, entries) = flights[index]
        let actions = machine.answered(
            flight, AttemptResult(transfer, judgement, at: now), others: others, random: random)
        flights.remove(at: index)
        var settlement: Settlement?
        for action in actions {
            switch action {
            case .record(let found): settlement = found
            case .wakeHeld:
                for position in queue.indices { queue[position].dueAt = min(queue[position].dueAt, now) }
            case .notify(let notice): notices.append(notice)
            case .makeDue, .savePause, .saveFlush, .finishFlush: break
            }
        }
        guard let settlement else { preconditionFailure("a result is recorded") }
        machine.ended()
        settle(settlement, entries)
        return settlement
    }

    @discardableResult mutating func answer(_ verdict: Verdict, at index: Int = 0, random: Double = 0.5) -> Settlement {
        answer(.success(UpstreamResponse(status: 200)), Judgement(verdict), at: index, random: random)
    }

    private mutating func settle(_ settlement: Settlement, _ entries: [Entry]) {
        ended += settlement.delivered.map { ($0.id, .delivered) }
        ended += settlement.ended.map { ($0.message.id, $0.state) }
        for again in settlement.again {
            groups += 1
            putBack(again.messages, of: entries) { [groups] entry in
                entry.group = groups
                entry.dueAt = again.dueAt
                entry.history = again.history
                entry.hasFailed = true
                if settlement.waiting?.counts == true { entry.message.attempts += 1 }
                if settlement.waiting?.mayHaveArrived == true { entry.message.mayHaveArrived = true }
            }
        }
        let waits = settlement.isGivenBack ? now : settlement.postponed?.until
        if let waits {
            putBack(entries.map(\.message), of: entries) { entry in
                entry.dueAt = waits
                entry.history = settlement.postponed?.history ?? entry.history.cleared
                if settlement.postponed != nil { entry.hasFailed = true }
            }
        }
        queue.sort { $0.message.id < $1.message.id }
    }

    private mutating func putBack(_ messages: [Message], of entries: [Entry], _ change: (inout Entry) -> Void) {
        for message in messages {
            guard var entry = entries.first(where: { $0.message.id == message.id }) else { continue }
            change(&entry)
            queue.append(entry)
        }
    }

    // MARK: Time

    /// Advances to the next time at which something may change. Returns false if only a response can change something.
    mutating func wait() -> Bool {
        var moments = queue.map(\.dueAt)
        if let reopensAt = machine.health.upstream.reopensAt { moments.append(reopensAt) }
        moments += machine.health.endpoints.values.compactMap(\.circuit.reopensAt)
        guard let next = moments.filter({ $0 > now }).min() else { return false }
        now = next
        return true
    }
}
