import PosternCore
public import PosternUpstream

/// Pearson's AppServices knows users, their devices and groups, for push notifications.
///
/// An item is a sequence of requests, each with the token of the item's user; its progress is stored with the message.
/// Tokens are credentials of the user, not of the item: the newest one is used for all items.
struct AppServicesUpstream: ConfigurableUpstream, StateValidatingUpstream, SDKServingUpstream {
    static let typeName = "appservices"
    static let summary = "Pearson's AppServices: push registration, groups, preferences, metrics."
    static let storesCredentials = true

    let name: UpstreamName
    let kinds = AppServicesKind.allCases.map(\.kind)
    let traits: Traits
    let settings: AppServicesSettings
    let monitoring: Monitoring
    /// Nil unless SDKs are served.
    let calls: SDKCalls?

    private let requests: Requests
    private let rules: Rules
    /// Items that stop notifications for a user who has logged out are kept this many times as long as others.
    static let patienceWithUnregister = 4

    /// Items check for what they are sent after when this time has passed, if they are not notified.
    private static let orderCheck = Duration.seconds(5)

    init(_ name: UpstreamName, _ settings: AppServicesSettings) {
        self.name = name
        self.settings = settings
        requests = Requests(
            base: settings.baseURL, organization: settings.organization, application: settings.application,
            apiKey: settings.apiKey, notifier: settings.notifier)
        rules = Rules(provider: settings.provider, takesMonitoring: settings.takesMonitoring)
        var options = settings.monitoring.options
        if options.uploadURL.isEmpty { options.uploadURL = settings.uploadURL }
        monitoring = Monitoring(
            name: name, requests: requests, options: options,
            uploadHosts: UploadHosts(base: settings.baseURL, further: settings.uploadHosts),
            uploadInterval: settings.monitoring.uploadInterval, keepsAnswer: settings.sdk.isEnabled)
        calls = settings.sdk.isEnabled ? SDKCalls() : nil
        traits = Traits { traits in
            traits.steps = Step.allCases.map(\.rawValue)
            traits.routes = Resources.all(provider: settings.provider)
            traits.exclusion = { Item.device(ofLane: $0) }
            // What follows waits for them.
            traits.timedKinds = Set(AppServicesKind.allCases.filter { $0.isStep && $0 != .createGroup }.map(\.kind))
        }
    }

    var sdk: SDKEndpoints? { calls.map { AppServicesSDK(self, $0).endpoints } }

    // MARK: Accepting

    func validate(_ payload: JSONValue, of kind: Kind, in context: ValidationContext) throws(InvalidPayload)
        -> ValidPayload
    {
        guard let kind = AppServicesKind(rawValue: kind.description) else {
            throw InvalidPayload([PayloadError("", "is not of a kind that AppServices accepts")])
        }
        return try validate(payload, as: kind, by: rules, in: context)
    }

    func validate(
        _ payload: JSONValue, as kind: AppServicesKind, by rules: Rules, in context: ValidationContext
    ) throws(InvalidPayload) -> ValidPayload {
        let auth = try rules.check(payload, as: kind, now: context.acceptedAt, maxFaults: context.maxFaults)
        let item = Item(payload, of: kind, alias: auth.map { TokenAlias.name(of: Array($0.token.utf8)) } ?? "")
        return ValidPayload(
            lane: item.lane, rewritten: auth.map { _ in Self.withoutToken(payload) },
            credential: auth?.credential(of: item.owner), expiresAt: expiry(of: kind, from: context.acceptedAt))
    }

    /// The payload as it was received, without `auth`.
    private static func withoutToken(_ payload: JSONValue) -> [UInt8] {
        var text: [UInt8] = [UInt8(ascii: "{")]
        for (key, value) in payload.members where !key.equals("auth") {
            if text.count > 1 { text.append(UInt8(ascii: ",")) }
            text += key.bytes
            text.append(UInt8(ascii: ":"))
            text += value.bytes
        }
        return text + [UInt8(ascii: "}")]
    }

    private func expiry(of kind: AppServicesKind, from acceptedAt: Timestamp) -> Timestamp? {
        guard settings.giveUpAfter > .zero else { return nil }
        return acceptedAt + settings.giveUpAfter * (kind.silences ? Self.patienceWithUnregister : 1)
    }

