import Dispatch
import PosternCore
import PosternStore
import Synchronization

/// Where answers wait for their messages (`Prefer: wait=N`): until those are settled, their time is over, the client has
/// hung up, or the gateway stops. Any thread.
final class WaitingRoom: Sendable {
    protocol Guest: AnyObject, Sendable {
        /// What it waits for.
        var ids: [MessageID] { get }
        /// One of its messages is settled. Returns whether it waits no longer.
        func settled(_ notice: SettledNotice) -> Bool
        /// Nothing more will come.
        func giveUp()
        /// Has `action` called if the client hangs up.
        func onHangUp(_ action: @escaping @Sendable () -> Void)
    }

    private struct State {
        var guests: [ObjectIdentifier: any Guest] = [:]
        /// Several may wait for one message.
        var byMessage: [MessageID: [any Guest]] = [:]
        var isClosed = false
    }
    private let outbox: Outbox
    // Taken before the lock inside `outbox`, never the other way round: it calls waiters without its lock.
    private let state = Mutex(State())

    init(_ outbox: Outbox) { self.outbox = outbox }

    /// To be called from the completion of the append: until it returns none of the messages can be settled.
    func take(_ guest: any Guest, seconds: Int) {
        let isOpen = state.withLock { state in
            guard !state.isClosed else { return false }
            state.guests[ObjectIdentifier(guest)] = guest
            for id in guest.ids {
                if state.byMessage[id] == nil { outbox.whenSettled(id) { [weak self] in self?.settled($0) } }
                state.byMessage[id, default: []].append(guest)
            }
            return true
        }
        guard isOpen else { return guest.giveUp() }
        guest.onHangUp { [weak self, weak guest] in
            if let guest { self?.dismiss(guest) }
        }
        DispatchQueue.global().asyncAfter(deadline: .now() + .seconds(seconds)) { [weak self, weak guest] in
            if let guest { self?.dismiss(guest) }
        }
    }

    /// Answers all at once, and whoever comes later.
    func close() {
        let guests = state.withLock { state in
            defer {
                outbox.stopWaiting(for: Array(state.byMessage.keys))
                state = State(isClosed: true)
            }
            return state.guests.values
        }
        for guest in guests { guest.giveUp() }
    }

    private func settled(_ notice: SettledNotice) {
        let guests = state.withLock { $0.byMessage.removeValue(forKey: notice.id) ?? [] }
        for guest in guests where guest.settled(notice) {
            _ = state.withLock { $0.guests.removeValue(forKey: ObjectIdentifier(guest)) }
        }
    }

    /// Its time is over, or nobody waits for it.
    func dismiss(_ guest: any Guest) {
        let wasThere = state.withLock { state in
            guard state.guests.removeValue(forKey: ObjectIdentifier(guest)) != nil else { return false }
            for id in guest.ids {
                state.byMessage[id]?.removeAll { $0 === guest }
                guard state.byMessage[id]?.isEmpty == true else { continue }
                state.byMessage[id] = nil
                outbox.stopWaiting(for: [id])
            }
            return true
        }
        if wasThere { guest.giveUp() }
    }
}
