import PosternCore
import PosternStore
import PosternThreads
import Synchronization

/// A reply that is held until its messages are settled, or an action is over.
protocol PendingReply: AnyObject, Sendable {
    /// The messages it is held for.
    var ids: [MessageID] { get }
    /// One of its messages is settled. Returns whether the reply has been sent.
    func settled(_ notice: SettledNotice) -> Bool
    /// Sends what is known so far, because the time is over, the gateway stops, or the client has hung up.
    func finishNow()
    /// Calls `action` if the client hangs up.
    func onHangUp(_ action: @escaping @Sendable () -> Void)
}

/// The replies that are held for `Prefer: wait=N`: until their messages are settled, their time is over, their client has
/// hung up, or the gateway stops. Any thread.
final class PendingReplies: Sendable {
    private struct State {
        var replies: [ObjectIdentifier: any PendingReply] = [:]
        /// Several may be held for one message.
        var byMessage: [MessageID: [any PendingReply]] = [:]
        var isClosed = false
    }
    private let outbox: Outbox
    private let timer: TimerQueue
    // This lock is taken before the lock inside `outbox`, never the other way round: the outbox calls waiters without
    // holding its lock.
    private let state = Mutex(State())

    init(_ outbox: Outbox, _ timer: TimerQueue) {
        self.outbox = outbox
        self.timer = timer
    }

    /// Called from the completion of the append: until it returns none of the messages that it stored can be settled.
    ///
    /// - Parameter ended: The messages that ended when they were stored.
    func hold(_ reply: any PendingReply, ended: [SettledNotice] = [], seconds: Int) {
        let isOpen = state.withLock { state in
            guard !state.isClosed else { return false }
            state.replies[ObjectIdentifier(reply)] = reply
            for id in reply.ids {
                if state.byMessage[id] == nil { outbox.whenSettled(id) { [weak self] in self?.settled($0) } }
                state.byMessage[id, default: []].append(reply)
            }
            return true
        }
        guard isOpen else { return reply.finishNow() }
        let end = { @Sendable [weak self, weak reply] in
            if let reply { self?.release(reply) }
        }
        reply.onHangUp(end)
        timer.run(after: .seconds(seconds), end)
        for notice in ended { settledBefore(notice, reply) }
    }

    /// Sends all of them, and every later one at once.
    func close() {
        let replies = state.withLock { state in
            defer {
                outbox.stopWaiting(for: Array(state.byMessage.keys))
                state = State(isClosed: true)
            }
            return state.replies.values
        }
        for reply in replies { reply.finishNow() }
    }

    private func settled(_ notice: SettledNotice) {
        let replies = state.withLock { $0.byMessage.removeValue(forKey: notice.id) ?? [] }
        for reply in replies where reply.settled(notice) {
            _ = state.withLock { $0.replies.removeValue(forKey: ObjectIdentifier(reply)) }
        }
    }

    /// The message of `notice` was settled before `reply` was held for it.
    func settledBefore(_ notice: SettledNotice, _ reply: any PendingReply) {
        state.withLock { stopWaiting(for: notice.id, reply, &$0) }
        guard reply.settled(notice) else { return }
        _ = state.withLock { $0.replies.removeValue(forKey: ObjectIdentifier(reply)) }
    }

    private func stopWaiting(for id: MessageID, _ reply: any PendingReply, _ state: inout State) {
        state.byMessage[id]?.removeAll { $0 === reply }
        guard state.byMessage[id]?.isEmpty == true else { return }
        state.byMessage[id] = nil
        outbox.stopWaiting(for: [id])
    }

    /// Stops holding the reply.
    func release(_ reply: any PendingReply) {
        let wasHeld = state.withLock { state in
            guard state.replies.removeValue(forKey: ObjectIdentifier(reply)) != nil else { return false }
            for id in reply.ids { stopWaiting(for: id, reply, &state) }
            return true
        }
        if wasHeld { reply.finishNow() }
    }
}
