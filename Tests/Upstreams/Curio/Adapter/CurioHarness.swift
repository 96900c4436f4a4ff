import Foundation
import PosternConformance
import PosternCore
import PosternMachineDriver
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import CurioAdapter

/// An upstream of type `curio` with a queue, a state and a clock, and the delivery machine: enough to play a visitor's
/// traffic without a store or a socket.
struct CurioHarness {
    var upstream: AnyUpstream
    var state = DictionaryState()
    var now = Timestamp(milliseconds: CurioSample.fresh)
    var queue: [Message] = []
    /// The requests that were sent, in order.
    var sent: [UpstreamRequest] = []
    /// The messages that were settled, and how.
    var settled: [(id: MessageID, state: MessageState)] = []
    var lastVerdict: Verdict?
    var notices: [String] = []
    var flushedThrough: MessageID?
    /// The sizes of the batches that are sent again unchanged, oldest first.
    private var pieces: [Int] = []
    private var sequence: Int64 = 1000
    /// Identities of records that were stored, with the ids of their messages.
    private var known: [[UInt8]: MessageID] = [:]
    /// Those that were stored as failed when they were accepted, and why.
    var failures: [(kind: Kind, detail: String)] = []

    init(_ settings: [String: SettingValue] = [:]) throws {
        upstream = try UpstreamFixture.curio.make(settings)
    }

    // MARK: Accepting

    @discardableResult
    mutating func post(_ sample: UpstreamFixture.Sample) throws -> (id: MessageID, changes: [StateChange]) {
        sequence += 1
        let message = try UpstreamFixture.curio.validate(sample, to: upstream, at: now, sequence: sequence).message
        guard case .named(let lane, _) = message.lane else { preconditionFailure("each action has a lane") }
        state.queued[lane] = queue.filter { $0.lane == message.lane }.count
        let candidate = PendingMessage(
            id: message.id, kind: sample.kind, lane: message.lane, acceptedAt: now, payload: message.payload)
        let changes = try upstream.validate(candidate, against: state)
        state.apply(changes)
        queue.append(message)
        return (message.id, changes)
    }

    /// Stores what an SDK brings, as the store does: all of it or nothing.
    mutating func store(_ submission: SDKSubmission) -> SDKAnswer {
        let before = self
        do throws(AcceptanceError) {
            if let admission = submission.admission {
                // Lanes are counted when they are asked for.
                countLanes()
                let changes = try admission.decide(state)
                state.apply(changes)
                for case .draft(let draft) in changes { state.draft = draft }
            }
        } catch {
            self = before
            return submission.admission?.refusal(error) ?? SDKAnswer(500, .refused)
        }
        var (ids, repeated) = ([MessageID](), Set<Int>())
        for (index, item) in submission.items.enumerated() {
            if let id = item.identity.flatMap({ known[$0] }) {
                ids.append(id)
                repeated.insert(index)
                continue
            }
            sequence += 1
            var id = MessageID(sequence: sequence, upstream: UpstreamNumber(rawValue: 1))
            do throws(AcceptanceError) {
                if let former = try store(item, submission, as: id) {
                    repeated.insert(index)
                    id = former
                }
            } catch {
                if error.reason == .full {
                    self = before
                    return .dropped(.noRoom)
                }
                failures.append((item.kind, error.detail))
            }
            ids.append(id)
            if let identity = item.identity { known[identity] = id }
        }
        state.draft = nil
        return submission.answer(SDKReceipt(ids: ids, repeated: repeated))
    }

    private mutating func countLanes() {
        state.queued = [:]
        for case .named(let lane, _) in queue.map(\.lane) { state.queued[lane, default: 0] += 1 }
    }

