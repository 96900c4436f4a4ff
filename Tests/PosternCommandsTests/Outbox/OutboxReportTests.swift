import PosternAPI
import PosternCore
import PosternDelivery
import PosternProcess
import PosternUpstream
import Testing

@testable import PosternCommands
@testable import PosternStore

@Suite struct OutboxReportTests {
    private static let noon = Timestamp(milliseconds: 1_769_860_800_000)
    private static let number = UpstreamNumber(rawValue: 1)
    private let id = MessageID(sequence: 1 << 45, upstream: number)

    private func summary(_ change: (inout UpstreamSummary) -> Void = { _ in }) throws -> UpstreamSummary {
        var summary = UpstreamSummary(
            name: try #require(UpstreamName("samsara")), number: Self.number, type: "samsara", ledger: Ledger(),
            circuit: CircuitRecord(), oldestQueuedAt: nil)
        change(&summary)
        return summary
    }

    private func record(_ change: (inout MessageRecord) -> Void = { _ in }) -> MessageRecord {
        var record = MessageRecord(
            id: id, upstream: "samsara", kind: "event", state: .queued, attempts: 0, acceptedAt: Self.noon)
        change(&record)
        return record
    }

    private func report(_ summaries: UpstreamSummary...) -> OutboxReport {
        OutboxReport(summaries: summaries, now: Self.noon)
    }

    // MARK: stats

