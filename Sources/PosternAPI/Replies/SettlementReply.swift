import PosternCore
import PosternHTTP
import PosternStore
import PosternThreads
import PosternUpstream
import Synchronization

/// A response that is held until its messages are settled (`Prefer: wait=N`).
final class SettlementReply: PendingReply {
    private struct State {
        var open: Set<MessageID>
        var settled: [MessageID: SettledNotice] = [:]
        var isAnswered = false
    }
    private let response: IngestResponse
    private let receipt: AppendReceipt
    private let responder: MeteredResponder
    private let context: APIContext
    private let state: Mutex<State>

    var ids: [MessageID] { receipt.ids }

    init(_ response: IngestResponse, _ receipt: AppendReceipt, _ responder: MeteredResponder, _ context: APIContext) {
        self.response = response
        self.receipt = receipt
        self.responder = responder
        self.context = context
        state = Mutex(State(open: Set(receipt.ids)))
    }

    func settled(_ notice: SettledNotice) -> Bool {
        let all: [MessageID: SettledNotice]? = state.withLock { state in
            state.open.remove(notice.id)
            state.settled[notice.id] = notice
            guard state.open.isEmpty, !state.isAnswered else { return nil }
            state.isAnswered = true
            return state.settled
        }
        guard let all else { return false }
        // Not on the writer's thread: the response reads the store.
        context.readers.run { [self] in responder.sendFinal(final(all)) }
        return true
    }

    func onHangUp(_ action: @escaping @Sendable () -> Void) { responder.onHangUp(action) }

    /// Sends what is known so far: accepted, and not settled yet.
    func finishNow() {
        let isLate: Bool = state.withLock { state in
            guard !state.isAnswered else { return false }
            state.isAnswered = true
            return true
        }
        if isLate { responder.send(response.accepted(receipt)) }
    }

    // MARK: When all are settled

    private func final(_ settled: [MessageID: SettledNotice]) -> HTTPResponse {
        if response.request.isSingle, let id = receipt.ids.first, let notice = settled[id] { return single(notice) }
        let notices = receipt.ids.compactMap { settled[$0] }
        var room = MessageHandler.pageBytes - Self.otherBytes
        let rejected = response.request.preferences.isLenient ? response.rejectionTexts : nil
        let shownRejected = rejected.map { Self.first(of: $0, within: room / 2) } ?? []
        room -= Self.bytes(of: shownRejected)
        let messages = Self.messages(of: notices, within: room)
        return .json(
            200,
            JSONWriter.object { json in
                json.number("accepted", receipt.ids.count)
                json.object("states") { states in
                    for state in MessageState.allCases {
                        let count = notices.count { $0.state == state }
                        if count > 0 { states.number(state.name, count) }
                    }
                }
                json.raw("messages", JSONWriter.array(messages))
                if messages.count < notices.count {
                    json.number("messagesOmitted", notices.count - messages.count)
                    json.string("next", rest(of: notices, after: messages.count))
                }
                guard let rejected else { return }
                json.raw("rejected", JSONWriter.array(shownRejected))
                let omitted = rejected.count - shownRejected.count
                if omitted > 0 { json.number("rejectedOmitted", omitted) }
            }, headers: response.preferenceApplied + IngestResponse.replay(receipt))
    }

    /// The bytes of the members that contain counts.
    private static let otherBytes = 512

    /// The list of the messages that are left out. One transaction has stored them, so no message of another request is
    /// among them, unless some had been stored before. Nil in that case, and for a key that cannot read the list.
    private func rest(of notices: [SettledNotice], after count: Int) -> String? {
        guard receipt.repeated.isEmpty, responder.caller?.key.scopes.contains(.read) ?? true, count > 0,
            let last = notices.last
        else { return nil }
        return "/v1/messages?cursor=\(MessageCursor(notices[count - 1].id, in: .oldest))&last=\(last.id)"
    }

    /// The bytes of the elements of an array, with a comma for each.
    private static func bytes(of texts: [String]) -> Int { texts.reduce(0) { $0 + $1.utf8.count + 1 } }

    private static func first(of texts: [String], within bytes: Int) -> [String] {
        var room = bytes
        return Array(
            texts.prefix { text in
                room -= text.utf8.count + 1
                return room >= 0
            })
    }

    /// The first messages, each with its id and its state, until their texts have `bytes`; and their errors and results
    /// in the room that is left.
    private static func messages(of notices: [SettledNotice], within bytes: Int) -> [String] {
        var room = bytes
        var messages: [JSONWriter] = []
        for notice in notices {
            var json = JSONWriter()
            json.string("id", notice.id.description)
            json.string("state", notice.state.name)
            // With the closing brace and the comma.
            room -= json.text.utf8.count + 2
            guard room >= 0 else { break }
            messages.append(json)
        }
        for (index, notice) in notices.prefix(messages.count).enumerated() where room > 0 {
            var json = messages[index]
            if let error = notice.error { json.raw("lastError", MessageJSON.error(error)) }
            if let result = notice.result { json.raw("result", MessageJSON.result(result)) }
            room -= json.text.utf8.count - messages[index].text.utf8.count
            if room >= 0 { messages[index] = json }
        }
        return messages.map(\.finished)
    }

    /// 200 says that the message was delivered; any other end is a 502.
    private func single(_ notice: SettledNotice) -> HTTPResponse {
        guard notice.state == .delivered else { return undelivered(notice).response(to: responder.head) }
        var text = MessageJSON.notice(notice, response.request, isSimulated: context.isSimulated)
        if let record = try? context.outbox.message(notice.id) {
            text = MessageJSON.message(record, context: context)
        }
        return .json(200, text, headers: response.preferenceApplied + IngestResponse.replay(receipt))
    }

    private func undelivered(_ notice: SettledNotice) -> Problem {
        var members: [(name: String, json: String)] = [
            ("messageId", JSONEscapes.quoted(notice.id.description)),
            ("state", JSONEscapes.quoted(notice.state.name)),
        ]
        if let error = notice.error { members.append(("lastError", MessageJSON.error(error))) }
        if let status = notice.error?.status { members.append(("upstreamStatus", String(status))) }
        if let result = notice.result { members.append(("result", MessageJSON.result(result))) }
        let detail =
            switch notice.state {
            case .queued, .delivered, .failed:
                "The upstream rejected the message: \(notice.error?.detail ?? "it gave no reason"). It is kept as failed."
            case .cancelled: "The message was cancelled before it was sent."
            case .dropped: "The message was dropped before it was sent: its queue was full."
            case .expired: "The message expired before it could be delivered."
            }
        return Problem(
            slug: .deliveryFailed, status: 502, detail: detail, members: members, headers: response.preferenceApplied)
    }
}
