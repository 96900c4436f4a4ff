import Testing

@testable import PosternMetrics

@Suite struct ExpositionTests {
    @Test func histogram_countsCumulatively_upToEachBound() {
        let family = Family<Histogram>(labels: ["upstream"]) { Histogram(bounds: [1, 5]) }
        for value in [0.5, 1, 3, 7] { family("samsara").observe(value) }
        var exposition = Exposition()
        exposition.histograms("batch", "Help.", family)
        #expect(
            exposition.text == """
                # HELP batch Help.
                # TYPE batch histogram
                batch_bucket{upstream="samsara",le="1"} 2
                batch_bucket{upstream="samsara",le="5"} 3
                batch_bucket{upstream="samsara",le="+Inf"} 4
                batch_sum{upstream="samsara"} 11.5
                batch_count{upstream="samsara"} 4

                """)
    }

    @Test func counters_areWritten_oneLineForEachCombinationOfLabels() {
        let family = Family<Counter>(labels: ["route", "status"]) { Counter() }
        family("/b", "202").add(2)
        family("/a\"\\", "404").add()
        var exposition = Exposition()
        exposition.counters("requests_total", "Help.", family)
        #expect(
            exposition.text.hasSuffix(
                #"requests_total{route="/a\"\\",status="404"} 1"# + "\n"
                    + #"requests_total{route="/b",status="202"} 2"# + "\n"))
    }

    @Test func openMetrics_namesCountersWithoutTheirSuffix() {
        let family = Family<Counter>(labels: ["route"]) { Counter() }
        family("/b").add(2)
        var exposition = Exposition(.openMetrics)
        exposition.counters("requests_total", "Help.", family)
        exposition.gauges("size_bytes", "Help.", [([], 1.5)])
        #expect(
            exposition.text + exposition.format.end == """
                # HELP requests Help.
                # TYPE requests counter
                requests_total{route="/b"} 2
                # HELP size_bytes Help.
                # TYPE size_bytes gauge
                size_bytes 1.5
                # EOF

                """)
    }

    @Test func metrics_nameEveryFamilyOfTheDesign() {
        var exposition = Exposition()
        Metrics().write(to: &exposition)
        for name in [
            "postern_messages_accepted_total", "postern_messages_refused_total", "postern_messages_settled_total",
            "postern_messages_replayed_total", "postern_commit_duration_seconds", "postern_commit_messages",
            "postern_attempts_total",
            "postern_attempt_duration_seconds", "postern_batch_messages", "postern_ambiguous_sends_total",
            "postern_token_refreshes_total", "postern_http_requests_total", "postern_http_request_duration_seconds",
        ] {
            #expect(exposition.text.contains("# TYPE \(name) "))
        }
    }

    @Test func databaseMetrics_areThere_onlyWithADatabase() {
        let metrics = Metrics()
        func text() -> String {
            var exposition = Exposition()
            metrics.write(to: &exposition)
            return exposition.text
        }
        let names = [
            "postern_store_up", "postern_store_round_trip_seconds", "postern_store_reconnects_total",
            "postern_store_retries_total", "postern_store_unknown_commits_total", "postern_store_lost_commits_total",
            "postern_node_lease_seconds", "postern_fenced_total", "postern_clock_offset_seconds",
            "postern_queues_owned", "postern_queue_moves_total", "postern_commit_log_lag_seconds",
        ]
        #expect(names.allSatisfy { !text().contains($0) })
        metrics.database.begin(
            .init(
                isUp: { true }, leaseSeconds: { 7.5 }, clockOffsetSeconds: { -0.25 }, queues: { 3 }, fenced: { 2 }))
        metrics.database.retries("40001").add()
        let exported = text()
        #expect(names.allSatisfy { exported.contains("# TYPE \($0) ") })
        // Not before the store has been opened.
        #expect(!exported.contains("\npostern_store_lost_commits_total"))
        // Each series is there from the start: a rate leaves out the first event of one that begins with it.
        for line in [
            "postern_store_up 1", "postern_node_lease_seconds 7.5", #"postern_store_retries_total{code="40001"} 1"#,
            #"postern_store_retries_total{code="55P03"} 0"#, "postern_fenced_total 2", "postern_queues_owned 3",
            "postern_clock_offset_seconds -0.25", #"postern_queue_moves_total{reason="takeover"} 0"#,
            #"postern_store_unknown_commits_total{outcome="notStored"} 0"#,
        ] {
            #expect(exported.contains("\n\(line)\n"))
        }
    }
}
