import PosternCore
import PosternUpstream

/// What follows from a response, by the step that got it and by the rules of its sequence (sections 5.2, 5.3, 6, and
/// 10.5).
extension AppServicesUpstream {
    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Decision {
        let message = batch.messages[0]
        if AppServicesKind(monitoring: message) != nil {
            return Decision(fixed: monitoring.outcome(on: response, to: batch, at: context.now))
        }
        guard let item = Item(message) else { return Decision(.reject(reason: "the stored payload cannot be read")) }
        let step = batch.request?.step.flatMap(Step.init) ?? item.kind.steps[0]
        let answer = Answer(response, now: context.now)
        let (meaning, mark) = (
            answer.meaning(of: step), AppServicesProgress.Mark(status: response.status, at: context.now)
        )
        let (onlyExistingGroups, now) = (settings.onlyAddUserToExistingGroups, context.now)
        let userID = step == .registerUser ? answer.entityID : nil
        var decision = Decision(in: context.state) { state in
            var follower = AppServicesFollower(
                item: item, message: message, step: step, answer: answer, mark: mark, userID: userID,
                state: state, onlyExistingGroups: onlyExistingGroups, now: now)
            follower.follow(
                meaning, version: batch.request?.credentialVersion, sent: batch.request?.body ?? [])
            switch follower.outcome.judgement.verdict {
            case .delivered, .reject, .park: follower.outcome.changes += state.wakes(behind: item, message.id)
            default: break
            }
            return follower.outcome
        }
        if let calls, message.isFromSDK {
            switch decision.judgement.verdict {
            case .delivered, .reject, .park:
                decision.afterwards = { _ in
                    calls.answer(message.id, with: .init(response: response, step: step))
                    return []
                }
            default: break
            }
        }
        return decision
    }

    func judge(_ failure: TransferFailure, to batch: Batch, in context: PlanContext) -> Decision {
        guard AppServicesKind(monitoring: batch.messages[0]) != nil else { return Decision(.retry(after: nil)) }
        return Decision(fixed: monitoring.outcome(on: failure, to: batch, at: context.now))
    }
}

/// The evaluation of one response.
private struct AppServicesFollower {
    let item: Item
    let message: Message
    let step: Step
    let answer: Answer
    let mark: AppServicesProgress.Mark
    /// The platform's `uuid` of the user whom this has registered.
    let userID: String?
    let state: any UpstreamState
    let onlyExistingGroups: Bool
    let now: Timestamp
    var outcome = Outcome(.retry(after: nil))

    private var progress: AppServicesProgress { AppServicesProgress(message.progress) }

    /// A token was rejected in doubt: if a new one gets the same response, the token is not the cause.
    private var doubtKey: String { "doubt/\(message.id)" }
    /// A time that is longer than any message waits.
    private static let doubtLife = Duration.seconds(90 * 86400)

    mutating func follow(_ meaning: Answer.Meaning, version: Int64?, sent body: [UInt8]) {
        switch meaning {
        case .ok:
            settleDoubt()
            succeed(sent: body)
        case .notFound:
            settleDoubt()
            miss()
        case .permanent(let reason):
            settleDoubt()
            fail(reason)
        case .reauthenticate(let isDoubtful, let reason):
            if isDoubtful, state.value(of: doubtKey) != nil {
                settleDoubt()
                return fail("\(reason), with a fresh token too")
            }
            reauthenticate(isDoubtful: isDoubtful, version: version)
        case .hold(let reason, let detail):
            outcome.judgement.verdict = .holdUpstream(reason, detail: detail)
            // All steps have the same key, organization, application and address.
            outcome.judgement.holdsAll = true
        case .retry(let after): outcome.judgement.verdict = .retry(after: after)
        case .suspect:
            // A message that an operator retries starts from 0.
            let limit = min(progress.attempts, message.attempts) + Answer.junkLimit
            if step == .disconnect, item.kind == .unregister, message.attempts + 1 >= limit {
                return fail("HTTP \(mark.status ?? 0): not a response of AppServices")
            }
            outcome.judgement.verdict = .suspect(after: nil, rule: .afterTries(limit))
            outcome.judgement.steps = stepsOfFailure
        }
    }

