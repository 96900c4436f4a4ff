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
        sample.failed = metrics.settled(name, MessageState.failed.name).value
        (sample.durations, sample.waits) = (metrics.attemptDuration(name).counts, metrics.deliveryWait(name).counts)
        return sample
    }
}
