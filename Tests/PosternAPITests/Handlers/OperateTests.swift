import PosternCore
import PosternDelivery
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI

/// Pausing, resuming, and probing upstreams (design, section 3.2).
@Suite struct UpstreamTests {
    @Test func upstreams_areListedByName() throws {
        try withPausedGateway { gateway in
            let list = try gateway.client.get("/v1/upstreams").json["upstreams"].array
            #expect(list.map { $0["name"].string } == ["picky", "plain"])
            #expect(
                list[0].keys == [
                    "name", "type", "health", "queued", "queuedBytes", "oldestQueuedSeconds", "drainSeconds",
                    "inFlight", "circuit", "endpoints", "token", "lastSuccessAt", "lastError", "kinds", "counts",
                    "kept", "pausedBy",
                ])
            #expect(list[0]["kinds"].strings == ["event", "note"])
        }
    }

    @Test func upstream_countsWhatIsQueued() throws {
        var setup = Setup()
        let time = ManualTime()
        setup.time = time
        try withPausedGateway(setup) { gateway in
            let before = try gateway.upstream()
            #expect(before["queued"].int == 0 && before["oldestQueuedSeconds"].double == 0)
            _ = try gateway.accept()
            time.advance(by: .seconds(7))
            let after = try gateway.upstream()
            #expect(after["queued"].int == 1)
            #expect(after["queuedBytes"].int == 7)
            #expect(after["oldestQueuedSeconds"].double == 7)
        }
    }

    @Test func scheduledMessage_isOld_fromItsTimeOn() throws {
        var setup = Setup()
        let time = ManualTime()
        setup.time = time
        try withPausedGateway(setup) { gateway in
            let envelope =
                #"{"upstream":"picky","kind":"event","notBefore":"\#(time.now + .seconds(60))","payload":{"n":1}}"#
            #expect(try gateway.client.post("/v1/messages", envelope).status == 202)
            time.advance(by: .seconds(59))
            #expect(try gateway.upstream()["oldestQueuedSeconds"].double == 0)
            time.advance(by: .seconds(11))
            #expect(try gateway.upstream()["oldestQueuedSeconds"].double == 10)
            #expect(try gateway.sample(#"postern_outbox_oldest_queued_seconds{upstream="picky"}"#) == 10)
            _ = try gateway.accept()
            time.advance(by: .seconds(20))
            #expect(try gateway.upstream()["oldestQueuedSeconds"].double == 30)
        }
    }

    @Test func emptyQueue_needsNoTime_andThatOfAPausedUpstreamIsUnknown() throws {
        try withPausedGateway { gateway in
            let metric = #"postern_outbox_drain_seconds{upstream="picky"}"#
            #expect(try gateway.upstream()["drainSeconds"].double == 0)
            #expect(try gateway.sample(metric) == 0)
            _ = try gateway.accept()
            #expect(try gateway.upstream().keys.contains("drainSeconds"))
            #expect(try !gateway.upstream()["drainSeconds"].isThere)
            #expect(try !gateway.client.get("/metrics").text.contains(metric))
        }
    }

    @Test func metrics_sayHowLargeTheStoreIs() throws {
        try withPausedGateway { gateway in
            let store = try #require(try gateway.sample("postern_store_bytes"))
            let (log, free) = (
                try gateway.sample("postern_store_wal_bytes"), try gateway.sample("postern_store_free_bytes")
            )
            #expect(store > 0 && log.map { $0 > 0 } == true && free.map { $0 > 0 } == true)
            #expect(try gateway.sample("postern_build_info{version=\"\(PosternVersion.current)\"}") == 1)
        }
    }

    @Test func delivery_isSeenOnTheUpstream() throws {
        try withGateway { gateway in
            _ = try gateway.accept()
            try gateway.waitForOpenRequest()
            #expect(try eventually { try gateway.upstream()["inFlight"].int == 1 })
            gateway.transport.answer(.status(200))
            #expect(try eventually { try gateway.upstream()["lastSuccessAt"].isThere })
            #expect(try gateway.upstream()["health"].string == "up")
        }
    }

    @Test func pausedUpstream_acceptsAndSendsNothing_untilItIsResumed() throws {
        var setup = Setup()
        setup.results = [.status(200)]
        try withGateway(setup) { gateway in
            let paused = try gateway.client.post("/v1/upstreams/picky/pause")
            #expect(paused.status == 202)
            #expect(paused.json["action"].string == "pause")
            try #require(try eventually { try gateway.upstream()["health"].string == "paused" })
            let id = try gateway.accept()
            #expect(gateway.transport.requests.isEmpty)
            let resumed = try gateway.client.post("/v1/upstreams/picky/resume")
            #expect(resumed.json["queued"].int == 1)
            try gateway.waitForState("delivered", of: id)
            #expect(try gateway.upstream()["health"].string == "up")
        }
    }

    /// Promise 8: a kind that waits while others are delivered says so, why, and until when.
    @Test func upstream_showsWhichOfItsEndpointsWait() throws {
        var setup = Setup()
        setup.upstreams = [TwoPaths()]
        try withGateway(setup) { gateway in
            gateway.transport.answerAll { request in
                request.endpoint == "note" ? .status(429, headers: [("Retry-After", "600")]) : .status(200)
            }
            #expect(try gateway.upstream("paths")["endpoints"].array.isEmpty)
            try gateway.waitForState("delivered", of: try gateway.accept("/v1/paths/event"))
            let note = try gateway.accept("/v1/paths/note")
            try gateway.waitFor("retry", of: note)
            let shown = try gateway.upstream("paths")
            #expect(shown["health"].string == "degraded" && shown["circuit"]["state"].string == "closed")
            let endpoints = shown["endpoints"].array
            try #require(endpoints.count == 1)
            #expect(endpoints[0]["name"].string == "note")
            #expect(endpoints[0]["waitingFor"].string == "circuit")
            let nextAttemptAt = try #require(try gateway.message(note)["nextAttemptAt"].string)
            #expect(endpoints[0]["reopensAt"].string == nextAttemptAt)
            #expect(endpoints[0]["lastError"]["status"].int == 429)
        }
    }

    /// Each kind has an endpoint of its own.
    private struct TwoPaths: PlainAtHeart {
        let plain = PlainUpstream("paths", kinds: ["event", "note"], laneRule: .perLane)

        func validate(
            _ payload: JSONValue, of kind: Kind, in context: ValidationContext
        ) throws(InvalidPayload) -> ValidPayload { ValidPayload(lane: .named(kind.description)) }
        func plan(for messages: [Message], in context: PlanContext) -> Plan {
            .send(UpstreamRequest(url: "http://paths.test/", endpoint: messages[0].kind.description), count: 1)
        }
    }

    @Test func flush_sendsWhatCollects() throws {
        var setup = Setup()
        setup.delivery.batchMaxWait = .seconds(3600)
        setup.results = [.status(200)]
        try withGateway(setup) { gateway in
            let id = try gateway.accept()
            #expect(try gateway.message(id)["state"].string == "queued")
            #expect(try gateway.client.post("/v1/upstreams/picky/flush").status == 202)
            try gateway.waitForState("delivered", of: id)
        }
    }

    @Test func flush_sendsWhatWaitsForARetry() throws {
        var setup = Setup()
        setup.results = [.status(503), .status(200)]
        try withGateway(setup) { gateway in
            let id = try gateway.accept()
            try gateway.waitFor("retry", of: id)
            _ = try gateway.client.post("/v1/upstreams/picky/flush")
            try gateway.waitForState("delivered", of: id)
        }
    }
}

