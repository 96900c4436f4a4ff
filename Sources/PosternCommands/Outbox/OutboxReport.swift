import Foundation
import PosternAPI
import PosternCore
import PosternDelivery
import PosternProcess
import PosternStore
import PosternUpstream

/// What `postern outbox` shows: text for people, or JSON for programs, in the shapes that `docs/cli.md` describes.
///
/// Shows a payload only if it was requested.
struct OutboxReport: Sendable {
    let summaries: [UpstreamSummary]
    private let upstreams: [UpstreamName: AnyUpstream]
    let now: Timestamp

    /// `summary`: of the same store as what is to be shown. `upstreams`: those that are configured, if that is known.
    init(summaries: [UpstreamSummary], upstreams: [AnyUpstream] = [], now: Timestamp) {
        self.summaries = summaries
        self.upstreams = Dictionary(upstreams.map { ($0.name, $0) }) { first, _ in first }
        self.now = now
    }

    // MARK: stats

    /// A table with one row per upstream.
    func stats() -> String {
        var table = TextTable(
            ["UPSTREAM", "HEALTH", .number("QUEUED"), .number("BYTES"), "OLDEST"]
                + MessageState.settled.map { .number($0.name.uppercased()) } + [.number("ACCEPTED"), "WHY"])
        for upstream in summaries {
            let ledger = upstream.ledger
            table.add(
                [
                    "\(upstream.name)", health(of: upstream), "\(ledger.queued)", "\(ledger.queuedBytes)",
                    upstream.oldestQueuedAt?.description ?? "-",
                ] + MessageState.settled.map { "\(ledger.kept[$0])" } + [
                    "\(ledger.accepted)", health(of: upstream) == "up" ? "-" : Self.reason(upstream) ?? "-",
                ])
        }
        return table.text
    }

    /// One JSON object with one element per upstream.
    func statsJSON() -> String {
        JSONWriter.object { json in
            json.raw("upstreams", JSONWriter.array(summaries.map(json(of:))))
        }
    }

    private func json(of upstream: UpstreamSummary) -> String {
        let ledger = upstream.ledger
        return JSONWriter.object { json in
            json.string("name", upstream.name.description)
            json.string("type", upstream.type)
            json.string("health", health(of: upstream))
            json.number("queued", ledger.queued)
            json.number("queuedBytes", ledger.queuedBytes)
            json.time("oldestQueuedAt", upstream.oldestQueuedAt)
            LedgerJSON.writeKept(ledger, into: &json)
            json.number("accepted", ledger.accepted)
            json.number("ambiguousSends", ledger.ambiguousSends)
            json.raw("lastError", upstream.circuit?.lastError.map(MessageJSON.error) ?? "null")
        }
    }

    // MARK: list, show, export

    /// A table with one row per message, in the given order.
    func list(_ messages: [MessageRecord]) -> String {
        var table = TextTable([
            "ID", "UPSTREAM", "KIND", "STATE", .number("ATTEMPTS"), "CREATED", "SINCE OR UNTIL", "WHY",
        ])
        for record in messages {
            let waitStatus = waitStatus(of: record)
            table.add([
                "\(record.id)", record.upstream, "\(record.kind)", record.state.name, "\(record.attempts)",
                "\(record.acceptedAt)", (record.settledAt ?? waitStatus.nextAttemptAt)?.description ?? "-",
                why(record, waitStatus),
            ])
        }
        return table.text
    }

    private func why(_ record: MessageRecord, _ waitStatus: WaitStatus) -> String {
        let waiting = waitStatus.waitingFor.map { "waits for \($0.rawValue)" }
        // A message that was never sent waits for what happened to others.
        let isHeld = waitStatus.waitingFor == .credentials || waitStatus.waitingFor == .circuit
        let upstream = summaries.first { $0.number == record.id.upstream }
        let reason =
            record.lastError.map { Self.words($0, from: record.upstream) }
            ?? (isHeld ? upstream.flatMap(Self.reason) : nil)
        let words = [waiting, reason].compactMap { $0 }
        return words.isEmpty ? "-" : words.joined(separator: ": ")
    }

