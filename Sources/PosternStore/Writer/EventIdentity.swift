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

    fileprivate func row(for id: MessageID) -> RecordRow {
        RecordRow(key: key, fingerprint: fingerprint, response: Array(id.description.utf8))
    }
}

extension Transaction {
    /// Stores all of `messages` or, on a refusal, none, and with them what `record` says.
    func append(
        _ messages: [NewMessage], recording record: RequestRecord?, after admission: Admission? = nil,
        isDiskFull: Bool
    ) throws -> Result<AppendReceipt, AppendError> {
        if record != nil { growth = nil }
        switch record {
        case nil: return try append(messages, after: admission, isDiskFull: isDiskFull)
        case .response(let response):
            return try undoing {
                let result = try append(messages, after: admission, isDiskFull: isDiskFull)
                guard case .success(let receipt) = result, try !store(response.row(for: receipt)) else { return result }
                return try stored(response.key).map { .failure(.recorded($0)) }
            }
        case .events(let identities):
            return try undoing {
                try append(messages, identifiedBy: identities, after: admission, isDiskFull: isDiskFull)
            }
        }
    }

    /// How often the records of a request are looked up if other nodes store some of them meanwhile.
    private static let mostLooks = 10

    /// Runs `body`, and undoes what it has done if it fails. If it returns nil, because another node has stored a record since
    /// `body` looked for one, it is run again. With a single writer there is no such node, and nothing has to be undone.
    private func undoing(
        _ body: () throws -> Result<AppendReceipt, AppendError>?
    ) throws -> Result<AppendReceipt, AppendError> {
        if !sql.admitsLate || writer.expectsNewRecords, let result = try body() { return result }
        for _ in 0..<Self.mostLooks {
            var result: Result<AppendReceipt, AppendError>?
            try inSavepoint {
                result = try body()
                if case .success = result { return true } else { return false }
            }
            if let result { return result }
        }
        throw StoreError.conflict(detail: "the records of the request do not stay as they are")
    }

    /// Where the message of an event is: in the store, or among those that are to be stored.
    private enum EventMessage {
        case stored(MessageID)
        case new(Int)
    }

    /// Leaves out the events that were stored before; the receipt has the ids of their messages all the same. Nil if another
    /// node has stored one meanwhile.
    private func append(
        _ messages: [NewMessage], identifiedBy identities: [EventIdentity?], after admission: Admission?,
        isDiskFull: Bool
    ) throws -> Result<AppendReceipt, AppendError>? {
        var eventMessages: [EventMessage] = []
        var known = try storedEvents(identities)
        /// Indices of the messages that are to be stored.
        var new: [Int] = []
        var reused: [Int] = []
        for (index, identity) in identities.enumerated() {
            if let former = identity.flatMap({ known[$0.key] }) {
                if former.fingerprint != identity?.fingerprint { reused.append(index) }
                eventMessages.append(former.message)
            } else {
                let message = EventMessage.new(new.count)
                if let identity { known[identity.key] = (identity.fingerprint, message) }
                eventMessages.append(message)
                new.append(index)
            }
        }
        guard reused.isEmpty else { return .failure(.reused(reused)) }
        switch try append(new.map { messages[$0] }, after: admission, isDiskFull: isDiskFull) {
        case .failure(let refusal): return .failure(refusal.inRequest(new))
        case .success(var receipt):
            for (index, id) in zip(new, receipt.ids) {
                guard let identity = identities[index] else { continue }
                guard try store(identity.row(for: id)) else { return nil }
            }
            receipt.repeated = Set(identities.indices).subtracting(new).union(receipt.repeated.map { new[$0] })
            receipt.failed = Dictionary(uniqueKeysWithValues: receipt.failed.map { (new[$0], $1) })
            receipt.ids = eventMessages.map { message in
                switch message {
                case .stored(let id): id
                case .new(let index): receipt.ids[index]
                }
            }
            return .success(receipt)
        }
    }

    /// The events that were stored before, by their keys.
    private func storedEvents(
        _ identities: [EventIdentity?]
    ) throws -> [[UInt8]: (fingerprint: [UInt8], message: EventMessage)] {
        let keys = identities.compactMap { $0?.key }
        return try stored(keys).compactMapValues { record in
            MessageID(String(decoding: record.bytes, as: UTF8.self)).map { (record.fingerprint, .stored($0)) }
        }
    }
}

extension AppendError {
    /// The same, if the messages that were to be stored have these indices in the request.
    fileprivate func inRequest(_ indices: [Int]) -> Self {
        guard case .refused(let refused) = self else { return self }
        return .refused(refused.map { .init(index: indices[$0.index], refusal: $0.refusal) })
    }
}
