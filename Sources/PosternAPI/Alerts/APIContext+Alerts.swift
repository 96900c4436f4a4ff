import Logging
public import PosternCore
import PosternDelivery
import PosternStore
import PosternThreads
import Synchronization

/// The alerts of callbacks: what was told, and whether the gateway is being watched. Any thread.
struct AlertState: Sendable {
    /// Nil until the record is read.
    var watch: AlertWatch?
    /// The record that the store has.
    var stored: [UInt8]?
    /// How long a message may be due.
    var oldAfter: [UpstreamName: Duration] = [:]
    /// Whether the next look is scheduled, or goes on.
    var isWatching = false
}

extension APIContext {
    /// How often conditions are looked at.
    private static let alertPeriod = Duration.seconds(1)
    /// The time until an alert is told again that could not be stored.
    private static let alertRetryPeriod = Duration.seconds(10)

    /// Tells conditions from now on, if a callback asks for them. Call it after a reload, too.
    ///
    /// - Parameter oldAfter: How long a message of an upstream may be due before that is told.
    public func watchForAlerts(oldAfter: [UpstreamName: Duration]) {
        let begins = alerts.withLock { alerts in
            alerts.oldAfter = oldAfter
            guard !alerts.isWatching, outbox.tellsAlerts else { return false }
            alerts.isWatching = true
            return true
        }
        if begins { scheduleLook(after: .zero) }
    }

    private func scheduleLook(after pause: Duration) {
        timer.run(after: pause) { [weak self] in
            guard let self else { return }
            readers.runSoon { [self] in lookForAlerts() }
        }
    }

    private func lookForAlerts() {
        let ends = alerts.withLock { alerts in
            alerts.isWatching = outbox.tellsAlerts
            // What was told meanwhile is not known after a pause.
            if !alerts.isWatching { alerts.watch = nil }
            return !alerts.isWatching
        }
        if ends { return }
        guard readAlertRecord() else { return scheduleLook(after: Self.alertRetryPeriod) }
        let (now, instant) = (time.now, time.instant)
        let oldAfter = alerts.withLock { $0.oldAfter }
        let seen = upstreams.map { (upstream: $0, snapshot: $0.snapshot(in: self)) }
        let sights = seen.map { sight(of: $0.upstream, $0.snapshot, oldAfter[$0.upstream.name], now: now) }
        let isDiskFull = if case .full = outbox.failure { true } else { false }
        let found = alerts.withLock { alerts -> (due: [AlertWatch.Due], watch: AlertWatch, stored: [UInt8]?)? in
            let due = alerts.watch?.look(
                at: sights, isDiskFull: isDiskFull, now: now, instant: instant, wants: outbox.tells)
            guard let due, let watch = alerts.watch, !due.isEmpty || watch.lacksCounts else { return nil }
            return (due, watch, alerts.stored)
        }
        guard let found else { return scheduleLook(after: outbox.threads.idleTime(Self.alertPeriod)) }
        let texts = found.due.map { due in
            let about = seen.first { $0.upstream.name == due.key.upstream }
            return Alert(due.key, text(of: due, about?.upstream, about?.snapshot, at: now))
        }
        outbox.tell(texts, after: found.stored) { own in
            found.watch.record(telling: found.due, own: own, now: now).bytes
        } completion: { [self] result in
            let isTold = finish(result, telling: found.due, seenAt: now)
            scheduleLook(after: isTold ? outbox.threads.idleTime(Self.alertPeriod) : Self.alertRetryPeriod)
        }
    }

    /// Returns false if the store cannot be read.
    private func readAlertRecord() -> Bool {
        guard alerts.withLock({ $0.watch == nil }) else { return true }
        do throws(StoreError) {
            begin(with: try outbox.alertRecord())
            return true
        } catch {
            logger.error("cannot read what alerts were told", metadata: ["error": "\(error)"])
            return false
        }
    }

    private func begin(with stored: [UInt8]?) {
        let record = stored.flatMap { AlertWatch.Record($0) }
        alerts.withLock { alerts in
            alerts.stored = stored
            alerts.watch = AlertWatch(record, now: time.now, instant: time.instant)
        }
    }