    /// `HTTP 401 from seer`, or the class of an error without a status.
    private static func words(_ error: AttemptError, from upstream: String) -> String {
        error.status.map { "HTTP \($0) from \(upstream)" } ?? error.errorClass.rawValue
    }

    /// Why an upstream is not sent to, or why the last request failed; nil if nothing is wrong.
    private static func reason(_ upstream: UpstreamSummary) -> String? {
        guard let circuit = upstream.circuit else { return nil }
        if circuit.obstacle == .missingSettings { return "settings are missing" }
        return circuit.lastError.map { words($0, from: upstream.name.description) }
    }

    /// One page in the form of the API; `next` is the cursor of the next one, nil at the end.
    public func listJSON(_ messages: [MessageRecord], next: MessageCursor?) -> String {
        JSONWriter.object { json in
            json.raw(
                "messages", JSONWriter.array(messages.map { MessageJSON.message($0, waitStatus: waitStatus(of: $0)) }))
            json.string("next", next?.description)
        }
    }

    /// One message with all of its attempts; the payload only with `showsPayload`.
    func message(_ record: MessageRecord, attempts: [AttemptRow], showsPayload: Bool) -> String {
        let waitStatus = waitStatus(of: record)
        var lines: [(String, String?)] = [
            ("id", "\(record.id)"), ("upstream", record.upstream), ("kind", "\(record.kind)"),
            ("state", record.state.name), ("key", record.key),
            ("via", MessageJSON.via(isFromSDK: record.isFromSDK)), ("lane", record.laneText),
            ("attempts", "\(record.attempts)"),
            ("created", "\(record.acceptedAt)"), ("waits for", waitStatus.waitingFor?.rawValue),
            ("next attempt", waitStatus.nextAttemptAt?.description), ("settled", record.settledAt?.description),
        ]
        if let error = record.lastError {
            let status = error.status.map { ", status \($0)" } ?? ""
            lines.append(("last error", "\(error.errorClass)\(status): \(error.detail)"))
            lines.append(("", "at \(error.at)"))
        }
        lines.append(("result", record.result.map { MessageJSON.result($0) }))
        if showsPayload {
            lines.append(("payload", record.payload.map { String(decoding: $0, as: UTF8.self) } ?? "not kept"))
        }
        var text = lines.compactMap { name, value in
            value.map {
                name + String(repeating: " ", count: 14 - name.count) + $0.printable(keepsLineBreaks: name == "payload")
            }
        }.joined(separator: "\n")
        if !attempts.isEmpty { text += "\n\n" + table(of: attempts) }
        return text
    }

    private func table(of attempts: [AttemptRow]) -> String {
        var table = TextTable([
            .number("BATCH"), "STARTED", "ENDED", "OUTCOME", .number("STATUS"), .number("MESSAGES"), "DETAIL",
        ])
        for attempt in attempts {
            table.add([
                "\(attempt.batch)", "\(attempt.startedAt)", attempt.endedAt?.description ?? "-",
                attempt.outcome ?? "under way", attempt.status.map(String.init) ?? "-", "\(attempt.messages)",
                attempt.detail ?? "",
            ])
        }
        return table.text
    }

    /// As the API shows it with `include=attempts`.
    func messageJSON(_ record: MessageRecord, attempts: [AttemptRow], showsPayload: Bool) -> String {
        MessageJSON.message(record, waitStatus: waitStatus(of: record), attempts: attempts, showsPayload: showsPayload)
    }

