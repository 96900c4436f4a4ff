import PosternCore

/// What identifies an event, which its producer may send several times, alone or among others. It is stored once.
public struct EventIdentity: Sendable, Equatable {
    /// Identifies the event, in 32 bytes.
    let key: [UInt8]
    /// Differs for another event under the same key.
    let fingerprint: [UInt8]

    public init(key: [UInt8], fingerprint: [UInt8]) {
        self.key = key
        self.fingerprint = fingerprint
    }
}

extension Transaction {
    /// Stores all of `messages` or, on a refusal, none, and with them what `record` says.
    func append(
        _ messages: [NewMessage], recording record: RequestRecord?, isDiskFull: Bool
    ) throws -> Result<AppendReceipt, AppendError> {
        if record != nil { growth = nil }
        switch record {
        case nil: return try append(messages, isDiskFull: isDiskFull)
        case .response(let response):
            let result = try append(messages, isDiskFull: isDiskFull)
            if case .success(let receipt) = result { try response.write(receipt, at: outbox.time.now, with: sql) }
            return result
        case .events(let identities): return try append(messages, identifiedBy: identities, isDiskFull: isDiskFull)
        }
    }

    /// Where the message of an event is: in the store, or among those that are to be stored.
    private enum EventMessage {
        case stored(MessageID)
        case new(Int)
    }

    /// Leaves out the events that were stored before; the receipt has the ids of their messages all the same.
    private func append(
        _ messages: [NewMessage], identifiedBy identities: [EventIdentity], isDiskFull: Bool
    ) throws -> Result<AppendReceipt, AppendError> {
        var eventMessages: [EventMessage] = []
        var known: [[UInt8]: (fingerprint: [UInt8], message: EventMessage)] = [:]
        /// Indices of the messages that are to be stored.
        var new: [Int] = []
        var reused: [Int] = []
        for (index, identity) in identities.enumerated() {
            if let former = try known[identity.key] ?? stored(identity.key) {
                if former.fingerprint != identity.fingerprint { reused.append(index) }
                eventMessages.append(former.message)
            } else {
                let message = EventMessage.new(new.count)
                known[identity.key] = (identity.fingerprint, message)
                eventMessages.append(message)
                new.append(index)
            }
        }
        guard reused.isEmpty else { return .failure(.reused(reused)) }
        switch try append(new.map { messages[$0] }, isDiskFull: isDiskFull) {
        case .failure(let refusal): return .failure(refusal.inRequest(new))
        case .success(var receipt):
            for (index, id) in zip(new, receipt.ids) { try record(identities[index], as: id) }
            receipt.repeated = Set(identities.indices).subtracting(new)
            receipt.ids = eventMessages.map { message in
                switch message {
                case .stored(let id): id
                case .new(let index): receipt.ids[index]
                }
            }
            return .success(receipt)
        }
    }

    private func stored(_ key: [UInt8]) throws -> (fingerprint: [UInt8], message: EventMessage)? {
        try sql.first(
            "SELECT fingerprint, response FROM responses WHERE key = ? AND createdAtMs > ?",
            key, outbox.time.now - outbox.options.idempotencyRetention
        ) { row in
            MessageID(String(decoding: row[1] as [UInt8], as: UTF8.self)).map { (row[0], .stored($0)) }
        } ?? nil
    }

    /// Replaces a record whose retention has passed.
    private func record(_ identity: EventIdentity, as id: MessageID) throws {
        try sql.store(
            Array(id.description.utf8), under: identity.key, identity.fingerprint, at: outbox.time.now)
    }
}

extension AppendError {
    /// The same, if the messages that were to be stored have these indices in the request.
    fileprivate func inRequest(_ indices: [Int]) -> Self {
        guard case .refused(let refused) = self else { return self }
        return .refused(refused.map { .init(index: indices[$0.index], refusal: $0.refusal) })
    }
}
