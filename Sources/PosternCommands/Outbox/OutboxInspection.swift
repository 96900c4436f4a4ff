import PosternAPI
public import PosternCore
import PosternDelivery
import PosternProcess
public import PosternStore

/// Reads a store, with or without a running gateway, and reports its contents.
public struct OutboxInspection: Sendable {
    private let view: StoreView
    private let summaries: [UpstreamSummary]
    private let report: OutboxReport

    private static let pageSize = 500

    /// `now` decides whether a message that is due later still waits.
    public init(_ location: StoreLocation, now: Timestamp) throws(CommandFailure) {
        let view = try onStore { () throws(StoreError) in try StoreView(location.options, now: now) }
        summaries = try onStore { () throws(StoreError) in try view.summaries() }
        self.view = view
        report = OutboxReport(summaries: summaries, upstreams: location.upstreams, now: now)
    }

    /// Without a configuration, mixed lanes are shown as digests.
    private func laneNames() -> LaneNames {
        LaneNames(upstream: report.upstream, message: { [view] in try? view.message($0, payload: true) })
    }

    /// The counts and the health of every upstream.
    public func stats(asJSON: Bool) -> String { asJSON ? report.statsJSON() : report.stats() }

    /// Counts every row on one snapshot, which takes seconds for millions of rows.
    public func audit() throws(CommandFailure) -> AuditReport {
        AuditReport(try onStore { () throws(StoreError) in try view.audit() })
    }

    /// `id` may be any text: one that is not a valid id matches no message.
    public func show(_ id: String, payload: Bool, asJSON: Bool) throws(CommandFailure) -> String {
        let record = try onStore { () throws(StoreError) in
            try MessageID(id).flatMap { (id) throws(StoreError) in try view.message(id, payload: payload) }
        }
        guard var record else {
            throw CommandFailure(
                CommandFailure.no,
                "There is no message \(id.printable()): it was never accepted here, or is no longer kept.")
        }
        var names = laneNames()
        record = names.adding(to: record)
        let id = record.id
        let attempts = try onStore { () throws(StoreError) in try view.attempts(of: id) }
        return asJSON
            ? report.messageJSON(record, attempts: attempts, showsPayload: payload)
            : report.message(record, attempts: attempts, showsPayload: payload)
    }

    /// Up to `limit` messages after `cursor`, in that order; `next` is the cursor of what follows, nil at the end.
    /// `reason`: only queued messages that wait for it; nil means that this does not matter.
    public func list(
        _ filter: MessageFilter, waitingFor reason: WaitReason? = nil, order: MessageOrder = .oldest,
        after cursor: MessageID?, limit: Int, asJSON: Bool
    ) throws(CommandFailure) -> (text: String, next: MessageCursor?) {
        var filter = filter
        if reason != nil { filter.state = filter.state ?? .queued }
        var messages: [MessageRecord] = []
        var last = cursor
        repeat {
            let room = limit - messages.count
            let page = try self.page(
                filter, order: order, after: last, limit: reason == nil ? min(room, Self.pageSize) : Self.pageSize)
            let found = reason.map { reason in
                page.messages.filter { report.waitStatus(of: $0).waitingFor == reason }
            }
            messages += (found ?? page.messages).prefix(room)
            last = found.map { $0.count > room } == true ? messages.last?.id : page.next
        } while last != nil && messages.count < limit
        let next = last.map { MessageCursor($0, in: order) }
        guard asJSON else { return (report.list(messages), next) }
        var names = laneNames()
        return (report.listJSON(messages.map { names.adding(to: $0) }, next: next), next)
    }

    /// Up to `limit` lanes of an upstream that wait, after `cursor`; `next` is the cursor of what follows, nil at the
    /// end.
    public func lanes(
        of name: UpstreamName, in state: LaneRecord.State?, after cursor: Int64?, limit: Int, asJSON: Bool
    ) throws(CommandFailure) -> (text: String, next: Int64?) {
        let upstream = try summaries.upstream(name)
        var found: [OutboxReport.WaitingLane] = []
        var next = cursor
        repeat {
            let page = try onStore { () throws(StoreError) in
                try view.lanes(
                    of: upstream.number, in: state, after: next, limit: limit - found.count,
                    waits: { report.wait(of: $0, for: upstream.number) }
                ) {
                    report.waiting($0, of: upstream)
                }
            }
            found += page.lanes
            next = page.next
        } while next != nil && found.count < limit
        var names = laneNames()
        found = found.map { (lane: names.adding(to: $0.lane), wait: $0.wait) }
        return (asJSON ? report.lanesJSON(found, next: next) : report.lanes(found), next)
    }

    /// Hands each message after `cursor`, payload included, to `write` as one line of NDJSON. Holds one page in memory.
    public func export(
        _ filter: MessageFilter, after cursor: MessageID? = nil, _ write: (String) throws(CommandFailure) -> Void
    ) throws(CommandFailure) {
        var next = cursor
        repeat {
            let page = try self.page(filter, after: next, limit: Self.pageSize, payload: true)
            var names = laneNames()
            for record in page.messages { try write(report.exportLine(names.adding(to: record))) }
            next = page.next
        } while next != nil
    }

    private func page(
        _ filter: MessageFilter, order: MessageOrder = .oldest, after cursor: MessageID?, limit: Int,
        payload: Bool = false
    ) throws(CommandFailure) -> (messages: [MessageRecord], next: MessageID?) {
        if let upstream = filter.upstream { _ = try summaries.upstream(upstream) }
        return try onStore { () throws(StoreError) in
            try view.messages(filter, order: order, after: cursor, limit: limit, payload: payload)
        }
    }
}
