import Glibc
import Logging
import PosternConformance
import PosternCore
import PosternHTTP
import PosternStore
import PosternTestKit
import Synchronization
import Testing

extension EndToEnd {
    /// Upstreams that a reload adds and removes.
    @Suite struct AddedUpstreams {
        private func reload(_ gateway: GatewayProcess, _ directory: GatewayDirectory, _ settings: Settings) async throws
        {
            try directory.configure(settings)
            gateway.process.signal(SIGHUP)
            let line = try await gateway.process.line(of: .errors) { $0.contains("configuration reloaded") }
            #expect(line.contains("changed=upstreams.") && !line.contains("needsRestart=upstreams"), "\(line)")
        }

        private func settings(_ upstreams: [String: String]) -> Settings {
            Settings(upstreams: upstreams.mapValues { ["type": "samsara", "url": $0] })
        }

        @Test(.timeLimit(.minutes(10)))
        func upstream_isAddedRemovedAndAddedAgain_withoutARestart_andNothingIsLost() async throws {
            let (first, second) = (try HostedSimulator(), try HostedSimulator(faults: "status=503"))
            let directory = try GatewayDirectory(settings(["samsara": first.url]))
            let gateway = try await directory.start()
            #expect(try gateway.client().post("/v1/second/event", event(0)).status == 404)

            try await reload(gateway, directory, settings(["samsara": first.url, "second": second.url]))
            #expect(try gateway.client().post("/v1/second/event", events(0..<40)).status == 202)
            #expect(try eventually { try second.received["requests"].int ?? 0 > 0 }, "its worker sends")
            #expect(try gateway.sample(#"postern_outbox_messages{upstream="second",state="queued"}"#) == 40)
            #expect(try gateway.sample(#"postern_worker_stalled{worker="second"}"#) == 0)

            // Removed: as after a start without it.
            try await reload(gateway, directory, settings(["samsara": first.url]))
            #expect(try gateway.client().post("/v1/second/event", event(0)).status == 404)
            let isShown = try eventually {
                try gateway.client().get("/v1/upstreams/second").json["health"].string == "disabled"
            }
            #expect(isShown)
            let requests = try second.received["requests"].int
            #expect(try gateway.client().post(eventPath, event(1), headers: [("Prefer", "wait=60")]).status == 200)
            #expect(try second.received["requests"].int == requests, "nothing is sent to it any more")

            // Configured again, this time with a working address.
            try second.play("")
            try await reload(gateway, directory, settings(["samsara": first.url, "second": second.url]))
            try gateway.waitUntilDelivered(to: "second")
            #expect(try second.received["events"].int == 40)
            #expect(
                try gateway.client().post("/v1/second/event", event(40), headers: [("Prefer", "wait=60")]).status == 200
            )
            #expect(try gateway.upstream("second")["health"].string == "up")
            try await gateway.stop()
            let audit = try directory.audit()
            #expect(audit.isBalanced)
            #expect(audit.accounts.map(\.ledger.delivered).sorted() == [1, 41])
        }

        @Test(.timeLimit(.minutes(10)))
        func requestInFlight_endsBeforeItsUpstreamIsAddedAgain() async throws {
            let slow = HeldUpstream()
            let server = HTTPServer(
                HTTPServerSettings { ($0.port, $0.workerThreads) = (0, 1) }, handler: slow,
                logger: Logger(label: "upstream"))
            let url = "http://127.0.0.1:\(try server.start())"
            defer { server.stopAndWait(grace: .zero) }
            let directory = try GatewayDirectory(settings(["slow": url]))
            let gateway = try await directory.start()
            #expect(try gateway.client().post("/v1/slow/event", event(0)).status == 202)
            #expect(eventually { slow.requests == 1 })
            try await reload(gateway, directory, settings([:]))
            // The request is still in flight: its message is shown, and must not be sent a second time.
            #expect(try gateway.client().get("/v1/upstreams/slow").json["health"].string == "disabled")
            let listed = try gateway.client().get("/v1/upstreams").json["upstreams"].array
            #expect(listed.map { $0["name"].string } == ["slow"] && listed.first?["queued"].int == 1)
            #expect(try gateway.sample(#"postern_outbox_messages{upstream="slow",state="queued"}"#) == 1)
            try directory.configure(settings(["slow": url]))
            gateway.process.signal(SIGHUP)
            _ = try await gateway.process.line(of: .errors) { $0.contains("cannot add the upstream") }
            slow.release()
            let isBack = try eventually(every: .milliseconds(500)) {
                gateway.process.signal(SIGHUP)
                return try gateway.client().get("/v1/upstreams/slow").json["health"].string == "up"
            }
            #expect(isBack)
            try gateway.waitUntilDelivered(to: "slow")
            #expect(slow.requests == 1)
            try await gateway.stop()
            #expect(try directory.audit().isBalanced)
        }

        /// Answers its requests when the test says so.
        private final class HeldUpstream: HTTPHandler, AdmittedRequest {
            private let state = Mutex((requests: 0, held: [Responder]()))
            var requests: Int { state.withLock { $0.requests } }

            func admit(_ head: RequestHead) -> HeaderDecision { .accept(maxBodyBytes: 1 << 20, self) }
            func answer(_ body: [UInt8], _ responder: Responder) {
                state.withLock { state in
                    state.requests += 1
                    state.held.append(responder)
                }
            }

            func release() {
                let held = state.withLock { state in
                    defer { state.held = [] }
                    return state.held
                }
                for responder in held { responder.respond(HTTPResponse(status: 202)) }
            }
        }
    }
}
