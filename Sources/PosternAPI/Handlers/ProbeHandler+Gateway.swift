import PosternCore
import PosternHTTP
import PosternMetrics
import PosternStore
import PosternThreads
import PosternUpstream
import Synchronization

/// What the console shows of the gateway itself.
extension ProbeHandler {
    /// Like `/metrics`, it responds whether the gateway is ready or not.
    func gateway(_ responder: MeteredResponder) {
        context.readers.runSoon { [self] in responder.send(.json(200, gateway(for: responder.caller))) }
    }

    private func gateway(for caller: Caller?) -> String {
        let readiness = ReadinessReport(context, for: caller)
        let figures = context.outbox.figures
        let commits = context.history.recentCommits(context.metrics.commitDuration.counts)
        return JSONWriter.object { json in
            json.string("version", PosternVersion.current)
            json.string("instance", context.instance)
            json.time("startedAt", context.startedAt)
            json.flag("ready", readiness.isReady)
            json.raw("reasons", JSONWriter.array(readiness.reasons.map(JSONEscapes.quoted)))
            json.raw("notes", JSONWriter.array((readiness.notes + notes(for: caller)).map(JSONEscapes.quoted)))
            json.flag("simulated", context.isSimulated)
            json.object("store") { store in
                store.number("bytes", figures.store)
                if let log = figures.log { store.number("walBytes", log) }
                if let free = figures.free { store.number("freeBytes", free) }
            }
            json.object("commit") { commit in
                for (name, share) in [("p50Ms", 0.5), ("p99Ms", 0.99)] {
                    commit.decimal(name, commits.quantile(share).map { ($0 * 1e6).rounded() / 1e3 })
                }
            }
            json.number("memoryBytes", ProcessFigures.residentBytes)
            json.raw("key", caller.map { describe($0.key) } ?? "null")
        }
    }

    private func describe(_ key: APIKey) -> String {
        JSONWriter.object { json in
            json.string("name", key.name)
            KeyHandler.writeRights(key.scopes, key.upstreams, into: &json)
        }
    }

    /// What the log said at the start, as far as it is still so, about upstreams that the caller may use.
    private func notes(for caller: Caller?) -> [String] {
        let upstreams = context.upstreams
        var notes: [String] = []
        for upstream in upstreams where caller?.mayUse(upstream.name) ?? true {
            let missing = upstream.adapter.missingSettings
            guard !missing.isEmpty else { continue }
            notes.append(
                "upstream \(upstream.name) lacks required settings (\(missing.joined(separator: ", "))); messages wait")
        }
        for upstream in (try? context.disabledUpstreams(besides: upstreams)) ?? []
        where caller?.mayUse(upstream.name) ?? true {
            notes.append("upstream \(upstream.name) is disabled or not configured; messages wait")
        }
        guard caller?.key.upstreams == nil else { return notes }
        let unreadable = context.outbox.keyRotation.unreadable
        if unreadable > 0 {
            notes.append(
                "\(unreadable) stored credentials cannot be decrypted with the configured keys; their messages wait for new ones"
            )
        }
        if let expiresAt = context.certificateExpiry.withLock({ $0 }), expiresAt - context.time.now < Self.noteTime {
            notes.append("the certificate expires at \(expiresAt)")
        }
        return notes
    }

    /// When the log warns of the certificate for the first time.
    private static let noteTime = Duration.seconds(21 * 86_400)
}
