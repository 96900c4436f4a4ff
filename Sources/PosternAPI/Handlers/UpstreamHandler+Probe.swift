import PosternCore
import PosternHTTP
import PosternUpstream

/// Tries the credentials of an upstream without a message.
extension UpstreamHandler {
    /// The request is sent outside the queue: it waits for nothing, and neither its result nor its token concerns the
    /// delivery.
    func probe(_ upstream: ConfiguredUpstream, _ responder: MeteredResponder) {
        // Unstructured, because the connection's thread cannot wait for it.
        let task = Task.immediate(executorPreference: context.taskExecutor) { [context] in
            let startedAt = context.time.instant
            let services = RouteContext(
                upstream: upstream, context: context, request: responder.request,
                memory: MemoryLease(0, of: context.memory))
            let report = await upstream.adapter.probe(in: services)
            if Task.isCancelled { return responder.abandon() }
            if report.lackedResources {
                return responder.send(
                    Problem(
                        slug: .overloaded, status: 503, detail: "Nothing was sent: \(report.detail).",
                        headers: [("Retry-After", "5")]))
            }
            let duration = context.time.instant - startedAt
            responder.send(
                .json(
                    200,
                    JSONWriter.object { json in
                        json.string("upstream", upstream.name.description)
                        json.string("outcome", report.outcome.rawValue)
                        json.raw("status", report.status.map(String.init) ?? "null")
                        json.number("durationMs", Int(duration.wholeMilliseconds))
                        json.string("detail", report.detail)
                    }))
        }
        responder.onHangUp { task.cancel() }
    }
}