    /// Continues with the next step, whose attempts are counted from here on.
    private mutating func proceed(_ progress: AppServicesProgress) {
        outcome.judgement.verdict = .proceed(progress: progress.with { $0.attempts = message.attempts }.stored)
    }

    private mutating func settleDoubt() {
        if state.value(of: doubtKey) != nil { outcome.changes.append(.remove(key: doubtKey)) }
    }

    private mutating func reauthenticate(isDoubtful: Bool, version: Int64?) {
        if isDoubtful {
            let expiry = StateChange.Expiry(at: message.acceptedAt + Self.doubtLife)
            outcome.changes.append(.set(key: doubtKey, value: [], expiry: expiry))
        } else {
            settleDoubt()
        }
        if let version {
            outcome.changes += state.refuse(version, of: item.owner, on: item.device, at: now)
        }
        outcome.judgement.verdict = .park
    }

    // MARK: Done

    private mutating func succeed(sent body: [UInt8]) {
        record(success: body)
        if [.registerDevice, .connect, .savePreferences].contains(step) {
            outcome.changes += state.releases(besides: item, at: now)
        }
        let reached = progress.marking(step, mark)
        let next = AppServicesSequence(item, message, progress: reached, in: state).next()
        if step == .blankToken, let refusal = progress.disconnectRefusal {
            outcome.judgement.verdict = .reject(reason: "disconnect \(refusal); the push token is blanked")
            outcome.judgement.steps = reached.results(of: item.kind)
        } else if case .finished = next {
            outcome.judgement.verdict = .delivered()
            outcome.judgement.steps = reached.results(of: item.kind)
        } else {
            proceed(reached)
        }
    }

    /// Records requirements 2 to 4 (section 5.1) and the owner of the device.
    private mutating func record(success body: [UInt8]) {
        var pair = state.pair(user, item.device)
        var device = state.device(item.device)
        switch step {
        case .registerDevice:
            pair.isDeviceRegistered = true
            device.exists = true
            // The setting may be another one by now.
            device.notifier = Requests.notifier(ofRegistration: body) ?? item.notifier ?? ""
            if device.isOwners(message.id, of: item.owner) { device.isOwnerDone = true }
            device.registered = max(device.registered ?? message.id, message.id)
            keep(pair)
            keep(device)
        case .registerUser:
            let known = state.value(of: AppServicesUser.key(item.owner)) ?? []
            outcome.changes.append(
                .set(key: AppServicesUser.key(item.owner), value: userID.map { Array($0.utf8) } ?? known))
            wakeWhatWaitsForUser()
        case .connect:
            // The last connection wins (4.3).
            if !device.connectedUser.isEmpty, device.connectedUser != item.owner {
                var former = state.pair(device.connectedUser, item.device)
                former.isConnected = false
                keep(former, of: device.connectedUser)
            }
            pair.isConnected = true
            device.connectedUser = item.owner
            device.connected = max(device.connected ?? message.id, message.id)
            if item.kind == .connect {
                pair.isDeviceRegistered = pair.isDeviceRegistered || device.exists
                if device.isOwners(message.id, of: item.owner) { device.isOwnerDone = true }
            }
            keep(pair)
            keep(device)
        case .savePreferences:
            if let lists = Requests.lists(ofPreferences: body) {
                outcome.changes.append(.set(key: Preferences.deliveredKey(item.device), value: Array(lists)))
            }
            guard var stored = state.preferences(of: item.device),
                Requests.preferences(stored.lists).utf8.elementsEqual(body)
            else { return }
            stored.sent = stored.revision
            outcome.changes.append(.set(key: Preferences.key(item.device), value: stored.stored))
        case .disconnect:
            pair.isConnected = false
            keep(pair)
        case .blankToken:
            pair.isDeviceRegistered = false
            keep(pair)
        case .findGroup, .createGroup, .addToGroup, .removeFromGroup, .fetchConfiguration, .uploadCrashLog,
            .uploadMetrics:
            break
        }
    }