    /// One line of NDJSON: as the API shows it with `include=payload`, and `notBefore` and `expiresAt` if a queued message
    /// has them. Line breaks between the tokens of a payload become blanks; inside its strings there are none (RFC 8259,
    /// section 7).
    ///
    /// Control characters beyond ASCII are escaped, since such lines are looked at in terminals. A payload with some of
    /// them is there a second time, as `payloadBase64`, so that an import queues the very bytes.
    func exportLine(_ record: MessageRecord) -> String {
        let message = MessageJSON.message(record, waitStatus: waitStatus(of: record), showsPayload: true)
        var line = Self.onOneLine(message.utf8).printableJSON()
        func add(_ name: String, _ text: String) {
            line.removeLast()
            line += ",\"\(name)\":\"\(text)\"}"
        }
        for (name, time) in [("notBefore", record.notBefore), ("expiresAt", record.expiresAt)] {
            if let time { add(name, "\(time)") }
        }
        let payload = Self.onOneLine(record.payload ?? [])
        if payload.printableJSON() != payload { add("payloadBase64", Data(payload.utf8).base64EncodedString()) }
        return line
    }

    private static func onOneLine(_ text: some Sequence<UInt8>) -> String {
        let bytes = text.map { $0 == UInt8(ascii: "\n") || $0 == UInt8(ascii: "\r") ? UInt8(ascii: " ") : $0 }
        return String(decoding: bytes, as: UTF8.self)
    }

    // MARK: lanes

    /// A lane, and why it waits.
    typealias WaitingLane = (lane: LaneRecord, wait: WaitStatus)

    /// Nil if the lane does not wait.
    func waiting(_ lane: LaneRecord, of upstream: UpstreamSummary) -> WaitingLane? {
        snapshot(of: upstream).wait(of: lane, now: now).map { (lane, $0) }
    }

    func lanes(_ lanes: [WaitingLane]) -> String {
        var table = TextTable(["LANE", "KEY", "STATE", "REASON", "SINCE", "UNTIL", .number("QUEUED"), "OLDEST"])
        for (lane, wait) in lanes {
            table.add([
                lane.text, lane.key ?? "-", lane.state.rawValue, wait.waitingFor?.rawValue ?? "-",
                "\(lane.since)", wait.nextAttemptAt?.description ?? "-",
                "\(lane.queued)" + (lane.isCountComplete ? "" : "+"), "\(lane.oldestAt)",
            ])
        }
        return table.text
    }

    /// As the API shows them.
    func lanesJSON(_ lanes: [WaitingLane], next: Int64?) -> String {
        LaneJSON.page(lanes.map { LaneJSON.lane($0.lane, $0.wait) }, next: next)
    }

    // MARK: Health, and why something waits: by the rules of the API, from what the store holds

    /// `unknown` if the stored health record is not valid.
    func health(of upstream: UpstreamSummary) -> String {
        UpstreamSnapshot(stored: upstream, now: now)?.health.rawValue ?? "unknown"
    }

    func waitStatus(of record: MessageRecord) -> WaitStatus {
        guard record.state == .queued else { return WaitStatus() }
        let upstream = summaries.first { $0.number == record.id.upstream }.map(snapshot) ?? .disabled
        var facts = record.facts
        if let wait = wait(of: record.kind, for: record.id.upstream) { facts.add(wait) }
        return upstream.wait(of: facts, now: now) { record.isHeldUp }
    }

    /// The configured upstream with that number in the store.
    func upstream(_ number: UpstreamNumber) -> AnyUpstream? {
        summaries.first { $0.number == number }.flatMap { upstreams[$0.name] }
    }

    /// Why messages of a kind wait, if rows do not say so. The time is only known to the gateway.
    func wait(of kind: Kind, for number: UpstreamNumber) -> KindWait? {
        guard let summary = summaries.first(where: { $0.number == number }), let upstream = upstream(number) else {
            return nil
        }
        return snapshot(of: summary).wait(of: kind, for: upstream)
    }

    private func snapshot(of upstream: UpstreamSummary) -> UpstreamSnapshot {
        UpstreamSnapshot(stored: upstream, now: now) ?? UpstreamSnapshot()
    }
}

extension MessageRecord {
    /// The `notBefore` that its sender gave, while it is still scheduled.
    fileprivate var notBefore: Timestamp? {
        state == .queued && !facts.isRetry ? facts.nextAttemptAt : nil
    }
}
