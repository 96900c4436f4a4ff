import PosternCompression
import PosternCore
import PosternEvents
import PosternScenarios
import PosternTestKit
import PosternThreads

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
    var scenarios: [any Scenario] { callers.map(\.scenario) }
}

/// A request that a caller makes, and makes again if it gets no response.
struct Post {
    var path: String
    var headers: [(name: String, value: String)] = [("Content-Type", "application/json")]
    var body: String
    var method = "POST"
    var entries: [Expectations.Entry]
    var coding = Coding.identity
    /// Whether it stores messages. Otherwise it is not made again.
    var holdsMessages = true
    /// Whether the gateway has to refuse all of it.
    var isInvalid = false
    /// Its messages, if they are events.
    var events: [Repeats.Event] = []
    /// Its `Idempotency-Key`.
    private(set) var key: String?
    /// Whether its upstream was not configured when its caller wrote it.
    var wasForRemoved = false
    /// Whether it once had to wait for its messages.
    var hasWaited = false
    /// The response that it has to get again.
    var first: HTTPResponse?

    mutating func setKey(_ key: String) {
        self.key = key
        headers.append(("Idempotency-Key", "\"\(key)\""))
        for entry in entries { entry.isKnownAgain = true }
    }

    enum Coding {
        case identity, gzip
        /// Gzip without its end.
        case damaged
    }

    var bytes: [UInt8] {
        let content = Array(body.utf8)
        let packed = coding == .identity ? content : Gzip.compress(content, level: 1)
        let sent = coding == .damaged ? packed.dropLast(9) : packed[...]
        var all = headers + [("Host", "localhost"), ("Content-Length", "\(sent.count)")]
        if coding != .identity { all.append(("Content-Encoding", "gzip")) }
        let lines = all.map { "\($0.name): \($0.value)\r\n" }.joined()
        return Array("\(method) \(path) HTTP/1.1\r\n\(lines)\r\n".utf8) + sent
    }
}

extension World {
    /// Posts messages in one request, each in a line, which is not made again. Calls `accepted` if they are.
    func post(
        _ lines: [String], _ entries: [Expectations.Entry], to path: String, accepted: @escaping () -> Void = {}
    ) {
        let post = Post(
            path: path, headers: [("Content-Type", "application/x-ndjson")], body: lines.joined(separator: "\n"),
            entries: entries)
        run?.ingress.send(post.bytes) { [weak self] response in
            for entry in entries { entry.isPending = false }
            guard let self, let response, response.status == 202 else {
                for entry in entries { if response == nil { entry.unanswered += 1 } else { entry.refusals += 1 } }
                return
            }
            promises.accepted(entries, response)
            accepted()
        }
    }
}

final class Caller {
    private let plan: CallerPlan
    private unowned let world: World
    private let random: SeededRandom
    /// What decides on habits that leave the rest as it is.
    private let habits: SeededRandom
    private let strays: SeededRandom
    private let haste: SeededRandom
    private let epochs: SeededRandom
    private let reports: SeededRandom
    private let origins: SeededRandom
    private let rejected: RejectedReports
    private let repeats: Repeats
    let scenario: any Scenario
    var wakeUp: Inbox<Void>?
    /// Never while it waits for a response.
    private(set) var nextAt: MonotonicInstant { didSet { wakeUp?.nudge() } }
    var isFinishing = false { didSet { if unanswered == nil, !isWaiting { nextAt = .distantFuture } } }
    private var isWaiting = false
    /// What is posted again.
    private var unanswered: Post?
    private var requests = 0
    private var askedAt = MonotonicInstant(nanoseconds: 0)
    /// How long a request may take that waits for its messages.
    private var patience: Duration?
    /// The gateway may be kept from its work for so long.
    private static let maxDelay = Duration.seconds(1800)

