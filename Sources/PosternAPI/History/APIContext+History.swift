import PosternCore
import PosternDelivery
import PosternMetrics
import PosternStore
import PosternThreads

extension APIContext {
    /// Takes the first sample. Those that follow are taken in the background until `stop`.
    func beginHistory() {
        history.add(samples(readsStore: false), commits: metrics.commitDuration.counts, at: time.now)
        scheduleSample()
    }

    private func scheduleSample() {
        timer.run(after: history.pause(at: time.now)) { [weak self] in
            guard let self else { return }
            readers.runSoon { [self] in
                sampleHistory()
                scheduleSample()
            }
        }
    }

    /// Ends a step of the history. Reads the store.
    func sampleHistory() {
        history.add(samples(readsStore: true), commits: metrics.commitDuration.counts, at: time.now)
    }

    /// The figures of the upstreams that `GET /v1/upstreams` lists. A store that cannot be read is reported where messages
    /// are.
    private func samples(readsStore: Bool) -> [UpstreamName: UpstreamHistory.Sample] {
        let configured = upstreams
        let disabled = readsStore ? (try? disabledUpstreams(besides: configured)) ?? [] : []
        let (ledgers, now) = (outbox.ledgers, time.now)
        var samples: [UpstreamName: UpstreamHistory.Sample] = [:]
        func add(_ name: UpstreamName, _ number: UpstreamNumber, _ sample: UpstreamHistory.Sample) {
            var sample = sample
            let ledger = ledgers[number] ?? .empty
            (sample.accepted, sample.delivered, sample.queued) = (ledger.accepted, ledger.delivered, ledger.queued)
            if readsStore, ledger.queued > 0, let since = try? outbox.oldestQueued(of: number) {
                sample.oldestSeconds = max(0, (now - since).inSeconds)
            }
            samples[name] = sample
        }
        for upstream in configured { add(upstream.name, upstream.queue.number, requests(to: upstream.name)) }
        for upstream in disabled { add(upstream.name, upstream.number, .init()) }
        return samples
    }

    private func requests(to name: UpstreamName) -> UpstreamHistory.Sample {
        let name = name.description
        let succeeded: Set<Settlement.Outcome> = [.delivered, .proceed, .sorted]
        var sample = UpstreamHistory.Sample()
        for outcome in Settlement.Outcome.allCases {
            let count = metrics.attempts(name, outcome.rawValue).value
            sample.requests += count
            if !succeeded.contains(outcome) { sample.requestsFailed += count }
        }
        sample.failed = failed(of: name)
        (sample.durations, sample.waits) = (metrics.attemptDuration(name).counts, metrics.deliveryWait(name).counts)
        return sample
    }

    private func failed(of name: String) -> Int { metrics.settled(name, MessageState.failed.name).value }

    // MARK: When a queue will be empty

    /// How long it takes until the queue is empty if deliveries go on as in the last minute and nothing more arrives. Nil
    /// while nothing is sent to the upstream, or nothing has left the queue.
    func drainSeconds(of name: UpstreamName, _ ledger: Ledger, _ snapshot: UpstreamSnapshot) -> Double? {
        guard ledger.queued > 0 else { return 0 }
        guard
            [.up, .degraded].contains(snapshot.health),
            let rate = history.drainRate(
                of: name, delivered: ledger.delivered, failed: failed(of: name.description), at: time.now),
            rate > 0
        else { return nil }
        return (Double(ledger.queued) / rate * 1000).rounded() / 1000
    }

    /// `Retry-After` for a client that finds this queue full; nil: the whole outbox. Does not read the store.
    func retryAfterFull(_ name: UpstreamName?) -> Int {
        guard let name, let upstream = upstream(named: name.description), let worker = upstream.served.worker,
            let seconds = drainSeconds(of: name, outbox.ledger(of: upstream.queue.number), worker.snapshot)
        else { return Self.retryAfterFull.lowerBound }
        let range = Self.retryAfterFull
        return Int(min(max(Double(range.lowerBound), seconds.rounded(.up)), Double(range.upperBound)))
    }

    /// There is room long before a queue is empty, so that no client has to wait for longer than some minutes.
    private static let retryAfterFull = 10...300
}