    /// Returns false if nothing was stored.
    private func finish(
        _ result: Result<AlertOutcome, StoreError>, telling due: [AlertWatch.Due], seenAt now: Timestamp
    ) -> Bool {
        switch result {
        case .success(.told(let bytes, let own)):
            alerts.withLock { alerts in
                alerts.stored = bytes
                guard let record = AlertWatch.Record(bytes) else { return }
                alerts.watch?.told(due, own: own, record, instant: time.instant)
            }
            for alert in due { log(alert, at: now) }
            return true
        case .success(.outdated(let record)):
            begin(with: record)
            return true
        case .success(.noRoom), .failure: return false
        }
    }

    private func log(_ due: AlertWatch.Due, at now: Timestamp) {
        guard outbox.tells(due.key) else { return }
        var metadata: Logger.Metadata = [
            "event": "\(due.key.event.rawValue)", "status": "\(due.status)", "at": "\(now)",
        ]
        if let upstream = due.key.upstream { metadata["upstream"] = "\(upstream)" }
        logger.notice("alert queued for callbacks", metadata: metadata)
    }

    // MARK: What is seen

    private func sight(
        of upstream: ConfiguredUpstream, _ snapshot: UpstreamSnapshot, _ oldAfter: Duration?, now: Timestamp
    ) -> AlertWatch.Sight {
        let (health, name) = (snapshot.health, upstream.name)
        let works = [.up, .degraded].contains(health)
        var sight = AlertWatch.Sight(name: name)
        sight.isDown = health == .down ? true : works ? false : nil
        sight.isUnauthorized = health == .unauthorized ? true : works ? false : nil
        let wait = snapshot.wait(of: QueuedFacts(), now: now) { false }
        let reasons = snapshot.endpoints.map(\.waitingFor) + [wait.waitingFor].compactMap(\.self)
        sight.isGuarded =
            reasons.contains(.pause) ? nil : reasons.contains { AlertEvent(waitingFor: $0.rawValue) == .guardHeld }
        let seconds = history.oldestSeconds(of: name)
        if let oldAfter, seconds > oldAfter.inSeconds { sight.oldSince = now - .seconds(seconds) }
        sight.dropped = outbox.ledger(of: upstream.queue.number).dropped
        return sight
    }

    // MARK: What is told

    private func text(
        of due: AlertWatch.Due, _ upstream: ConfiguredUpstream?, _ snapshot: UpstreamSnapshot?, at now: Timestamp
    ) -> [UInt8] {
        var json = JSONWriter()
        json.string("event", due.key.event.rawValue)
        json.string("upstream", due.key.upstream?.description)
        json.string("status", due.status)
        json.time("at", now)
        json.time("since", due.since)
        json.string("detail", detail(of: due, snapshot))
        if let dropped = due.dropped { json.number("dropped", dropped) }
        if let upstream {
            LedgerJSON.writeCounts(outbox.ledger(of: upstream.queue.number), into: &json)
        } else {
            json.raw("counts", "null")
        }
        return Array(json.finished.utf8)
    }

    /// In words, without anything that the store or the configuration keeps secret: errors of attempts have no secrets.
    private func detail(of due: AlertWatch.Due, _ snapshot: UpstreamSnapshot?) -> String {
        switch (due.key.event, due.isResolved) {
        case (.upstreamDown, _): snapshot?.lastError?.detail ?? "requests fail"
        case (.upstreamUp, _): "requests succeed again"
        case (.upstreamUnauthorized, false): snapshot?.lastError?.detail ?? "the credentials are rejected or missing"
        case (.upstreamUnauthorized, true): "the credentials are accepted"
        case (.guardHeld, false): "too many messages were rejected; the others are held"
        case (.guardHeld, true): "messages are sent again"
        case (.queueOld, false): "the oldest message has been due for too long"
        case (.queueOld, true): "no message has been due for too long any more"
        case (.messagesDropped, _): "a queue or the disk is full"
        case (.diskFull, false): "the disk is full; new messages are rejected"
        case (.diskFull, true): "the disk has room; messages are accepted"
        }
    }
}
