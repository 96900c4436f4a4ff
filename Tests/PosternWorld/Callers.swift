import PosternCore
import PosternTestKit

@testable import PosternHTTP

/// All callers, in one loop: each posts, waits for its response, and goes on. What got no response is posted again.
final class Callers: Loop, @unchecked Sendable {
    // @unchecked: for the thread of the world only.
    let name = "callers"
    private let callers: [Caller]
    private let wakeUp = Inbox<Void>()

    init(_ world: World) {
        callers = world.plan.callers.map { Caller($0, world) }
        for caller in callers { caller.wakeUp = wakeUp }
    }

    func turn(at now: MonotonicInstant) -> MonotonicInstant? {
        _ = wakeUp.takeAll()
        for caller in callers where caller.nextAt <= now { caller.act(at: now) }
        return callers.map(\.nextAt).min() ?? .distantFuture
    }

    func wait(until deadline: MonotonicInstant) -> Bool { wakeUp.wait(until: deadline) }

    /// They post nothing new any more; what got no response is still posted again.
    func finish() { for caller in callers { caller.isFinishing = true } }
    var areDone: Bool { callers.allSatisfy(\.isDone) }
}

/// A request that a caller makes, and makes again if it gets no response.
struct Post {
    var path: String
    var headers: [(name: String, value: String)] = [("Content-Type", "application/json")]
    var body: String
    var method = "POST"
    var entries: [Book.Entry]

    var bytes: [UInt8] {
        let lines = (headers + [("Host", "localhost"), ("Content-Length", "\(body.utf8.count)")]).map {
            "\($0.name): \($0.value)\r\n"
        }
        return Array("\(method) \(path) HTTP/1.1\r\n\(lines.joined())\r\n\(body)".utf8)
    }
}

final class Caller {
    private let plan: CallerPlan
    private unowned let world: World
    private let dice: Dice
    private let story: any Story
    var wakeUp: Inbox<Void>?
    /// Never while it waits for a response.
    private(set) var nextAt: MonotonicInstant { didSet { wakeUp?.nudge() } }
    var isFinishing = false { didSet { if unanswered == nil, !isWaiting { nextAt = .distantFuture } } }
    private var isWaiting = false
    /// What is posted again.
    private var unanswered: Post?
    private var requests = 0

    init(_ plan: CallerPlan, _ world: World) {
        self.plan = plan
        self.world = world
        dice = Dice(seed: world.plan.seed, for: "caller \(plan.number)")
        nextAt = world.time.instant + .milliseconds(Int(plan.startHour * 3_600_000))
        story =
            switch plan.upstream {
            case .samsara: SamsaraStory(plan)
            case .seer: SeerStory()
            case .streamone: StreamOneStory(plan)
            case .curio: CurioStory(plan)
            case .appservices: AppServicesStory(plan, world)
            }
    }

    var isDone: Bool { isFinishing && unanswered == nil && !isWaiting }

    func act(at now: MonotonicInstant) {
        nextAt = .distantFuture
        var post: Post
        if let again = unanswered { post = again } else if isFinishing { return } else { post = newPost() }
        unanswered = nil
        requests += 1
        if dice.chance(plan.waits) { post.headers.append(("Prefer", "wait=\(dice.from(1...50))")) }
        isWaiting = true
        for entry in post.entries { entry.isPending = true }
        let number = requests
        let marks = post.entries.map(\.mark).joined(separator: " ")
        world.history.note("caller \(plan.number) \(post.method) \(post.path) \(marks)")
        let exchange = world.run?.door.send(post.bytes) { [unowned self] in self.answered(post, number, $0) }
        if world.run == nil { answered(post, number, nil) }
        if let exchange, isWaiting, dice.chance(plan.hangsUp) { exchange.hangUp() }
    }

    private func newPost() -> Post {
        let count = dice.chance(plan.bulk) ? dice.from(2...12) : 1
        let items = story.next(count, world, dice, poison: plan.poison)
        let entries = items.compactMap(\.entry)
        if items.count == 1, let method = items[0].method {
            return Post(path: items[0].kind, body: items[0].payload, method: method, entries: entries)
        }
        let isOneKind = Set(items.map(\.kind)).count == 1
        let isScheduled = dice.chance(plan.scheduled) && story.mayBeScheduled
        guard isOneKind, !isScheduled, dice.chance(0.7) else {
            return envelopes(items, entries, isScheduled: isScheduled)
        }
        let path = "/v1/\(plan.upstream.rawValue)/\(items[0].kind)"
        if items.count == 1 { return Post(path: path, body: items[0].payload, entries: entries) }
        if dice.chance(0.5) {
            return Post(path: path, body: "[\(items.map(\.payload).joined(separator: ","))]", entries: entries)
        }
        return Post(
            path: path, headers: [("Content-Type", "application/x-ndjson")],
            body: items.map(\.payload).joined(separator: "\n"), entries: entries)
    }

    private func envelopes(_ items: [StoryItem], _ entries: [Book.Entry], isScheduled: Bool) -> Post {
        var more = ""
        if isScheduled {
            let end = world.upstreamTime.now + dice.span(10...7200)
            more = dice.chance(0.6) ? #","notBefore":"\#(end)""# : #","expiresAt":"\#(end)""#
            for entry in entries { entry.isExempt = true }
        }
        let lines = items.map {
            #"{"upstream":"\#(plan.upstream.rawValue)","kind":"\#($0.kind)","payload":\#($0.payload)\#(more)}"#
        }
        return Post(
            path: "/v1/messages", headers: [("Content-Type", "application/x-ndjson")],
            body: lines.joined(separator: "\n"), entries: entries)
    }

    private func answered(_ post: Post, _ number: Int, _ response: HTTPResponse?) {
        guard isWaiting, number == requests else { return }
        isWaiting = false
        for entry in post.entries { entry.isPending = false }
        nextAt = isFinishing ? .distantFuture : world.time.instant + dice.span(plan.pause / 10...plan.pause * 3)
        guard let response else {
            world.history.note("caller \(plan.number) gets no response")
            for entry in post.entries { entry.unanswered += 1 }
            return again(post)
        }
        world.history.note("caller \(plan.number) gets \(response.status)")
        world.promises.responded(response, to: post)
        switch response.status {
        case 200..<300, 502: world.promises.accepted(post.entries, response)
        case 503, 507, 429:
            for entry in post.entries { entry.refusals += 1 }
            again(post)
        default:
            for entry in post.entries { entry.refusals += 1 }
            story.refused(response.status)
        }
        world.handOver("response")
    }

    private func again(_ post: Post) {
        unanswered = post
        nextAt = world.time.instant + dice.span(1...180)
    }
}
