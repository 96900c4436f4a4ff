import PosternCore
import PosternUpstream

/// Determines the next request of an item, by its progress and by what was accepted since (sections 5 and 6).
struct AppServicesSequence {
    enum Next: Equatable {
        case send(Step)
        case finished(note: String)
        /// A later item, or another user, has made the item pointless.
        case pointless(reason: String)
        case impossible(reason: String)
        /// Another item, which is queued already, has to be done first.
        case wait
    }

    let item: Item
    let id: MessageID
    let progress: AppServicesProgress
    /// Whether an earlier attempt may have reached AppServices.
    let mayHaveArrived: Bool
    let state: any UpstreamState

    init(
        _ item: Item, _ message: Message, progress: AppServicesProgress? = nil, in state: any UpstreamState
    ) {
        self.item = item
        id = message.id
        self.progress = progress ?? AppServicesProgress(message.progress)
        mayHaveArrived = message.mayHaveArrived
        self.state = state
    }

    func next() -> Next {
        switch item.kind {
        case .register, .reregister: nextOfRegistration()
        case .unregister: nextOfUnregistration()
        case .preferences: nextOfPreferences()
        case .addToGroup, .removeFromGroup: nextOfGroup()
        case .device: nextOfDevice()
        case .user: progress.done.contains(.registerUser) ? .finished(note: "registered") : .send(.registerUser)
        case .connect: nextOfConnection()
        case .disconnect: progress.done.contains(.disconnect) ? .finished(note: "disconnected") : .send(.disconnect)
        case .unregisterDevice: nextOfBlanking()
        case .createGroup: nextOfCreation()
        case .metrics, .crash: .impossible(reason: "monitoring does not depend on other items")
        }
    }

    /// Registering the user does not concern the device.
    private var isUnsent: Bool {
        !mayHaveArrived && progress.done.isSubset(of: [.registerUser]) && !progress.isSecondRound
    }

    // MARK: Registration

    private func nextOfRegistration() -> Next {
        if let reason = pointlessReason() {
            return isUserNeeded() ? .send(.registerUser) : .pointless(reason: reason)
        }
        // In the second round, the whole registration, whatever the item is.
        let steps: [Step] =
            item.kind == .register || progress.isSecondRound
            ? [.registerDevice, .registerUser, .connect] : [.registerDevice, .connect]
        if let step = steps.first(where: { !progress.done.contains($0) }) { return .send(step) }
        if !progress.done.contains(.savePreferences), state.preferences(of: item.device) != nil {
            return .send(.savePreferences)
        }
        return .finished(note: "registered")
    }

    private func pointlessReason() -> String? {
        let pair = state.pair(item.owner, item.device)
        if isUnsent {
            let later = item.kind == .register ? pair.register : pair.latestRegistration
            if isLaterAndQueued(later) { return "replaced by a later registration of the same user and device" }
            if isLaterAndQueued(pair.unregister) {
                return "made pointless by a later unregister of the same device"
            }
        }
        return isHandedOver() ? "another user has registered the device since" : nil
    }

    private func isLaterAndQueued(_ other: MessageID?) -> Bool {
        other.map { $0 > id && state.isQueued($0) } ?? false
    }

    /// A user whose registration was accepted is registered in any case, whatever happens to the device (5.4): waiting
    /// group items need the user, and later items may.
    private func isUserNeeded() -> Bool {
        guard !progress.done.contains(.registerUser) && !state.isUserKnown(item.owner) else { return false }
        if state.queued(inLane: item.groupsLane, atMost: 1) > 0 { return true }
        return item.kind == .register && !isLaterAndQueued(state.pair(item.owner, item.device).register)
    }

    /// Whether the latest registration of the device is another user's, and has taken place or will.
    private func isHandedOver() -> Bool {
        let device = state.device(item.device)
        guard !device.owner.isEmpty, device.owner != item.owner else { return false }
        return device.isOwnerDone || (device.registration.map(state.isQueued) ?? false)
    }

    // MARK: Unregistration

    private func nextOfUnregistration() -> Next {
        if !progress.done.contains(.disconnect), progress.disconnectRefusal == nil { return .send(.disconnect) }
        // If it were sent now, it would silence the new owner (5.4).
        if isHandedOver(), !progress.done.contains(.blankToken) {
            if let refusal = progress.disconnectRefusal { return .impossible(reason: "disconnect \(refusal)") }
            return .finished(note: "disconnected; the push token stays, since another user has registered the device")
        }
        return progress.done.contains(.blankToken) ? .finished(note: "unregistered") : .send(.blankToken)
    }

