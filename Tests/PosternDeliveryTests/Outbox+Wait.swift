import PosternCore

@testable import PosternStore

extension Outbox {
    /// Waits until none of `ids` is queued any more; false when `deadline` comes first. For tests of running workers.
    func waitUntilSettled(_ ids: [MessageID], deadline: MonotonicInstant) -> Bool {
        let settled = Inbox<MessageID>()
        let isListening = Inbox<Void>()
        // Between two transactions, so that none can settle a message unheard.
        writer.change({ _ in }) { [self] _ in
            for id in ids { whenSettled(id) { settled.put($0.id) } }
            isListening.put(())
        }
        guard !isListening.takeAll(waitingUntil: deadline).isEmpty else { return false }
        var open = Set(ids)
        for id in ids where (try? message(id))??.state != .queued { open.remove(id) }
        while !open.isEmpty, SystemTime().instant < deadline {
            open.subtract(settled.takeAll(waitingUntil: deadline))
        }
        return open.isEmpty
    }
}