    init(_ plan: CallerPlan, _ world: World) {
        self.plan = plan
        self.world = world
        random = SeededRandom(seed: world.plan.seed, for: "caller \(plan.number)")
        habits = SeededRandom(seed: world.plan.seed, for: "habits \(plan.number)")
        strays = SeededRandom(seed: world.plan.seed, for: "strays \(plan.number)")
        haste = SeededRandom(seed: world.plan.seed, for: "haste \(plan.number)")
        epochs = SeededRandom(seed: world.plan.seed, for: "epochs \(plan.number)")
        reports = SeededRandom(seed: world.plan.seed, for: "reports \(plan.number)")
        origins = SeededRandom(seed: world.plan.seed, for: "origins \(plan.number)")
        rejected = RejectedReports(plan, world)
        repeats = Repeats(plan, world)
        nextAt = world.time.instant + .milliseconds(Int(plan.startHour * 3_600_000))
        scenario = plan.type.scenario(of: plan.number)
    }

    private var upstream: String { plan.type.name }

    private func stage(_ random: SeededRandom) -> Stage {
        Stage(upstream, world.expectations, now: world.upstreamTime.now, random)
    }

    var isDone: Bool { isFinishing && unanswered == nil && !isWaiting }

    func act(at now: MonotonicInstant) {
        nextAt = .distantFuture
        var post: Post
        if let again = unanswered {
            post = again
        } else if isFinishing {
            return
        } else {
            post = chosenPost()
            post.wasForRemoved = world.removed.contains(upstream)
        }
        if !isFinishing { rejected.report(of: scenario) }
        unanswered = nil
        requests += 1
        if random.chance(plan.waits), post.first == nil {
            post.hasWaited = true
            post.headers.removeAll { $0.value.hasPrefix("wait=") }
            let seconds = random.from(1...50)
            post.headers.append(("Prefer", "wait=\(seconds)"))
            patience = .seconds(seconds) + Self.maxDelay
        }
        askedAt = now
        isWaiting = true
        for entry in post.entries { (entry.isPending, entry.caller) = (true, plan.number) }
        let number = requests
        let marks = post.entries.map(\.mark).joined(separator: " ")
        world.history.record("caller \(plan.number) \(post.method) \(post.path) \(marks)")
        if world.run != nil { world.weather.requestArrives() }
        let exchange = world.run?.ingress.send(post.bytes, as: TurnWatch.key(of: plan.number)) { [unowned self] in
            self.answered(post, number, $0)
        }
        if world.run == nil { answered(post, number, nil, wasConnected: false) }
        if let exchange, isWaiting, random.chance(plan.hangsUp) { exchange.hangUp() }
    }

    private func chosenPost() -> Post {
        if habits.chance(plan.invalid) { return invalidPost() }
        if plan.type.traits.contains(.answersCalls), habits.chance(plan.proxied), let post = proxiedPost() {
            return post
        }
        if reports.chance(plan.reports), let item = scenario.report(stage(reports)) {
            return Post(
                path: "/v1/\(upstream)/\(item.kind)", body: item.payload, entries: [item.entry].compactMap(\.self))
        }
        if let post = repeats.request() { return post }
        var post = newPost()
        if habits.chance(plan.compressed) { post.coding = .gzip }
        guard post.holdsMessages else { return post }
        if habits.chance(plan.keyed), post.events.isEmpty { setKey(of: &post) }
        if post.entries.count > 1, habits.chance(plan.invalid * 3) { makeLenient(&post) }
        if strays.chance(plan.invalid * 3) { addStray(to: &post) }
        return post
    }

    /// Something that has to be refused as a whole.
    private func invalidPost() -> Post {
        let entry = world.expectations.begin(upstream, lane: nil, leavesMark: false)
        entry.isInvalid = true
        let kind = plan.type.kind
        let path = "/v1/\(upstream)/\(kind)"
        let text = plan.type.invalidPayload(entry.mark)
        var post = Post(path: path, body: "[\(text)]", entries: [entry], isInvalid: true)
        switch habits.below(5) {
        case 0: break
        case 1: post.body = #"{"a":"\#(entry.mark)""#
        case 2: post.coding = .damaged
        case 3: post.path = "/v1/\(upstream)/no_such_kind"
        default:
            post.path = "/v1/messages"
            post.body = #"{"upstream":"\#(upstream)","kind":"\#(kind)","payload":\#(text)}"#
        }
        return post
    }

    private func setKey(of post: inout Post) {
        guard scenario.mayBeRefused, let key = repeats.key() else { return post.setKey("\(plan.number)/\(requests)") }
        post.setKey(key)
        refuse(&post)
    }

