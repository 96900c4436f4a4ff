import Logging
public import PosternCore
import PosternThreads
import Synchronization

/// A request that another node has received, and that needs the owner of a queue, or the keeper.
///
/// That node adds a row to `requests`. The owner takes it when it looks for arrivals, has it answered, and adds the response, for
/// which the other one looks as often. It is carried out at most once: by the owner that has taken it, or by none.
public struct RelayedRequest: Sendable {
    /// What was passed to `Outbox.relay`; nil if it was encrypted with a key that this node does not have.
    public let bytes: [UInt8]?
    private let number: Int64
    private let outbox: Outbox

    fileprivate init(_ number: Int64, _ bytes: [UInt8]?, of outbox: Outbox) {
        (self.number, self.bytes, self.outbox) = (number, bytes, outbox)
    }

    /// Passes the response on; nil: the request cannot be read here. Call it once, on any thread.
    public func respond(_ response: [UInt8]?) {
        outbox.relays.taken.wrappingSubtract(1, ordering: .relaxed)
        do {
            let sealed = try response.map { try outbox.vault.seal($0, for: Relays.responses) } ?? []
            outbox.store(sealed, for: number)
        } catch {
            outbox.logger.error("cannot encrypt the response to another node", metadata: ["error": "\(error)"])
        }
    }
}

extension Outbox {
    /// Has the owner of a queue answer a request, or the keeper if there is none; nil: the keeper has to. Any thread.
    ///
    /// - Parameter completion: Called on a thread of the store, with what the owner passes to `RelayedRequest.respond`; or with
    ///   `notOwner` if no owner has taken the request for `Relays.patience`, so that nothing was done; or with `unresolved` if
    ///   it is not known whether it was carried out.
    public func relay(
        _ request: [UInt8], to queue: UpstreamNumber?,
        completion: @escaping @Sendable (Result<[UInt8], StoreError>) -> Void
    ) {
        let sealed: [UInt8]
        do { sealed = try vault.seal(request, for: Relays.requests) } catch {
            return completion(.failure(.failed(detail: "cannot encrypt the request: \(error)")))
        }
        writer.change(inTime: true) { [relays] transaction in
            try transaction.sql.value(
                "INSERT INTO requests (asker, queue, request) VALUES (?, ?, ?) RETURNING number", relays.asker, queue,
                sealed, as: Int64.self)
        } completion: { [relays, threads] result in
            switch result {
            case .success(let number?):
                relays.waiting.withLock { $0[number] = .init(since: threads.instant, completion: completion) }
            case .success(nil): completion(.failure(.failed(detail: "the request has no number")))
            case .failure(let error): completion(.failure(error))
            }
        }
    }

    /// Has `answer` answer what other nodes relay from now on; nil: they get no answer. It runs on the writer's thread, and must be
    /// quick.
    public func answerRelayed(_ answer: (@Sendable (RelayedRequest) -> Void)?) {
        relays.answer.withLock { $0 = answer }
    }

    /// Stores a response for the node that waits for it, later if the database cannot be reached.
    fileprivate func store(_ response: [UInt8], for number: Int64) {
        writer.change { transaction in
            try transaction.sql.run("UPDATE requests SET response = ? WHERE number = ?", response, number)
        } completion: { [relays] result in
            if case .failure = result { relays.unstored.withLock { $0.append((number, response)) } }
        }
    }

    /// Stores the responses for which the database could not be reached.
    func storeResponses() {
        let unstored = relays.unstored.withLock { unstored in
            defer { unstored = [] }
            return unstored
        }
        for (number, response) in unstored { store(response, for: number) }
    }

    /// How many requests of other nodes have not been answered.
    public var relayedRequests: Int { relays.taken.load(ordering: .relaxed) }
}

/// The requests that nodes relay to each other, at either end.
final class Relays: Sendable {
    /// How long a request waits for an owner that takes it.
    static let patience = Duration.seconds(5)
    /// The maximum number that the owner takes in one transaction.
    fileprivate static let most = 100
    /// What is encrypted, so that none is taken for the other.
    fileprivate static let (requests, responses) = ("request", "response")

    /// Distinguishes the requests of this process.
    let asker = Int64.random(in: 1...Int64.max)
    fileprivate let waiting = Mutex<[Int64: Waiting]>([:])
    fileprivate let answer = Mutex<(@Sendable (RelayedRequest) -> Void)?>(nil)
    /// Responses that could not be stored.
    fileprivate let unstored = Mutex<[(number: Int64, response: [UInt8])]>([])
    /// The number of those that were taken and not answered.
    fileprivate let taken = Atomic<Int>(0)

    fileprivate struct Waiting {
        let since: MonotonicInstant
        let completion: @Sendable (Result<[UInt8], StoreError>) -> Void
    }

    /// Whether this node waits for a response.
    var areWaiting: Bool { waiting.withLock { !$0.isEmpty } }
    /// Whether this node can answer.
    fileprivate var areAnswered: Bool { answer.withLock { $0 != nil } }

