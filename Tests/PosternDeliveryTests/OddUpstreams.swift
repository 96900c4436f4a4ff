import PosternCore
import PosternTestKit

// Plain upstreams in all but one respect.

/// Takes the words of the answer for its messages, one each: `taken`, `again` or `refused`.
struct SortingUpstream: PlainAtHeart {
    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Judgement {
        Judgement(
            .each(
                String(decoding: response.body, as: UTF8.self).split(separator: " ").map { word in
                    switch word {
                    case "taken": .delivered
                    case "again": .again
                    default: .reject(reason: String(word))
                    }
                }))
    }
}

/// Sends each message in three steps.
struct SteppingUpstream: PlainAtHeart {
    private func step(of message: Message) -> UInt8 { message.progress?.first ?? 0 }

    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        .send(UpstreamRequest(url: "http://plain.test/", body: Array("step \(step(of: messages[0]))".utf8)), count: 1)
    }
    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Judgement {
        let step = step(of: batch.messages[0])
        return Judgement(step < 2 ? .proceed(progress: [step + 1]) : .delivered())
    }
}

/// Does not send messages that say `skip`.
struct SkippingUpstream: PlainAtHeart {
    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        let skipped = messages.prefix { String(decoding: $0.payload, as: UTF8.self).contains("skip") }
        guard skipped.isEmpty else {
            return .settle(count: skipped.count, as: .failed, reason: "nothing to send")
        }
        return plain.plan(for: messages, in: context)
    }
}

/// Sends nothing before a moment.
struct WaitingUpstream: PlainAtHeart {
    let until: Timestamp
    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        context.now < until ? .wait(.schedule, until: until) : plain.plan(for: messages, in: context)
    }
}

/// Wants its bodies compressed.
struct CompressedUpstream: PlainAtHeart {
    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        guard case .send(var request, let count) = plain.plan(for: messages, in: context) else {
            preconditionFailure("a plain upstream always sends")
        }
        request.gzip = true
        return .send(request, count: count)
    }
}

/// Refuses every lane's token.
struct ParkingUpstream: PlainAtHeart {
    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Judgement {
        response.status == 401 ? Judgement(.park) : plain.judge(response, to: batch, in: context)
    }
}

/// What `PlainUpstream` does, unless said otherwise.
protocol PlainAtHeart: BatchingUpstream {}

extension PlainAtHeart {
    var plain: PlainUpstream { PlainUpstream() }
    var name: UpstreamName { plain.name }
    var kinds: [Kind] { plain.kinds }
    var laneRule: LaneRule { plain.laneRule }

    func admit(_ payload: JSONValue, of kind: Kind, in context: AdmissionContext) throws(InvalidPayload) -> Admission {
        try plain.admit(payload, of: kind, in: context)
    }
    func plan(for messages: [Message], in context: PlanContext) -> Plan { plain.plan(for: messages, in: context) }
    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Judgement {
        plain.judge(response, to: batch, in: context)
    }
}