    /// It has the key of another request, or the id of another event.
    private func refuse(_ post: inout Post) {
        post.isInvalid = true
        for entry in post.entries { entry.isInvalid = true }
    }

    /// Something that has to be refused, behind others, which are refused with it.
    private func addStray(to post: inout Post) {
        guard post.path == "/v1/messages", post.events.isEmpty, !post.isInvalid,
            let item = scenario.stray(stage(strays)),
            let entry = item.entry
        else { return }
        post.body += "\n" + #"{"upstream":"\#(upstream)","kind":"\#(item.kind)","payload":\#(item.payload)}"#
        post.entries.append(entry)
        refuse(&post)
        // What it takes for accepted may not be so.
        scenario.refused(409)
    }

    /// A payload among the others that is rejected alone.
    private func makeLenient(_ post: inout Post) {
        guard post.body.hasPrefix("[") else { return }
        let entry = world.expectations.begin(upstream, lane: nil, leavesMark: false)
        entry.isInvalid = true
        let text = plan.type.invalidPayload(entry.mark)
        post.body =
            habits.chance(0.5) ? "[\(text),\(post.body.dropFirst())" : "\(post.body.dropLast()),\(text)]"
        post.headers.append(("Prefer", "handling=lenient"))
    }

    /// A call that is made at once, and answered with what the platform answers.
    private func proxiedPost() -> Post? {
        guard let item = scenario.call(stage(habits), isRead: habits.chance(0.5)) else { return nil }
        item.entry?.isProxied = true
        return Post(path: item.kind, body: item.payload, entries: [item.entry].compactMap(\.self), holdsMessages: false)
    }

    private func newPost() -> Post {
        let count = random.chance(plan.bulk) ? random.from(2...12) : 1
        let items = scenario.next(count, stage(random), poison: plan.poison)
        let entries = items.compactMap(\.entry)
        if items.count == 1, let method = items[0].method {
            return Post(
                path: items[0].kind, body: items[0].payload, method: method, entries: entries, holdsMessages: false)
        }
        if items.contains(where: { $0.notBefore != nil }) { return envelopes(items, entries, isScheduled: false) }
        if repeats.sendsEvents() { return events(items) }
        let isOneKind = Set(items.map(\.kind)).count == 1
        let isScheduled =
            random.chance(plan.scheduled) && scenario.mayBeScheduled && !entries.contains(where: \.isNeeded)
        guard isOneKind, !isScheduled, random.chance(0.7) else {
            return envelopes(items, entries, isScheduled: isScheduled)
        }
        let path = "/v1/\(upstream)/\(items[0].kind)"
        if items.count == 1 { return Post(path: path, body: items[0].payload, entries: entries) }
        if random.chance(0.5) {
            return Post(path: path, body: "[\(items.map(\.payload).joined(separator: ","))]", entries: entries)
        }
        return Post(
            path: path, headers: [("Content-Type", "application/x-ndjson")],
            body: items.map(\.payload).joined(separator: "\n"), entries: entries)
    }

    private func events(_ items: [ScenarioItem]) -> Post {
        var events = items.compactMap { item in
            item.entry.map { entry in
                Repeats.Event(
                    entry: entry, type: "\(upstream).\(item.kind)", data: item.payload, id: entry.mark,
                    source: "/caller/\(plan.number)")
            }
        }
        let former = repeats.formerEvents()
        if events.count == 1, scenario.mayBeRefused, let id = former.first?.id, habits.chance(0.2) {
            events[0].id = id
            var post = Post(events, isBinary: habits.chance(0.5))
            refuse(&post)
            return post
        }
        return Post(habits.chance(0.5) ? former + events : events + former, isBinary: habits.chance(0.5))
    }

    private static let distantTimes = ["2100-01-01T00:00:00Z", "2400-02-29T12:00:00Z", "9999-12-31T23:59:59Z"]

