import Dispatch
import PosternCore
import PosternHTTP
import PosternStore
import Synchronization

/// An answer that is held until its messages are settled (`Prefer: wait=N`), or the time is over.
final class WaitingAnswer: Sendable {
    private struct State {
        var open: Set<MessageID>
        var settled: [MessageID: SettledNotice] = [:]
        var isAnswered = false
    }
    private let order: Order
    private let receipt: AppendReceipt
    private let reply: Reply
    private let gateway: Gateway
    private let state: Mutex<State>

    private init(_ order: Order, _ receipt: AppendReceipt, _ reply: Reply, _ gateway: Gateway) {
        self.order = order
        self.receipt = receipt
        self.reply = reply
        self.gateway = gateway
        state = Mutex(State(open: Set(receipt.ids)))
    }

    /// Call from the completion of the append: nothing can be settled before that returns.
    static func hold(
        _ order: Order, _ receipt: AppendReceipt, seconds: Int, _ reply: Reply, _ gateway: Gateway
    ) {
        let answer = WaitingAnswer(order, receipt, reply, gateway)
        for id in receipt.ids { gateway.outbox.whenSettled(id) { answer.settled($0) } }
        DispatchQueue.global().asyncAfter(deadline: .now() + .seconds(seconds)) { answer.timeIsOver() }
    }

    private func settled(_ notice: SettledNotice) {
        let all: [MessageID: SettledNotice]? = state.withLock { state in
            state.open.remove(notice.id)
            state.settled[notice.id] = notice
            guard state.open.isEmpty, !state.isAnswered else { return nil }
            state.isAnswered = true
            return state.settled
        }
        guard let all else { return }
        // Off the writer's thread: the answer reads the store.
        DispatchQueue.global().async { [self] in reply.send(final(all)) }
    }

    private func timeIsOver() {
        let isLate: Bool = state.withLock { state in
            guard !state.isAnswered else { return false }
            state.isAnswered = true
            return true
        }
        guard isLate else { return }
        gateway.outbox.stopWaiting(for: receipt.ids)
        reply.send(order.accepted(receipt.ids, evicted: receipt.evicted))
    }

    private func final(_ settled: [MessageID: SettledNotice]) -> HTTPResponse {
        let headers = order.preferences.applied.map { [(name: "Preference-Applied", value: $0)] } ?? []
        if order.isSingle, let id = receipt.ids.first, let notice = settled[id] {
            return single(notice, headers: headers)
        }
        let results = receipt.ids.compactMap { settled[$0] }.map { notice in
            JSONText.object { json in
                json.string("id", notice.id.description)
                json.string("state", notice.state.name)
                if let error = notice.error { json.raw("lastError", MessageText.error(error)) }
                if let result = notice.result { json.raw("result", MessageText.result(result)) }
            }
        }
        return .json(
            200, JSONText.object { json in
                json.number("accepted", receipt.ids.count)
                json.raw("messages", JSONText.array(results))
            }, headers: headers)
    }

    private func single(_ notice: SettledNotice, headers: [(name: String, value: String)]) -> HTTPResponse {
        guard notice.state == .failed || notice.state == .expired else {
            var text = MessageText.notice(notice, order)
            if let record = try? gateway.outbox.message(notice.id) {
                text = MessageText.message(record, gateway: gateway)
            }
            return .json(200, text, headers: headers)
        }
        var members: [(name: String, json: String)] = [("messageId", JSONEscapes.quoted(notice.id.description))]
        if let error = notice.error { members.append(("lastError", MessageText.error(error))) }
        if let status = notice.error?.status { members.append(("upstreamStatus", String(status))) }
        let problem = Problem(
            slug: .deliveryFailed, status: 502,
            detail: notice.error.map { "The upstream refused the message: \($0.detail). It is kept as failed." }
                ?? "The message could not be delivered in its time.",
            members: members, headers: headers)
        return problem.response(to: reply.head)
    }
}