/// Design, sections 3.4 and 7: what probes and monitoring systems request.
@Suite struct ProbeTests {
    @Test func liveAndReady_answerWell() throws {
        try withPausedGateway { gateway in
            #expect(try gateway.client.get("/livez").json["status"].string == "ok")
            let ready = try gateway.client.get("/readyz")
            #expect(ready.status == 200 && ready.json["status"].string == "ready")
        }
    }

    @Test func readiness_doesNotDependOnUpstreams() throws {
        var setup = Setup()
        setup.results = [.status(403)]
        try withGateway(setup) { gateway in
            let id = try gateway.accept()
            try gateway.waitFor("credentials", of: id)
            #expect(try gateway.client.get("/readyz").status == 200)
        }
    }

    @Test func stalledWorker_makesItUnready() throws {
        var setup = Setup()
        setup.stalled = ["picky"]
        try withPausedGateway(setup) { gateway in
            let answer = try gateway.client.get("/readyz")
            #expect(answer.status == 503)
            #expect(answer.json["reasons"].strings == ["worker picky is stalled"])
            #expect(try gateway.sample("postern_worker_stalled{worker=\"picky\"}") == 1)
            #expect(try gateway.sample("postern_worker_stalled{worker=\"plain\"}") == 0)
            #expect(try gateway.sample("postern_worker_stalled{worker=\"writer\"}") == 0)
        }
    }

