import PosternCore
import PosternStore
import PosternUpstream
import Testing
import WebhookAdapter

@testable import PosternDelivery

/// Why a message waits, and until when.
@Suite struct WaitStatusTests {
    private static let now = Timestamp(milliseconds: 1_000_000)
    private static let soon = now + .seconds(5)
    private static let later = now + .seconds(60)

    struct Row: Sendable {
        let name: String
        var snapshot = UpstreamSnapshot()
        var facts = QueuedFacts()
        var isHeldUp = false
        let expected: WaitStatus
    }

    private static func row(
        _ name: String, _ reason: WaitReason?, _ next: Timestamp? = nil, isHeldUp: Bool = false,
        _ change: (inout UpstreamSnapshot, inout QueuedFacts) -> Void
    ) -> Row {
        var row = Row(
            name: name, isHeldUp: isHeldUp, expected: WaitStatus(waitingFor: reason, nextAttemptAt: next))
        change(&row.snapshot, &row.facts)
        return row
    }

    static let rows: [Row] = [
        row("ready", nil) { _, _ in },
        row("in flight, while the circuit is open", nil) {
            $1.isInFlight = true; $0.circuit = .open(until: later)
        },
        row("paused", .pause) {
            $0.pause = Pause(); $1.nextAttemptAt = soon
        },
        row("settings are missing", .credentials) { snapshot, _ in snapshot.hold = .credentials },
        row("parked", .token) {
            $1.isParked = true
            ($1.nextAttemptAt, $1.isRetry) = (soon, true)
        },
        row("its endpoint waits", .circuit, later) {
            $1.laneWaitsFor = .circuit; $1.laneWaitsUntil = later
        },
        row("its plan waits for an event", .schedule) {
            $1.laneWaitsFor = .schedule; $1.laneWaitsUntil = .never
        },
        row("behind a suspect", .order, isHeldUp: true) { snapshot, _ in snapshot.circuit = .open(until: later) },
        row("circuit open", .circuit, later) { snapshot, _ in snapshot.circuit = .open(until: later) },
        row("own retry after the circuit reopens", .circuit, later) {
            $0.circuit = .open(until: soon)
            $1.nextAttemptAt = later
            $1.isRetry = true
        },
        row("probe in flight", .circuit) { snapshot, _ in snapshot.circuit = .halfOpen },
        row("held for credentials", .credentials, later) {
            $0.circuit = .open(until: later)
            $0.hold = .credentials
            $1.isRetry = true
        },
        row("retry", .retry, soon) {
            $1.nextAttemptAt = soon; $1.isRetry = true
        },
        row("schedule", .schedule, soon) { $1.nextAttemptAt = soon },
        row("schedule, behind another message in flight", .schedule, soon, isHeldUp: true) { $1.nextAttemptAt = soon },
        row("schedule, of an upstream that is held", .schedule, soon) {
            ($0.circuit, $0.hold) = (.open(until: later), .credentials)
            ($1.nextAttemptAt, $1.laneWaitsFor, $1.laneWaitsUntil) = (soon, .credentials, later)
        },
        row("schedule, of an upstream without settings", .schedule, soon) {
            $0.hold = .credentials; $1.nextAttemptAt = soon
        },
        row("schedule that is over, behind another message", .order, isHeldUp: true) {
            $1.nextAttemptAt = Timestamp(milliseconds: 1)
        },
        row("time in the past", nil) { $1.nextAttemptAt = Timestamp(milliseconds: 1) },
        row("no token yet", .token) { snapshot, _ in snapshot.token = .init(isValid: false) },
        row("token fetch failed", .token, soon) { snapshot, _ in
            snapshot.token = .init(isValid: false, failures: 1, retryAt: soon)
        },
        row("credentials rejected", .credentials, later) { snapshot, _ in
            snapshot.token = .init(isValid: false, failures: 1, credentialsRefused: true, retryAt: later)
        },
    ]

    @Test(arguments: rows) func reasonAndTime_areTheTrueOnes(row: Row) {
        let status = row.snapshot.wait(of: row.facts, now: Self.now) { row.isHeldUp }
        #expect(status == row.expected, "\(row.name)")
    }

    /// The rows of a mixed queue say nothing of it.
    @Test func kindOfAMixedQueue_waitsForItsEndpoint_orUntilItIsConfigured() throws {
        let kinds = SettingValue.objects(["a": [:], "b": ["path": "/b"]])
        let upstream = AnyUpstream(
            try UpstreamType.webhook.make(#require(UpstreamName("w")), ["url": .text("http://h"), "kinds": kinds]))
        var snapshot = UpstreamSnapshot()
        snapshot.endpoints = [.init(name: "POST http://h/b", waitingFor: .credentials, until: Self.soon)]
        #expect(snapshot.wait(of: "b", for: upstream) == KindWait(.credentials, until: Self.soon))
        #expect(snapshot.wait(of: "a", for: upstream) == nil)
        #expect(snapshot.wait(of: "gone", for: upstream) == KindWait(.credentials, until: nil))
        // The time of the whole upstream is then the true one.
        snapshot.circuit = .open(until: Self.later)
        #expect(snapshot.wait(of: "b", for: upstream) == nil)
    }
}
