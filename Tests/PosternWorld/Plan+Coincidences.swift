import PosternScenarios

/// What would be too rare if each of its parts were drawn alone.
extension Plan {
    mutating func addCoincidences(of types: [any TypeScenarios]) {
        let random = SeededRandom(seed: seed, for: "coincidences")
        // The clock is set back while something waits for an upstream that is down.
        if random.chance(0.2) {
            let type = random.pick(types)
            let start = hours * 0.7 * random.fraction()
            let end = start + 0.2 + 0.8 * random.fraction()
            faults.append(FaultPlan(.outage, type, fromHour: start, toHour: end))
            let moment = end - (end - start) * 0.5 * random.fraction()
            actions.append(ActionPlan(.clockFarBack, type, atHour: moment, draw: random.next()))
        }
        // Good messages get doubtful answers while others are taken.
        if random.chance(0.4) {
            let start = hours * 0.8 * random.fraction()
            let end = start + hours * (0.2 + 0.3 * random.fraction())
            faults.append(
                FaultPlan(
                    .hiccups, random.pick(types), fromHour: start, toHour: min(hours, end),
                    share: 0.3 + 0.4 * random.fraction()))
        }
        // The disk has no room for a commit, and has room again long before the world ends.
        if random.chance(0.2) {
            let start = hours * 0.6 * random.fraction()
            let end = start + 0.3 + 0.7 * random.fraction()
            diskFaults.append(DiskPlan(.full, fromHour: start, toHour: end, draw: random.next() | 1))
        }
        // What the failed commit left must not come back.
        if random.chance(0.25) {
            let start = hours * 0.9 * random.fraction()
            diskFaults.append(DiskPlan(.failedCommit, fromHour: start, toHour: start + 0.5, draw: random.next()))
        }
        actions.sort { $0.atHour < $1.atHour }
    }

    /// What is sent once meets answers that say nothing, and the ends of processes.
    mutating func addDoubts() {
        let random = SeededRandom(seed: seed, for: "doubts")
        guard let once = callers.first(where: { $0.type.traits.contains(.sendsOnce) && $0.reports > 0 }),
            random.chance(0.5)
        else { return }
        let start = hours * 0.6 * random.fraction()
        let end = start + hours * (0.2 + 0.2 * random.fraction())
        faults.append(FaultPlan(.flaky, once.type, fromHour: start, toHour: end, share: 0.2 + 0.3 * random.fraction()))
        for _ in 0..<random.from(0...4) {
            let moment = start + (end - start) * random.fraction()
            actions.append(ActionPlan(.killWhileUncertain, once.type, atHour: moment))
        }
        actions.sort { $0.atHour < $1.atHour }
    }

    /// One of several endpoints does not exist, and a message for it is the first one, while nothing is known of the
    /// others.
    mutating func addWrongEndpoints() {
        let random = SeededRandom(seed: seed, for: "wrong endpoints")
        guard let type = types.first(where: { $0.endpoints.count > 1 }), random.chance(0.4) else { return }
        let start = hours * 0.7 * random.fraction()
        let end = start + 0.1 + hours * 0.25 * random.fraction()
        faults.append(FaultPlan(.wrongEndpoint, type, fromHour: start, toHour: end, share: random.fraction()))
        for moment in [0] + (0..<random.below(4)).map({ _ in random.fraction() }) {
            let hour = start + (end - start) * moment
            actions.append(ActionPlan(.wrongEndpointFirst, type, atHour: hour, draw: random.next()))
        }
        actions.sort { $0.atHour < $1.atHour }
    }

    /// An upstream rejects everything for a while, with many messages in its queue, and the process may end meanwhile.
    mutating func addMassRejections() {
        let random = SeededRandom(seed: seed, for: "mass rejections")
        // An event that is rejected is not reported.
        guard let type = types.first(where: { $0.traits.contains(.rejectsByStatus) }), random.chance(0.7),
            settings.callbacks?.upstream != type.name
        else { return }
        let start = hours * 0.7 * random.fraction()
        let end = start + 0.5 + hours * 0.2 * random.fraction()
        faults.append(FaultPlan(.rejectsAll, type, fromHour: start, toHour: end))
        // The gateway may be down at one of them.
        for part in [0.01, 0.2, 0.4] {
            actions.append(ActionPlan(.flood, type, atHour: start + part, draw: random.next()))
        }
        let ends: [ActionPlan.Kind] = [.kill, .stop, .moveQueue, .reload]
        for _ in 0..<random.from(0...2) {
            let moment = start + 0.05 + (end - start) * 0.8 * random.fraction()
            actions.append(ActionPlan(random.pick(ends), type, atHour: moment, draw: random.next()))
        }
        actions.sort { $0.atHour < $1.atHour }
    }