    /// Design, section 7, name by name.
    @Test(arguments: [
        ("postern_messages_accepted_total", "counter"), ("postern_messages_refused_total", "counter"),
        ("postern_messages_settled_total", "counter"), ("postern_outbox_messages", "gauge"),
        ("postern_messages_replayed_total", "counter"),
        ("postern_store_bytes", "gauge"), ("postern_store_wal_bytes", "gauge"), ("postern_store_free_bytes", "gauge"),
        ("postern_build_info", "gauge"), ("postern_outbox_bytes", "gauge"),
        ("postern_outbox_oldest_queued_seconds", "gauge"), ("postern_outbox_drain_seconds", "gauge"),
        ("postern_commit_duration_seconds", "histogram"), ("postern_commit_messages", "histogram"),
        ("postern_attempts_total", "counter"), ("postern_attempt_duration_seconds", "histogram"),
        ("postern_batch_messages", "histogram"), ("postern_ambiguous_sends_total", "counter"),
        ("postern_upstream_health", "gauge"), ("postern_circuit_state", "gauge"),
        ("postern_token_refreshes_total", "counter"), ("postern_http_requests_total", "counter"),
        ("postern_http_request_duration_seconds", "histogram"), ("postern_worker_stalled", "gauge"),
        ("process_cpu_seconds_total", "counter"), ("process_resident_memory_bytes", "gauge"),
        ("process_open_fds", "gauge"), ("process_start_time_seconds", "gauge"),
    ])
    func metric_isThere(name: String, type: String) throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.get("/metrics")
            #expect(answer.header("Content-Type")?.hasPrefix("text/plain; version=0.0.4") == true)
            #expect(answer.text.contains("# TYPE \(name) \(type)\n"))
        }
    }

    @Test func metrics_countWhatHappened() throws {
        var setup = Setup()
        setup.results = [.status(200), .status(422)]
        try withGateway(setup) { gateway in
            let first = try gateway.accept()
            try gateway.waitForState("delivered", of: first)
            let second = try gateway.accept()
            try gateway.waitForState("failed", of: second)
            _ = try gateway.client.post("/v1/picky/event", #"[{"n":"x"},{"n":1}]"#)
            #expect(try gateway.sample(#"postern_messages_accepted_total{upstream="picky",kind="event"}"#) == 2)
            #expect(
                try gateway.sample(#"postern_messages_refused_total{upstream="picky",reason="invalid-payload"}"#) == 1)
            #expect(try gateway.sample(#"postern_messages_settled_total{upstream="picky",state="delivered"}"#) == 1)
            #expect(try gateway.sample(#"postern_messages_settled_total{upstream="picky",state="failed"}"#) == 1)
            #expect(try gateway.sample(#"postern_outbox_messages{upstream="picky",state="failed"}"#) == 1)
            #expect(try gateway.sample(#"postern_attempts_total{upstream="picky",outcome="delivered"}"#) == 1)
            #expect(try gateway.sample(#"postern_attempt_duration_seconds_count{upstream="picky"}"#) == 2)
            #expect(try gateway.sample(#"postern_batch_messages_sum{upstream="picky"}"#) == 2)
            #expect(try gateway.sample("postern_commit_messages_sum") == 2)
            for health in UpstreamSnapshot.Health.allCases {
                let series = #"postern_upstream_health{upstream="picky",health="\#(health.rawValue)"}"#
                #expect(try gateway.sample(series) == (health == .up ? 1 : 0))
            }
            #expect(try gateway.sample(#"postern_circuit_state{upstream="picky",state="closed"}"#) == 1)
            #expect(try gateway.sample(#"postern_circuit_state{upstream="picky",state="half-open"}"#) == 0)
            #expect(
                try gateway.sample(#"postern_http_requests_total{route="/v1/{upstream}/{kind}",status="202"}"#) == 2)
            #expect(
                try gateway.sample(#"postern_http_requests_total{route="/v1/{upstream}/{kind}",status="422"}"#) == 1)
        }
    }

    @Test func labels_areBounded_whateverIsAskedFor() throws {
        try withPausedGateway { gateway in
            for number in 0..<20 {
                let client = try HTTPClient(port: gateway.port)
                #expect(try client.get("/v1/messages/000000000\(1000 + number)").status == 404)
                #expect(try client.get("/path-\(number)").status == 404)
                #expect(try client.post("/v1/absent-\(number)/event", "{}").status == 404)
            }
            #expect(try gateway.sample(#"postern_http_requests_total{route="/v1/messages/{id}",status="404"}"#) == 20)
            #expect(try gateway.sample(#"postern_http_requests_total{route="unknown",status="404"}"#) == 40)
            #expect(try !(gateway.client.get("/metrics").text.contains("absent")))
        }
    }
}