    fileprivate func end(_ number: Int64, _ result: Result<[UInt8], StoreError>) {
        waiting.withLock { $0.removeValue(forKey: number) }?.completion(result)
    }

    /// The requests of this node that wait for a response.
    var numbers: [Int64] { waiting.withLock { Array($0.keys) } }

    /// Ends all waits.
    func close() {
        for number in numbers {
            end(number, .failure(.unresolved(detail: "the gateway stops before the owner's response has arrived")))
        }
    }
}

// MARK: - The owner

extension Transaction {
    /// Takes requests of other nodes, and returns what has them answered once this is committed.
    func takeRelayed() throws -> @Sendable () -> Void {
        guard outbox.relays.areAnswered, let node = outbox.engine.node else { return {} }
        // What waits for longer is given up, as its client was told.
        let taken = try sql.all(
            """
            UPDATE requests SET owner = ?1 WHERE owner IS NULL AND number IN (
              SELECT number FROM requests
              WHERE owner IS NULL AND askedAt > extract(epoch FROM clock_timestamp()) * 1000 - ?3 AND
                CASE WHEN queue IN (SELECT number FROM queues WHERE owner IS NOT NULL)
                  THEN queue IN (SELECT number FROM queues WHERE owner = ?1) ELSE ?2 END
              ORDER BY number LIMIT ?4)
            RETURNING number, request
            """, node, outbox.isKeeper, Relays.patience.wholeMilliseconds, Int64(Relays.most)
        ) { (number: $0[0] as Int64, request: $0[1] as [UInt8]) }
        return { [outbox] in
            for (number, request) in taken.sorted(by: { $0.number < $1.number }) {
                let bytes = outbox.vault.open(request, for: Relays.requests)
                let relayed = RelayedRequest(number, bytes, of: outbox)
                guard let answer = outbox.relays.answer.withLock({ $0 }) else {
                    // This node has begun to stop: the next owner takes it.
                    outbox.writer.change { transaction in
                        try transaction.sql.run("UPDATE requests SET owner = NULL WHERE number = ?", number)
                    }
                    continue
                }
                outbox.relays.taken.wrappingAdd(1, ordering: .relaxed)
                if let action = bytes.flatMap({ RelayedAction($0) }) {
                    outbox.perform(action, for: relayed)
                } else {
                    answer(relayed)
                }
            }
        }
    }
}

// MARK: - The other nodes

/// What has become of a request that this node has relayed.
private struct RelayState {
    let number: Int64
    let response: [UInt8]?
    let isTaken: Bool
    /// Whether the node that has taken it lives.
    let isInProgress: Bool
}

extension Outbox {
    /// Passes on what the owner has answered. Returns the numbers of requests whose rows are to be removed, and of those that no
    /// owner has taken in time. The writer's thread.
    func collectResponses() -> (done: [Int64], untaken: [Int64]) {
        let now = threads.instant
        let asked = relays.waiting.withLock { $0.mapValues { now - $0.since > Relays.patience } }
        let states: [Int64: RelayState]
        do {
            let found = try read { [relays] sql in
                try sql.all(
                    """
                    SELECT number, response, owner IS NOT NULL,
                      EXISTS (SELECT 1 FROM nodes WHERE node = owner AND state <> ?)
                    FROM requests WHERE asker = ?
                    """, PostgresSchema.dead, relays.asker
                ) { RelayState(number: $0[0], response: $0[1], isTaken: $0[2], isInProgress: $0[3]) }
            }
            states = Dictionary(uniqueKeysWithValues: found.map { ($0.number, $0) })
        } catch {
            for (number, isLate) in asked where isLate {
                relays.end(number, .failure(.unresolved(detail: "\(error)")))
            }
            return ([], [])
        }
        var (done, untaken): ([Int64], [Int64]) = ([], [])
        for (number, isLate) in asked {
            guard let state = states[number] else {
                // A crash of the database empties the table.
                relays.end(number, .failure(.unresolved(detail: "the database has lost the request")))
                continue
            }
            if let response = state.response {
                let opened = vault.open(response, for: Relays.responses)
                relays.end(
                    number,
                    opened.map { .success($0) }
                        ?? .failure(.failed(detail: "the gateway that answers has another encryption key or version")))
                done.append(number)
            } else if state.isTaken, !state.isInProgress {
                relays.end(number, .failure(.unresolved(detail: "the gateway that was to answer was lost")))
                done.append(number)
            } else if !state.isTaken, isLate {
                untaken.append(number)
            }
        }
        return (done, untaken)
    }
}

extension Transaction {
    /// Removes the rows of requests that are answered, and of those that no owner has taken. Returns what tells the callers of
    /// these once that is committed.
    func removeRequests(_ done: [Int64], _ untaken: [Int64]) throws -> @Sendable () -> Void {
        for number in done { try sql.send("DELETE FROM requests WHERE number = ?", number) }
        let givenUp = try untaken.filter {
            try sql.run("DELETE FROM requests WHERE number = ? AND owner IS NULL", $0) == 1
        }
        return { [relays = outbox.relays] in givenUp.forEach { relays.end($0, .failure(.notOwner)) } }
    }
}