    /// Many messages at once, so that they share a row of the store, above all while the upstream is down.
    mutating func addFloods() {
        let random = SeededRandom(seed: seed, for: "floods")
        let types = types.filter { $0.filler("") != nil }
        guard !types.isEmpty, random.chance(0.7) else { return }
        for _ in 0..<random.from(1...6) {
            let type = random.pick(types)
            let start = hours * 0.9 * random.fraction()
            actions.append(ActionPlan(.flood, type, atHour: start, draw: random.next()))
            guard random.chance(0.5) else { continue }
            faults.append(FaultPlan(.outage, type, fromHour: start - 0.05, toHour: start + 0.3 * random.fraction()))
            actions.append(ActionPlan(.flood, type, atHour: start + 0.02, draw: random.next()))
        }
        actions.sort { $0.atHour < $1.atHour }
    }

    /// What was delivered is replayed, and the process often ends while that goes on.
    mutating func addReplays() {
        let random = SeededRandom(seed: seed, for: "replays")
        let types = types.filter { $0.traits.isSuperset(of: [.oneEndpoint, .independent]) }
        guard !types.isEmpty, random.chance(0.5) else { return }
        settings.payloadRetention = random.chance(0.7) ? settings.retention : min(1800, settings.retention)
        let ends: [ActionPlan.Kind] = [
            .kill, .killInside, .powerCut, .powerCutInside, .killInsideDisk, .powerCutInsideDisk, .stop,
        ]
        for _ in 0..<random.from(1...4) {
            let type = random.pick(types)
            var start = hours * (0.15 + 0.8 * random.fraction())
            actions.append(ActionPlan(.replay, type, atHour: start, draw: random.next()))
            for _ in 0..<random.from(0...3) {
                start += 0.004 * random.fraction()
                actions.append(ActionPlan(random.pick(ends), type, atHour: start, draw: random.next()))
            }
            // Again, by a caller that does not know whether it has begun.
            if random.chance(0.5) {
                actions.append(ActionPlan(.replay, type, atHour: start + 0.01, draw: random.next()))
            }
        }
        actions.sort { $0.atHour < $1.atHour }
    }

    /// An operator has messages erased.
    mutating func addErasures() {
        let random = SeededRandom(seed: seed, for: "erasures")
        guard random.chance(0.5) else { return }
        for _ in 0..<random.from(1...6) { actions.append(ActionPlan([.erase], types, hours, random)) }
        actions.sort { $0.atHour < $1.atHour }
    }

    /// Queues pass from worker to worker.
    mutating func addMoves() {
        let random = SeededRandom(seed: seed, for: "moves")
        guard random.chance(0.5) else { return }
        for _ in 0..<random.from(1...5) { actions.append(ActionPlan([.moveQueue], types, hours, random)) }
        actions.sort { $0.atHour < $1.atHour }
    }

    /// A backup, and what happens before it is restored: nothing else that matters, or a clock that is set back.
    mutating func addBackups() {
        let random = SeededRandom(seed: seed, for: "backups")
        guard random.chance(0.3) else { return }
        let start = hours * 0.7 * random.fraction()
        let end = start + 0.1 + hours * 0.25 * random.fraction()
        actions.append(ActionPlan(.backup, types[0], atHour: start))
        if random.chance(0.4) {
            actions.append(ActionPlan(.clockFarBack, types[0], atHour: end - 0.05, draw: random.next()))
        }
        actions.append(ActionPlan(.restore, types[0], atHour: end, draw: random.next()))
        actions.sort { $0.atHour < $1.atHour }
    }

    /// An operator tries credentials, above all while something is wrong.
    mutating func addProbes() {
        let random = SeededRandom(seed: seed, for: "probes")
        for _ in 0..<random.from(0...4) { actions.append(ActionPlan([.probe], types, hours, random)) }
        for fault in faults where random.chance(0.3) {
            let moment = fault.fromHour + (fault.toHour - fault.fromHour) * random.fraction()
            actions.append(ActionPlan(.probe, fault.type, atHour: moment))
        }
        actions.sort { $0.atHour < $1.atHour }
    }
}