    private func envelopes(_ items: [ScenarioItem], _ entries: [Expectations.Entry], isScheduled: Bool) -> Post {
        var more = ""
        if isScheduled {
            var end = world.upstreamTime.now + random.span(10...7200)
            let isLater = random.chance(0.6)
            // Durations of more than 292 years have no nanoseconds of 64 bits.
            if epochs.chance(0.03), let distant = Timestamp(rfc3339: epochs.pick(Self.distantTimes)) { end = distant }
            more = isLater ? #","notBefore":"\#(end)""# : #","expiresAt":"\#(end)""#
            for entry in entries {
                entry.isExempt = true
                if isLater { entry.notBefore = end } else { entry.expiresAt = end }
            }
        }
        let lines = items.map { item in
            // As an import does.
            if let entry = item.entry, origins.chance(0.3) { entry.isFromSDK = true }
            let via = item.entry?.isFromSDK == true ? #","via":"sdk""# : ""
            let own = item.notBefore.map { #","notBefore":"\#($0)""# } ?? more
            if let notBefore = item.notBefore, let entry = item.entry {
                (entry.isExempt, entry.notBefore) = (true, notBefore)
            }
            return #"{"upstream":"\#(upstream)","kind":"\#(item.kind)","payload":\#(item.payload)\#(own)\#(via)}"#
        }
        return Post(
            path: "/v1/messages", headers: [("Content-Type", "application/x-ndjson")],
            body: lines.joined(separator: "\n"), entries: entries)
    }

    private func answered(_ post: Post, _ number: Int, _ response: HTTPResponse?, wasConnected: Bool = true) {
        guard isWaiting, number == requests else { return }
        isWaiting = false
        for entry in post.entries { entry.isPending = false }
        if let patience, response != nil, world.time.instant - askedAt > patience {
            world.promises.fail("a response that waits comes in time", "it took \(world.time.instant - askedAt)")
        }
        patience = nil
        nextAt = isFinishing ? .distantFuture : world.time.instant + random.span(plan.pause / 10...plan.pause * 3)
        if !isFinishing, haste.chance(scenario.haste) { nextAt = world.time.instant }
        guard let response else {
            world.history.record("caller \(plan.number) gets no response")
            if wasConnected { for entry in post.entries { entry.unanswered += 1 } }
            return again(post)
        }
        world.history.record("caller \(plan.number) gets \(response.status)")
        world.promises.responded(response, to: post)
        if let first = post.first { world.promises.repeated(post, first, response) }
        take(response, to: post)
        world.handOver("response")
    }

    private static let noSession = "no session of this visitor has this sessionCode"

    /// The sessions that had begun after the backup, or in a store that was set aside, are not known any more; and those
    /// that were to begin while the upstream was removed never began.
    private func mayLackSessions(_ post: Post) -> Bool {
        world.restores > 0 || world.promises.losses > 0 || post.wasForRemoved
    }

    private func take(_ response: HTTPResponse, to post: Post) {
        let text = String(decoding: response.body, as: UTF8.self)
        switch response.status {
        case _ where !post.holdsMessages:
            // Whatever it says: the call is over.
            for entry in post.entries { entry.refusals += 1 }
            if post.method == "PUT", response.status >= 500 { again(post) }
        case 202 where text.hasPrefix(#"{"accepted":0"#) && world.removed.contains(upstream):
            // A lenient request rejects each of its events by itself.
            for entry in post.entries { entry.refusals += 1 }
            scenario.refused(404)
        case 200..<300 where text.contains(Self.noSession) && mayLackSessions(post):
            for entry in post.entries { entry.isWaived = true }
            scenario.refused(422)
        case 200..<300, 502:
            world.promises.accepted(post.entries, response)
            if response.status != 502 { repeats.accepted(post, response) }
        case 503 where text.contains("it is not known whether"):
            for entry in post.entries { entry.unanswered += 1 }
            again(post)
        // Any other 409 says that it will never be taken.
        case 409 where text.contains("Idempotency-Key is running"): again(post)
        case 503, 507, 429:
            for entry in post.entries { entry.refusals += 1 }
            again(post)
        default:
            if text.contains("urn:postern:problem:idempotency-mismatch") {
                world.promises.coverage.visit("repeat: another under a key is refused")
            }
            for entry in post.entries { entry.refusals += 1 }
            if !post.isInvalid { scenario.refused(response.status) }
        }
    }

    private func again(_ post: Post) {
        // A call is made once: whether it was is not known.
        guard post.holdsMessages || post.method == "PUT" else { return }
        unanswered = post
        nextAt = world.time.instant + random.span(1...180)
    }
}