    private mutating func store(
        _ item: SDKItem, _ submission: SDKSubmission, as id: MessageID
    ) throws(AcceptanceError) -> MessageID? {
        let valid: ValidPayload
        switch item.validation {
        case .success(let payload): valid = payload
        case .failure(let invalid):
            failures.append((item.kind, invalid.faults.text))
            return nil
        }
        countLanes()
        let payload = Array(submission.bytes[item.range])
        let candidate = PendingMessage(id: id, kind: item.kind, lane: valid.lane, acceptedAt: now, payload: payload)
        let changes = try upstream.validate(candidate, against: state)
        if case .repeats(let former)? = changes.first { return former }
        state.apply(changes)
        queue.append(Message(id: id, kind: item.kind, lane: valid.lane, acceptedAt: now, payload: payload))
        return nil
    }

    // MARK: Delivering

    enum Turn: Equatable {
        case sent, settled, idle
        case waits(until: Timestamp)
    }

    /// Plans the first messages and plays the response; `answer` is nil for one that is lost.
    @discardableResult
    mutating func turn(_ answer: (UpstreamRequest) throws -> UpstreamResponse?) throws -> Turn {
        guard let lane = queue.first?.lane else { return .idle }
        let own = queue.filter { $0.lane == lane }
        let claimed = Array(own.prefix(pieces.first ?? 250))
        if case .named(let name, _) = lane { state.queued[name] = own.count }
        switch upstream.plan(for: claimed, in: context) {
        case .wait(_, let until): return .waits(until: until)
        case .park: return .waits(until: .never)
        case .settle(let count, let end, _, _, let changes):
            state.apply(changes?(state) ?? [])
            settle(claimed.prefix(count), as: end)
            if !pieces.isEmpty { pieces.removeFirst() }
            return .settled
        case .send(let request, let count):
            guard case .send(request, count) = upstream.plan(for: claimed, in: context) else {
                preconditionFailure("plans are pure")
            }
            if !pieces.isEmpty { pieces.removeFirst() }
            sent.append(request)
            let carried = Array(claimed.prefix(count))
            let batch = Batch(id: BatchID(rawValue: Int64(sent.count)), messages: carried, request: request)
            guard let response = try answer(request) else {
                let lost = TransferFailure(.interrupted, mayHaveArrived: true, detail: "lost")
                follow(MachineDriver.settlement(.failure(lost), nil, of: batch, at: now))
                return .sent
            }
            // Long enough that a new plan would differ.
            now = now + .seconds(61)
            let decision = upstream.judge(.success(response), to: batch, in: context)
            let judgement = decision.judgement
            let changes = decision.changes?(state) ?? []
            now = now - .seconds(61)
            if let notice = judgement.notice { notices.append(notice.text) }
            state.apply(changes)
            lastVerdict = judgement.verdict
            follow(MachineDriver.settlement(.success(response), judgement, of: batch, at: now))
            return .sent
        }
    }

    private var context: PlanContext {
        PlanContext(now: now, token: nil, state: state, flushedThrough: flushedThrough)
    }

    private mutating func follow(_ settlement: Settlement) {
        settle(settlement.delivered[...], as: .delivered)
        for ended in settlement.ended { settle([ended.message], as: ended.state) }
        for index in queue.indices { queue[index].follow(settlement) }
        pieces = settlement.again.map(\.messages.count) + pieces
    }

    private mutating func settle(_ messages: ArraySlice<Message>, as state: MessageState) {
        let ids = Set(messages.map(\.id))
        settled += messages.map { ($0.id, state) }
        queue.removeAll { ids.contains($0.id) }
    }

    // MARK: Queries

    /// The summaries of the requests that were sent: the end of the URL, the session, and the code.
    var trace: [String] { sent.map(\.summary) }
}

extension UpstreamRequest {
    var path: String { String(url.dropFirst("https://curio.example.com/api/v2".count)) }

    var summary: String {
        let form = form
        return [path, form["sessionCode"], form["hitCode"] ?? form["eventCode"]].compactMap(\.self)
            .joined(separator: " ")
    }
}
