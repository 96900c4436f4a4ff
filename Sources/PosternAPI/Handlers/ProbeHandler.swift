import PosternCompression
import PosternCore
import PosternDelivery
import PosternHTTP
import PosternMetrics
import PosternStore
import PosternThreads
import PosternUpstream
import Synchronization

/// The routes for probes and monitoring: liveness, readiness, metrics, and the description of the API.
struct ProbeHandler: Sendable {
    let context: APIContext

    func live(_ responder: MeteredResponder) { responder.send(.json(200, #"{"status":"ok"}"#)) }

    /// Does not depend on upstreams: a gateway whose upstreams are down still accepts messages.
    func ready(_ responder: MeteredResponder) {
        let readiness = ReadinessReport(context)
        let explains = responder.request.handler.explainsProbes(to: responder.head, responder.caller)
        responder.send(.json(readiness.isReady ? 200 : 503, explains ? readiness.json : readiness.statusJSON))
    }

    func document(_ responder: MeteredResponder) {
        let document = context.document(for: responder.caller)
        let isKnown = EntityTag.list(responder.head.header("If-None-Match"), contains: document.tag)
        // With 304, only the length of the body is sent.
        responder.send(
            HTTPResponse(
                status: isKnown ? 304 : 200,
                headers: [
                    ("Content-Type", "application/yaml"), ("ETag", document.tag), ("Cache-Control", "no-cache"),
                ], body: document.text))
    }

    func metrics(_ responder: MeteredResponder) { context.readers.runSoon { [self] in answerMetrics(responder) } }

    private func answerMetrics(_ responder: MeteredResponder) {
        var exposition = Exposition(Self.format(responder.head.header("Accept")))
        context.metrics.write(to: &exposition)
        writeOutbox(to: &exposition)
        writeUpstreams(to: &exposition)
        writeFiles(to: &exposition)
        writeCertificate(to: &exposition)
        exposition.gauges(
            "postern_build_info", "1, with the version of this program.", [([("version", PosternVersion.current)], 1)])
        ProcessFigures.write(to: &exposition)
        let text = responder.caller.map { visible(exposition.text, to: $0) } ?? exposition.text
        responder.send(response(Array((text + exposition.format.end).utf8), exposition.format, to: responder.head))
    }

    /// OpenMetrics only for a client that names it, and does not prefer the older format.
    private static func format(_ accept: String?) -> Exposition.Format {
        guard let accept, accept.lowercased().contains("application/openmetrics-text") else { return .prometheus }
        let weight = quality(of: "application/openmetrics-text", in: accept)
        return weight > 0 && weight >= quality(of: "text/plain", in: accept) ? .openMetrics : .prometheus
    }

    private func response(_ text: [UInt8], _ format: Exposition.Format, to head: RequestHead) -> HTTPResponse {
        let headers = [("Content-Type", format.contentType), ("Vary", "Accept, Accept-Encoding")]
        guard asks(for: "gzip", head.header("Accept-Encoding")) else {
            return HTTPResponse(status: 200, headers: headers, body: text)
        }
        // The fastest level makes a text of this kind ten times smaller.
        return HTTPResponse(
            status: 200, headers: headers + [("Content-Encoding", "gzip")], body: Gzip.compress(text, level: 1))
    }

    /// Without the samples of upstreams that the caller may not use.
    private func visible(_ text: String, to caller: Caller) -> String {
        // Also those that are disabled: their counters exist until the process ends.
        let hidden = context.outbox.names.values.filter { !caller.mayUse($0) }
        guard !hidden.isEmpty else { return text }
        let labels = hidden.flatMap { ["upstream=\"\($0)\"", "worker=\"\($0)\""] }
        return text.split(separator: "\n").filter { line in
            line.hasPrefix("#") || !labels.contains { line.contains($0) }
        }.joined(separator: "\n") + "\n"
    }

    private func writeOutbox(to exposition: inout Exposition) {
        // A store that cannot be read is reported by the log; the other series are still useful.
        let configured = context.upstreams
        let disabled = (try? context.disabledUpstreams(besides: configured)) ?? []
        let upstreams = configured.map { ($0.name, $0.queue.number) } + disabled.map { ($0.name, $0.number) }
        let ledgers = upstreams.map { name, number in (name.description, number, context.outbox.ledger(of: number)) }
        exposition.gauges(
            "postern_outbox_messages", "Messages the store holds.",
            ledgers.flatMap { name, _, ledger in
                MessageState.allCases.map { state in
                    ([("upstream", name), ("state", state.name)], Double(ledger.kept[state]))
                }
            })
        exposition.gauges(
            "postern_outbox_bytes", "Payload bytes of all that is queued.",
            ledgers.map { name, _, ledger in ([("upstream", name)], Double(ledger.queuedBytes)) })
        exposition.gauges(
            "postern_outbox_unbalanced_messages",
            "Accepted messages that no state of the ledger counts, or that are counted twice; 0 unless the store is wrong.",
            ledgers.map { name, _, ledger in ([("upstream", name)], Double(abs(ledger.balance))) })
        exposition.gauges(
            "postern_outbox_oldest_queued_seconds", "How long the oldest queued message has been due; 0 if none is.",
            ledgers.map { name, number, ledger in
                let oldest = ledger.queued > 0 ? try? context.outbox.oldestQueued(of: number) : nil
                return (
                    [("upstream", name)],
                    oldest.map { max(0, (context.time.now - $0).inSeconds) } ?? 0
                )
            })
    }

    private func writeFiles(to exposition: inout Exposition) {
        let bytes = context.outbox.figures
        exposition.gauges("postern_store_bytes", "Size of the store's database.", [([], Double(bytes.store))])
        func known(_ bytes: Int?) -> [(labels: [(String, String)], value: Double)] {
            bytes.map { [([], Double($0))] } ?? []
        }
        exposition.gauges("postern_store_wal_bytes", "Size of its write-ahead log.", known(bytes.log))
        exposition.gauges("postern_store_free_bytes", "Room on the store's disk.", known(bytes.free))
    }

    private func writeCertificate(to exposition: inout Exposition) {
        guard let expiresAt = context.certificateExpiry.withLock({ $0 }) else { return }
        exposition.gauges(
            "postern_tls_certificate_expiry_seconds", "Until the server's own certificate ends; negative once it has.",
            [([], (expiresAt - context.time.now).inSeconds)])
    }

    private func writeUpstreams(to exposition: inout Exposition) {
        let upstreams = context.upstreams
        let snapshots =
            upstreams.map { ($0.name.description, $0.snapshot(in: context)) }
            + ((try? context.disabledUpstreams(besides: upstreams)) ?? []).map {
                ($0.name.description, UpstreamSnapshot.disabled)
            }
        exposition.gauges(
            "postern_outbox_drain_seconds",
            "Until the queue is empty at the rate of the last minute; no sample while nothing leaves it.",
            upstreams.compactMap { upstream in
                context.drainSeconds(
                    of: upstream.name, context.outbox.ledger(of: upstream.queue.number), upstream.snapshot(in: context)
                ).map { ([("upstream", upstream.name.description)], $0) }
            })
        exposition.gauges(
            "postern_upstream_health", "1 for the upstream's current health.",
            snapshots.flatMap { name, snapshot in
                UpstreamSnapshot.Health.allCases.map { health in
                    ([("upstream", name), ("health", health.rawValue)], health == snapshot.health ? 1 : 0)
                }
            })
        exposition.gauges(
            "postern_circuit_state", "1 for the current state of the upstream's circuit.",
            snapshots.flatMap { name, snapshot in
                Circuit.State.names.map { state in
                    ([("upstream", name), ("state", state)], state == snapshot.circuit.name ? 1 : 0)
                }
            })
        exposition.gauges(
            "postern_guarded_endpoints", "Endpoints that are held because they rejected most of their latest messages.",
            snapshots.map { name, snapshot in
                ([("upstream", name)], Double(snapshot.endpoints.count { $0.waitingFor == .guard }))
            })
        exposition.gauges(
            "postern_request_rate_limit", "Requests per second that the upstream gets at most at present; 0: no limit.",
            snapshots.map { name, snapshot in ([("upstream", name)], snapshot.rateLimit ?? 0) })
        exposition.gauges(
            "postern_kind_request_rate_limit",
            "Requests per second that may be sent of a kind, where kinds can have a limit; 0: no limit.",
            context.upstreams.filter(\.adapter.traits.sendsKindsApart).flatMap { upstream in
                upstream.kinds.map { kind in
                    let rate = upstream.adapter.traits.rates[kind.kind]?.requests ?? 0
                    return ([("upstream", upstream.name.description), ("kind", kind.text)], rate)
                }
            })
        let stalled = Set(context.stalledWorkers())
        exposition.gauges(
            "postern_worker_stalled", "1 for a worker that makes no progress.",
            (context.upstreams.map(\.name.description) + ["writer"]).map {
                ([("worker", $0)], stalled.contains($0) ? 1 : 0)
            })
    }
}