    private mutating func keep(_ pair: Pair, of owner: String? = nil) {
        guard !(owner ?? user).isEmpty else { return }
        outcome.changes.append(.set(key: Pair.key(owner ?? user, item.device), value: pair.stored))
    }

    /// The item's user; empty if that is not known.
    private var user: String { state.user(of: item.owner, on: item.device) ?? "" }

    /// Group items wait for the registration of their user, and connections for one that was queued alone.
    private mutating func wakeWhatWaitsForUser() {
        outcome.changes.append(.wake(lane: item.groupsLane))
        guard item.kind == .user else { return }
        let pairs = state.values(below: "pair/" + item.owner, atMost: 64)
        outcome.changes += pairs.compactMap { pair in
            Item.device(ofLane: pair.key).map { .wake(lane: Item.lane(of: item.owner, on: $0)) }
        }
    }

    private mutating func keep(_ device: Device) {
        outcome.changes.append(.set(key: Device.key(item.device), value: device.stored))
    }

    // MARK: Not found (10.5)

    private mutating func miss() {
        switch step {
        case .connect where !progress.isSecondRound:
            forgetUser()
            proceed(.secondRound)
        case .disconnect: succeed(sent: [])
        case .findGroup: missGroup()
        case .addToGroup where !progress.isSecondRound:
            // If its registration is in flight, the second lookup waits for it.
            forgetUser()
            proceed(.secondRound)
        case .registerDevice, .registerUser, .connect, .savePreferences, .blankToken, .createGroup, .addToGroup,
            .removeFromGroup, .fetchConfiguration, .uploadCrashLog, .uploadMetrics:
            fail("AppServices does not know the user, the device or the group")
        }
    }

    private mutating func missGroup() {
        if item.kind == .removeFromGroup {
            fail("there is no such group")
        } else if onlyExistingGroups, item.kind == .addToGroup {
            fail("there is no such group, and onlyAddUserToExistingGroups is set")
        } else {
            proceed(progress.marking(.findGroup, mark).with { $0.lacksGroup = true })
        }
    }

    private mutating func forgetUser() {
        outcome.changes.append(.remove(key: AppServicesUser.key(item.owner)))
    }

    // MARK: Refused

    private mutating func fail(_ reason: String) {
        var pair = state.pair(user, item.device)
        switch step {
        case .registerDevice:
            pair.isDeviceRegistered = false
            keep(pair)
            outcome.changes.append(.wake(lane: item.groupsLane))
        case .registerUser:
            forgetUser()
            wakeWhatWaitsForUser()
        case .connect:
            pair.isConnected = false
            keep(pair)
        case .savePreferences where item.kind != .preferences:
            return reject("\(reason); the registration itself is complete")
        case .disconnect where item.kind == .unregister:
            // F follows all the same (5.3). What is stored with the message is not masked.
            pair.isConnected = true
            keep(pair)
            proceed(progress.marking(.disconnect, mark).with { $0.disconnectRefusal = answer.plainReason })
            return
        case .savePreferences, .disconnect, .blankToken, .findGroup, .createGroup, .addToGroup, .removeFromGroup,
            .fetchConfiguration, .uploadCrashLog, .uploadMetrics:
            break
        }
        reject(reason)
    }

    private mutating func reject(_ reason: String) {
        outcome.judgement.verdict = .reject(reason: "\(step.rawValue): \(reason) (code \(code))")
        outcome.judgement.steps = stepsOfFailure
    }

    private var stepsOfFailure: [StepResult] {
        progress.marking(step, mark).results(of: item.kind, failed: step)
    }

    /// The framework's error code (section 9).
    private var code: Int {
        switch step {
        case .registerDevice: 9
        case .registerUser: 7
        case .blankToken: 8
        case .findGroup, .createGroup, .addToGroup, .removeFromGroup: item.kind.code
        case .connect, .savePreferences, .disconnect, .fetchConfiguration, .uploadCrashLog, .uploadMetrics: 1
        }
    }
}