    /// Records what was accepted: later items replace earlier ones, devices change owners, and preferences outlive
    /// their item.
    func validate(
        _ candidate: PendingMessage, against state: any UpstreamState
    ) throws(AcceptanceError) -> [StateChange] {
        guard let item = Item(candidate), !item.kind.isMonitoring else { return [] }
        let tokens = state.tokenChanges(accepting: item, at: candidate.acceptedAt)
        guard item.kind.isOfDevice else {
            return item.isOrdered ? tokens + DeviceOrder.accept(ofGroup: item, as: candidate, in: state) : tokens
        }
        var device = state.device(item.device)
        var pair = state.pair(item.owner, item.device)
        switch item.kind {
        case .register, .reregister:
            if item.kind == .register { pair.register = candidate.id } else { pair.reregister = candidate.id }
            device.belongs(to: item.owner, by: candidate.id)
        case .connect: device.belongs(to: item.owner, by: candidate.id)
        case .device: device.isRegistered(by: candidate.id, of: item.owner)
        case .unregister: pair.unregister = candidate.id
        case .disconnect, .unregisterDevice: break
        case .preferences, .addToGroup, .removeFromGroup, .metrics, .crash, .user, .createGroup:
            // A device that was never registered cannot have preferences (4.4). An app that names no user has registered it
            // by itself.
            guard item.user.isEmpty || device.registration != nil || device.step != nil else {
                throw AcceptanceError(.conflict, "the device was never registered here; send a register item first")
            }
        }
        var changes = tokens + state.owns(item, at: candidate.acceptedAt)
        if item.isOrderedByDevice {
            changes += DeviceOrder.accept(item, as: candidate, &device, in: state)
        }
        if !item.user.isEmpty { changes.append(.set(key: Pair.key(item.owner, item.device), value: pair.stored)) }
        changes.append(.set(key: Device.key(item.device), value: device.stored))
        if item.kind == .device {
            changes.append(.set(key: Registration.key(item.device), value: candidate.payload))
        }
        if let change = item.preferences, item.kind.hasPreferences {
            let draft = state.draft as? PreferencesDraft ?? PreferencesDraft()
            try draft.apply(change, to: item.device, by: candidate.id, in: state)
            changes.append(.draft(draft))
        }
        return changes
    }

    // MARK: Sending

    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        let message = messages[0]
        if let kind = AppServicesKind(monitoring: message) {
            return monitoring.plan(for: message, as: kind, in: context)
        }
        guard let item = Item(message) else {
            return .settle(count: 1, as: .failed, reason: "the stored payload cannot be read")
        }
        let sequence = AppServicesSequence(item, message, in: context.state)
        let steps = sequence.progress.results(of: item.kind)
        func isBehind() -> Bool { context.state.isBehind(item, message.id, at: context.now) }
        switch sequence.next() {
        case .finished(let note):
            return .settle(count: 1, as: .delivered, reason: note, steps: steps) { item.wakes(message.id, $0) }
        // It keeps its place until then, because others are sent after it.
        case .pointless(let reason) where !isBehind():
            return .settle(count: 1, as: .cancelled, reason: reason) { state in
                item.wakes(message.id, state) + Self.takenOver(by: message, item, in: state)
            }
        case .impossible(let reason):
            return .settle(count: 1, as: .failed, reason: reason, steps: steps) { item.wakes(message.id, $0) }
        case .send(let step) where !isBehind():
            return send(step, of: item, message.id, in: context)
        case .wait, .send, .pointless: return .wait(.order, until: context.now + Self.orderCheck)
        }
    }

    /// A registration that its own unregistration made pointless has still taken the device from other users.
    private static func takenOver(
        by message: Message, _ item: Item, in state: any UpstreamState
    ) -> [StateChange] {
        guard item.kind.isOfDevice else { return [] }
        var device = state.device(item.device)
        guard device.registration == message.id, !device.isOwnerDone else { return [] }
        device.isOwnerDone = true
        return [.set(key: Device.key(item.device), value: device.stored)]
    }

    private func send(_ step: Step, of item: Item, _ id: MessageID, in context: PlanContext) -> Plan {
        guard let held = context.state.credential(of: item.owner), held.isUsable(at: context.now) else {
            return .park
        }
        // Only a message of the kind `device` has what a device is registered with.
        let registration = step == .registerDevice && item.kind == .connect
        let sent = registration ? context.state.registration(of: item.device) ?? item : item
        let device = item.kind.isOfDevice ? context.state.device(item.device) : Device()
        return .send(
            requests.request(
                step, for: sent, lists: lists(of: item, id, in: context.state),
                registeredNotifier: device.notifier.isEmpty ? nil : device.notifier, credential: held),
            count: 1)
    }

    /// The preferences of the item's device. Only a dry run has a message that the stored ones do not contain yet.
    private func lists(of item: Item, _ id: MessageID, in state: any UpstreamState) -> String? {
        let stored = state.preferences(of: item.device)
        guard let change = item.preferences, stored.map({ $0.revision < id }) ?? true else { return stored?.lists }
        var edited = EditedPreferences(stored)
        edited.apply(change, by: id, atMost: .max)
        return edited.preferences?.lists
    }
}

extension Item {
    /// The lanes that wait for this item are planned again.
    fileprivate func wakes(_ id: MessageID, _ state: any UpstreamState) -> [StateChange] {
        (kind.isOfDevice ? [.wake(lane: groupsLane)] : []) + state.wakes(behind: self, id)
    }
}

extension UpstreamType {
    /// For `UpstreamRegistry`.
    public static let appservices = UpstreamType(AppServicesUpstream.self)
}
