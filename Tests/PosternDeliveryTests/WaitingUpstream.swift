import PosternCore
import PosternTestKit

/// Sends nothing before a moment.
struct WaitingUpstream: PlainAtHeart {
    let until: Timestamp
    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        context.now < until ? .wait(.schedule, until: until) : plain.plan(for: messages, in: context)
    }
}