    // MARK: Steps

    private func nextOfDevice() -> Next {
        if progress.done.contains(.registerDevice) { return .finished(note: "registered") }
        let device = state.device(item.device)
        // What was accepted between them needs it.
        if isUnsent, isLaterAndQueued(device.step), device.firstStep.map({ $0 <= id }) ?? false {
            return .pointless(reason: "replaced by a later registration of the same device")
        }
        if let registered = device.registered, registered > id {
            return .pointless(reason: "the device has been registered again since")
        }
        return .send(.registerDevice)
    }

    private func nextOfConnection() -> Next {
        if progress.done.contains(.connect) { return .finished(note: "connected") }
        let device = state.device(item.device)
        if let connected = device.connected, connected > id, device.connectedUser != item.owner {
            return .pointless(reason: "another user has been connected to the device since")
        }
        // The registration before it failed or waits for a token, or the device was not found again.
        if progress.isSecondRound || !device.exists, !progress.done.contains(.registerDevice),
            state.registration(of: item.device) != nil
        {
            return .send(.registerDevice)
        }
        if progress.isSecondRound, !progress.done.contains(.registerUser) { return .send(.registerUser) }
        return isUserQueued ? .wait : .send(.connect)
    }

    private func nextOfBlanking() -> Next {
        if progress.done.contains(.blankToken) { return .finished(note: "unregistered") }
        let device = state.device(item.device)
        if let registered = device.registered, registered > id {
            return .pointless(reason: "the device has been registered again since")
        }
        let user = state.user(of: item.owner, on: item.device)
        // It would silence the new owner (5.4).
        let isTaken = [(device.step, device.stepOwner), (device.registration, device.owner)].contains { other, owner in
            isLaterAndQueued(other) && state.user(of: owner, on: item.device) != user
        }
        return isTaken ? .pointless(reason: "another user has registered the device since") : .send(.blankToken)
    }

    private func nextOfCreation() -> Next {
        if !progress.done.isDisjoint(with: [.findGroup, .createGroup]) { return .finished(note: "exists") }
        return .send(progress.lacksGroup ? .createGroup : .findGroup)
    }

    /// Whether a message is queued that registers the user alone.
    private var isUserQueued: Bool { state.queued(inLane: item.userLane, atMost: 1) > 0 }

    // MARK: Preferences

    private func nextOfPreferences() -> Next {
        guard !progress.done.contains(.savePreferences) else { return .finished(note: "saved") }
        if let stored = state.preferences(of: item.device), stored.revision > id,
            state.isQueued(stored.revision) || stored.isSent
        {
            return .pointless(reason: "replaced by later preferences of the same device")
        }
        let device = state.device(item.device)
        if device.exists || item.user.isEmpty { return .send(.savePreferences) }
        let pair = state.pair(item.owner, item.device)
        // The item that replaced the previous registration, or made it pointless, is queued or done.
        if isLaterAndQueued(pair.latestRegistration) || isLaterAndQueued(pair.unregister) || device.isOwnerDone {
            return .pointless(reason: "the device is not registered yet; they are kept for its next registration")
        }
        // A PUT would create a device without a push token (4.4).
        return [device.registration, device.step].contains { $0.map(state.isQueued) ?? false }
            ? .wait : .impossible(reason: "the device is not registered")
    }

    // MARK: Groups

    private func nextOfGroup() -> Next {
        let last: Step = item.kind == .addToGroup ? .addToGroup : .removeFromGroup
        if progress.done.contains(last) { return .finished(note: "done") }
        if progress.done.contains(.findGroup) || progress.done.contains(.createGroup) { return .send(last) }
        if progress.lacksGroup { return .send(.createGroup) }
        return isUserAboutToBeRegistered() ? .wait : .send(.findGroup)
    }

    private func isUserAboutToBeRegistered() -> Bool {
        if isUserQueued { return true }
        guard !state.isUserKnown(item.owner) else { return false }
        return state.values(below: "pair/" + item.owner, atMost: 64).contains { _, value in
            Pair(value).latestRegistration.map(state.isQueued) ?? false
        }
    }
}