    @Test func stats_countWhatIsKept_alignedInColumns() throws {
        let upstream = try summary {
            $0.ledger.accepted = 120
            $0.ledger.queued = 7
            $0.ledger.queuedBytes = 1234
            $0.ledger.delivered = 110
            $0.ledger.purged.delivered = 100
            $0.ledger.failed = 3
            $0.oldestQueuedAt = Self.noon
        }
        #expect(
            report(upstream).stats() == """
                UPSTREAM  HEALTH  QUEUED  BYTES  OLDEST                    DELIVERED  FAILED  CANCELLED  DROPPED  EXPIRED  ACCEPTED  WHY
                samsara   up           7   1234  2026-01-31T12:00:00.000Z         10       3          0        0        0       120  -
                """)
        #expect(
            report(upstream).statsJSON()
                == #"{"upstreams":[{"name":"samsara","type":"samsara","health":"up","queued":7,"queuedBytes":1234,"#
                + #""oldestQueuedAt":"2026-01-31T12:00:00.000Z","kept":{"delivered":10,"failed":3,"cancelled":0,"#
                + #""dropped":0,"expired":0},"accepted":120,"ambiguousSends":0,"lastError":null}]}"#)
    }

    private func health(_ change: (inout UpstreamSummary) -> Void = { _ in }) throws -> String {
        let upstream = try summary(change)
        return report(upstream).health(of: upstream)
    }

    @Test func health_isThatOfTheAPI() throws {
        #expect(try health() == "up")
        #expect(try health { $0.circuit!.failures = 1 } == "degraded")
        #expect(try health { $0.circuit!.reopensAtMs = 1 } == "down")
        #expect(try health { ($0.circuit!.reopensAtMs, $0.circuit!.hold) = (1, "credentials") } == "unauthorized")
        #expect(try health { ($0.circuit!.hold, $0.pause) = ("credentials", Pause()) } == "paused")
        #expect(try health { ($0.circuit!.reopensAtMs, $0.circuit!.hold) = (1, "configuration") } == "misconfigured")
        #expect(try health { $0.circuit!.waitingEndpoints = ["/a"] } == "degraded")
        #expect(try health { $0.circuit!.obstacle = .missingSettings } == "unauthorized")
        #expect(try health { $0.circuit!.obstacle = .disabled } == "disabled")
        #expect(try health { $0.circuit!.token = .init(failures: 1, credentialsRefused: false) } == "down")
        #expect(try health { $0.circuit!.token = .init(failures: 1, credentialsRefused: true) } == "unauthorized")
        let validUntil = (Self.noon + .seconds(1)).milliseconds
        #expect(
            try health {
                $0.circuit!.token = .init(failures: 1, credentialsRefused: true, validUntilMs: validUntil)
            } == "degraded")
        #expect(try health { $0.circuit = nil } == "unknown")
    }

    // MARK: Why it waits

    @Test func waiting_hasTheStrongestReason() throws {
        let later = Self.noon + .seconds(5)
        let due = record { $0.facts.nextAttemptAt = later }
        let retry = record { ($0.facts.nextAttemptAt, $0.facts.isRetry) = (later, true) }
        let down = try summary { $0.circuit!.reopensAtMs = (later + .seconds(1)).milliseconds }
        let refused = try summary {
            ($0.circuit!.reopensAtMs, $0.circuit!.hold) = (later.milliseconds, "credentials")
        }
        #expect(try report(summary()).waitStatus(of: record()).waitingFor == nil)
        #expect(try report(summary()).waitStatus(of: due).waitingFor == .schedule)
        #expect(try report(summary()).waitStatus(of: retry).waitingFor == .retry)
        #expect(report(down).waitStatus(of: retry).waitingFor == .circuit)
        #expect(report(down).waitStatus(of: retry).nextAttemptAt == later + .seconds(1))
        #expect(report(refused).waitStatus(of: record()).waitingFor == .credentials)
        #expect(try report(summary { $0.pause = Pause() }).waitStatus(of: retry).waitingFor == .pause)
    }

    /// The most specific reason comes first, as in the API.
    @Test func parkedLane_waitsForItsToken_whateverTheCircuit() throws {
        let parked = record {
            ($0.facts.isParked, $0.facts.isRetry, $0.facts.nextAttemptAt) = (true, true, Self.noon + .seconds(5))
        }
        let held = record { ($0.facts.laneWaitsFor, $0.facts.laneWaitsUntil) = (.circuit, Self.noon + .seconds(9)) }
        let down = try summary { $0.circuit!.reopensAtMs = (Self.noon + .seconds(60)).milliseconds }
        #expect(report(down).waitStatus(of: parked) == WaitStatus(waitingFor: .token))
        #expect(report(down).waitStatus(of: held).nextAttemptAt == Self.noon + .seconds(9))
    }

    @Test func whatIsDue_waitsForNothing() throws {
        let due = record { ($0.facts.nextAttemptAt, $0.facts.isRetry) = (Self.noon, true) }
        #expect(try report(summary()).waitStatus(of: due).waitingFor == nil)
    }

    @Test func settledMessage_waitsForNothing_whateverItsUpstream() throws {
        let failed = record { $0.state = .failed }
        #expect(try report(summary { $0.pause = Pause() }).waitStatus(of: failed) == .init())
    }

    // MARK: list, show, export

    @Test func list_saysWhy_andShowsNoPayload() throws {
        let failed = record {
            $0.state = .failed
            $0.attempts = 2
            $0.settledAt = Self.noon + .seconds(1)
            $0.lastError = AttemptError(.refused, status: 400, detail: "no", at: Self.noon)
            $0.payload = Array("secret".utf8)
        }
        #expect(
            try report(summary()).list([failed]) == """
                ID             UPSTREAM  KIND   STATE   ATTEMPTS  CREATED                   SINCE OR UNTIL            WHY
                \(id)  samsara   event  failed         2  2026-01-31T12:00:00.000Z  2026-01-31T12:00:01.000Z  HTTP 400 from samsara
                """)
    }

    /// A message that was never sent has no error of its own.
    @Test func heldUpstream_isExplained_inStatsAndInTheList() throws {
        let error = AttemptError(.unauthorized, status: 401, detail: "HTTP 401", at: Self.noon)
        let held = try summary {
            ($0.circuit!.reopensAtMs, $0.circuit!.hold) = ((Self.noon + .seconds(9)).milliseconds, "credentials")
            $0.circuit!.lastError = error
        }
        #expect(report(held).list([record()]).hasSuffix("waits for credentials: HTTP 401 from samsara"))
        #expect(report(held).stats().hasSuffix("HTTP 401 from samsara"), "\(report(held).stats())")
        #expect(report(held).statsJSON().contains(#""lastError":{"class":"unauthorized","status":401,"#))
        let unset = try summary { $0.circuit!.obstacle = .missingSettings }
        #expect(report(unset).list([record()]).hasSuffix("waits for credentials: settings are missing"))
        #expect(report(unset).stats().hasSuffix("settings are missing"))
        let unreachable = try summary {
            $0.circuit!.reopensAtMs = (Self.noon + .seconds(9)).milliseconds
            $0.circuit!.lastError = AttemptError(.unreachable, detail: "refused", at: Self.noon)
        }
        #expect(report(unreachable).list([record()]).hasSuffix("waits for circuit: unreachable"))
        // An error that is over.
        let works = try summary { $0.circuit!.lastError = error }
        #expect(report(works).list([record()]).hasSuffix("  -"))
    }

    @Test func listJSON_isThatOfTheAPI() throws {
        #expect(
            try report(summary()).listJSON([record()], next: MessageCursor(id, in: .oldest))
                == #"{"messages":[{"id":"\#(id)","upstream":"samsara","kind":"event","state":"queued","key":null,"via":null,"lane":null,"#
                + #""attempts":0,"createdAt":"2026-01-31T12:00:00.000Z","nextAttemptAt":null,"settledAt":null,"#
                + #""waitingFor":null,"lastError":null,"result":null}],"next":"\#(id)"}"#)
    }

    @Test func show_leavesOutWhatThereIsNot_andThePayloadUnlessAsked() throws {
        let message = record {
            $0.key = "k"
            $0.payload = Array(#"{"a":1}"#.utf8)
        }
        let attempt = AttemptRow(
            batch: BatchID(rawValue: 9), startedAt: Self.noon, endedAt: nil, outcome: nil, status: nil, detail: nil,
            messages: 3)
        let text = try report(summary()).message(message, attempts: [attempt], showsPayload: false)
        #expect(
            text == """
                id            \(id)
                upstream      samsara
                kind          event
                state         queued
                key           k
                attempts      0
                created       2026-01-31T12:00:00.000Z

                BATCH  STARTED                   ENDED  OUTCOME    STATUS  MESSAGES  DETAIL
                    9  2026-01-31T12:00:00.000Z  -      under way       -         3
                """)
        let full = try report(summary()).message(message, attempts: [], showsPayload: true)
        #expect(full.hasSuffix("\npayload       {\"a\":1}"))
    }

    @Test func exportedPayload_staysOnOneLine() throws {
        let message = record { $0.payload = Array("{\r\n  \"a\": \"x\\ny\"\n}".utf8) }
        let line = try report(summary()).exportLine(message)
        #expect(line.hasSuffix(#""result":null,"payload":{    "a": "x\ny" }}"#))
        #expect(!line.utf8.contains(UInt8(ascii: "\n")))
    }

    /// It is looked at in a terminal, and imported byte for byte.
    @Test(arguments: [
        "{\"a\":\"\u{9b}2J\u{202e}\"}", "{\"a\":\"\u{9b}\\u009b\\u009B\"}", "{\n\"\u{85}\":1}", "{\"a\":\"\u{e9}\"}",
    ])
    func exportedPayload_isEscaped_andImportedAsItWas(payload: String) throws {
        let message = record { $0.payload = Array(payload.utf8) }
        let line = try report(summary()).exportLine(message)
        let isPrintable = line.printable() == line
        #expect(isPrintable, "\(line)")
        let isEscaped = payload.printableJSON() != payload
        #expect(line.contains("payloadBase64") == isEscaped)
        let envelope = "{\"upstream\":\"samsara\",\"kind\":\"event\",\"payload\":"
        let expected = Array((envelope + payload.replacing("\n", with: " ") + "}").utf8)
        let imported = ImportLine(Array(line.utf8), state: .queued)
        #expect(imported == .envelope(expected))
    }

    @Test(arguments: ["%", "bm90IEpTT04=", "MX0seyJhIjox", "MQox"])
    func payloadThatIsNotJSON_isNotImported(base64: String) {
        let line = #"{"upstream":"s","kind":"e","payload":1,"payloadBase64":"\#(base64)"}"#
        guard case .invalid = ImportLine(Array(line.utf8), state: .queued) else {
            return #expect(Bool(false), "\(base64)")
        }
    }

    // MARK: audit

    private func account(findings: [String]) -> Audit.Account {
        var ledger = Ledger()
        (ledger.accepted, ledger.queued, ledger.delivered, ledger.purged.delivered) = (5, 2, 3, 1)
        return Audit.Account(
            upstream: "samsara", ledger: ledger, rows: [.queued: 2, .delivered: 2], findings: findings)
    }

    @Test func audit_showsTheLedger_andExitsWith0_whenBalanced() {
        let report = AuditReport(Audit(accounts: [account(findings: [])]))
        #expect(
            report.text == """
                UPSTREAM  ACCEPTED  QUEUED  DELIVERED  FAILED  CANCELLED  DROPPED  EXPIRED  REMOVED  VERDICT
                samsara          5       2          3       0          0        0        0        1  balanced
                """)
        #expect(report.exitCode == 0)
        #expect(
            report.json.hasPrefix(#"{"balanced":true,"upstreams":[{"name":"samsara","balanced":true,"accepted":5,"#))
    }

    @Test func audit_namesWhatDoesNotAgree_andExitsWith1() {
        let report = AuditReport(Audit(accounts: [account(findings: ["one is lost"])]))
        #expect(report.text.contains("NOT BALANCED\nsamsara: one is lost"))
        #expect(report.json.hasSuffix(#""findings":["one is lost"]}]}"#))
        #expect(report.exitCode == 1)
    }
}
