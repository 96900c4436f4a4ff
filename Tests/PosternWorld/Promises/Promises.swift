import Glibc
import Logging
import PosternCore
import PosternDelivery
import PosternSimulatedDisk
import PosternScenarios
import PosternTestKit
import PosternUpstream

@testable import PosternGateway
@testable import PosternHTTP
@testable import PosternStore

/// What the gateway promises, checked while the world goes on and when it has become quiet. The first promise that is
/// broken ends the world.
final class Promises: @unchecked Sendable {
    // @unchecked: for the thread of the world only.
    unowned var world: World!
    private(set) var broken: String?
    /// The latest errors that the gateway logged, for people.
    private(set) var lastErrors: [String] = []
    var coverage = Coverage()
    private var snapshots: [String: UpstreamSnapshot] = [:]
    private(set) var lostOutcomes: [String: Int] = [:]
    /// How often the disk lost something after syncs that it did not do.
    private(set) var losses = 0
    /// The messages that were assigned ids, as long as no store was lost with its latest ids.
    private var owners: [MessageID: Expectations.Entry] = [:]
    private var storeCondition = "sound"
    /// Whether the run is new, so that nothing of it was looked at.
    private var looksAtAll = true
    /// The most bytes that the store had on the disk.
    private(set) var largestBytes = 0
    private(set) lazy var quiescence = QuiescenceCheck(self)

    /// No text of the gateway's may hold one.
    static let secrets =
        [secretPrefix, keyPrefix]
        + UpstreamRegistry.all.flatMap { $0.settings.filter(\.isSecret).compactMap(\.simulated) }
    /// All encryption keys begin with it.
    static let keyPrefix = "5a5a5a5a5a5a"
    /// What a store may have on the disk: its reserve, its log, and some thousand small messages.
    static let maxStoreBytes = 24 << 20

    /// What holds even if a bit of the store has flipped.
    private static let unconditional = [unchanged, QuiescenceCheck.promise, "no secret leaves"]

    func fail(_ promise: String, _ detail: String) {
        guard broken == nil, !world.isDamaged || Self.unconditional.contains(promise) else { return }
        broken = "\(promise): \(detail)"
        world.history.record("BROKEN: \(promise): \(detail)")
    }

    // MARK: While it goes on

    func logged(_ level: Logger.Level, _ text: String) {
        if level >= .error {
            lastErrors.append("log: \(text)")
            if lastErrors.count > 20 { lastErrors.removeFirst() }
        }
        checkSecrets(text, in: "the log")
        world.alerts.logged(text)
    }

    func checkSecrets(_ text: String, in place: String) {
        // Most of what is searched is long, and a debug build of Swift takes its time.
        let found = text.withCString { bytes in Self.secrets.first { strstr(bytes, $0) != nil } }
        if let found { fail("no secret leaves", "\(found) in \(place): \(text)") }
    }

    func responded(_ response: HTTPResponse, to post: Post) {
        let text = String(decoding: response.body, as: UTF8.self)
        checkSecrets(text, in: "a response to \(post.path)")
        guard response.status >= 500 else { return }
        let always = ["delivery-failed", "shutting-down", "outbox-full"]
        let slugs = always + (world.weather.isExcuse ? ["store-failed", "disk-full", "internal"] : [])
        guard !slugs.contains(where: { text.contains("urn:postern:problem:\($0)") }) else { return }
        fail("only documented 5xx", "\(post.path) was answered \(response.status): \(text)")
    }

    /// A 2xx, or the 502 of a request that waited.
    func accepted(_ entries: [Expectations.Entry], _ response: HTTPResponse) {
        guard !entries.isEmpty, let run = world.run else { return }
        if let entry = entries.first(where: { $0.isInvalid && !$0.isWaived }) {
            return fail("what is not valid is refused", "\(entry.mark) was answered \(response.status)")
        }
        let text = String(decoding: response.body, as: UTF8.self)
        // The id of a request may look like that of a message.
        let ids = Self.ids(in: Self.withoutEvicted(text).utf8).filter { !text.hasBytes(of: #""requestId":"\#($0)""#) }
        guard ids.count == entries.count else {
            return fail("a response names its messages", "\(ids.count) ids for \(entries.count) messages: \(text)")
        }
        let stored = stored(ids, run)
        for (entry, id) in zip(entries, ids) {
            if entry.isKnownAgain, !entry.isWaived, let first = entry.ids.first {
                guard first != id else {
                    coverage.visit("repeat: what was stored is not stored again")
                    continue
                }
                fail("a repeat is not stored again", "\(entry.mark) was accepted as \(first), then as \(id)")
            }
            own(id, entry)
            entry.ids.append(id)
            guard !stored.contains(id), !isForgotten(entry) else { continue }
            fail("a 2xx means that the message is stored", "\(entry.mark) was answered as \(id), which is not there")
        }
    }

    func own(_ id: MessageID, _ entry: Expectations.Entry) {
        guard let other = owners.updateValue(entry, forKey: id), other !== entry else { return }
        fail("no id is assigned twice", "\(id) is that of \(other.mark), and of \(entry.mark)")
    }

    /// Whether it was stored by a request whose response was lost, and its record may have been removed since. The
    /// response is kept for longer than what became of the message.
    func isForgotten(_ entry: Expectations.Entry) -> Bool {
        entry.isKnownAgain && entry.unanswered > 0 && isRemoved(entry)
    }

    /// - Parameter first: The response that the request got before.
    func repeated(_ post: Post, _ first: HTTPResponse, _ response: HTTPResponse) {
        // The disk may have lost it, the gateway may be busy, and its path may be gone for a while.
        guard ![409, 429, 503, 507].contains(response.status), !post.entries.contains(where: \.isWaived),
            response.status != 404 || !world.removed.contains(post.entries[0].upstream)
        else { return }
        let isMarked = response.headers.contains { $0.name == "Idempotent-Replay" && $0.value == "true" }
        guard !isMarked || response.status != first.status || response.body != first.body else {
            return coverage.visit("repeat: a request gets its first response")
        }
        fail(
            "a repeat gets the first response",
            "\(post.entries[0].mark) was answered \(first.status), then \(response.status): "
                + String(decoding: response.body, as: UTF8.self))
    }

    private static func withoutEvicted(_ text: String) -> String {
        guard let start = text.firstBytes(of: #""evicted":["#)?.lowerBound else { return text }
        return String(text[..<start]) + text[start...].drop { $0 != "]" }
    }

    /// Also if the disk keeps the gateway from telling.
    private func stored(_ ids: [MessageID], _ run: World.Run) -> Set<MessageID> {
        do {
            return try world.weather.quietly {
                try run.gateway.outbox.readMessages { reader in
                    try Set(ids.filter { try reader.message($0, payload: false) != nil })
                }
            }
        } catch {
            return world.weather.isExcuse ? Set(ids) : []
        }
    }

    /// What is stored of entries, in one read.
    func records(_ entries: some Sequence<Expectations.Entry>, _ run: World.Run) -> (MessageID) -> MessageRecord? {
        let known = try? run.gateway.outbox.readMessages { reader in
            var known: [MessageID: MessageRecord] = [:]
            for entry in entries { for id in entry.ids { known[id] = try reader.message(id, payload: false) } }
            return known
        }
        return { id in known?[id] ?? (try? run.gateway.outbox.message(id)) ?? nil }
    }

    /// The texts between quotes that look like ids, each once.
    private static func ids(in text: some Collection<UInt8>) -> [MessageID] {
        var ids: [MessageID] = []
        for part in text.split(separator: UInt8(ascii: "\"")) where part.count == 13 {
            if let id = MessageID(String(decoding: part, as: UTF8.self)), ids.last != id, !ids.contains(id) {
                ids.append(id)
            }
        }
        return ids
    }

    func sent(_ entries: [Expectations.Entry], to service: Service) {
        for entry in entries {
            if entry.upstream != service.name {
                fail("a message goes to its upstream", "\(entry.mark) was sent to \(service.name)")
            }
            let whole = entry.whole ?? entry
            let isRefused = whole.ids.isEmpty && whole.refusals > 0 && whole.unanswered == 0 && !whole.isPending
            if !whole.isWaived, isRefused || whole.isInvalid {
                fail("nothing refused is ever sent", "\(entry.mark) was refused and sent to \(service.name)")
            }
            if entry.wasRejected, !entry.wasRequeued { entry.wasRequeued = isRequeued(entry) }
            if entry.isRejected, !entry.isWaived, !entry.ids.isEmpty, entry.copies == 0, !isRequeued(entry) {
                fail("what is stored as failed is not sent", "\(entry.mark) was sent to \(service.name)")
            }
        }
    }

    func isRequeued(_ entry: Expectations.Entry) -> Bool {
        let worker = world.run?.workers.first { $0.type.name == entry.upstream }?.worker
        return world.weather.quietly {
            entry.ids.contains { id in (try? worker?.queue.read { try $0.row(id)?.wasRequeued }) == true }
        }
    }

    private static let unchanged = "what arrives is what was posted"

    func arrived(_ entry: Expectations.Entry, in item: [UInt8]) {
        if let payload = entry.payload, !item.contains(payload.utf8.dropFirst().dropLast()) {
            fail(Self.unchanged, "\(entry.mark): \(payload) became \(String(decoding: item, as: UTF8.self))")
        }
        if entry.isPoison { fail("the upstreams of this world refuse poison", "\(entry.mark) was taken") }
    }

    func outcomeWasLost(at service: Service) { lostOutcomes[service.name, default: 0] += 1 }

    /// What only the turns of one loop change is looked at after these.
    func afterTurn() {
        guard let run = world.run else { return }
        let turned = world.threads.takeTurned()
        let isAll = looksAtAll
        looksAtAll = false
        if isAll || turned.contains("postern-writer") {
            for (number, ledger) in run.gateway.outbox.ledgers where ledger.balance != 0 {
                fail("the books balance at every commit", "\(number): off by \(ledger.balance)")
            }
            world.replays.look()
        }
        for (type, worker, loop) in run.workers where isAll || turned.contains(loop) {
            let snapshot = worker.snapshot
            guard snapshot != snapshots[type.name] else { continue }
            coverage.look(at: snapshot, after: snapshots[type.name])
            world.holds.look(at: snapshot, of: type)
            world.rateCheck.look(at: snapshot, of: type.name)
            world.credentials.look(at: snapshot, of: type.name)
            snapshots[type.name] = snapshot
        }
        look(atStoreOf: run)
        for service in world.services {
            for violation in service.takeViolations() where !isForgiven(violation, service.type) {
                fail("the upstreams see no breach of protocol", "\(service.name): \(violation)")
            }
        }
    }

    private func look(atStoreOf run: World.Run) {
        let condition =
            switch run.gateway.outbox.failure {
            case nil: "sound"
            case .full: "full"
            default: "failed"
            }
        guard condition != storeCondition else { return }
        coverage.visit("store: \(storeCondition) → \(condition)")
        storeCondition = condition
        world.threads.idleFactor = world.idleFactor(store: condition)
        if condition == "failed" { world.weather.storeHasFailed() }
    }

    /// How much the store has on the disk, and how much of memory is reserved for requests.
    func checkSize() {
        guard let run = world.run else { return }
        largestBytes = max(largestBytes, world.storeBytes)
        if world.storeBytes > Self.maxStoreBytes * (1 + losses) {
            fail("the store stays small", "it has \(world.storeBytes) bytes")
        }
        if run.ingress.runningRequests == 0, run.ingress.memory.bytesInUse != 0, !world.isBusy {
            fail(
                "memory is given back", "\(run.ingress.memory.bytesInUse) bytes are reserved, and no request is running"
            )
        }
    }

    /// A power cut lost what syncs had promised: nothing can be said any more of what was before.
    func lossHappened() {
        losses += 1
        world.expectations.waive()
        world.rateCheck.lossHappened()
        lostOutcomes = [:]
        owners = [:]
        world.replays.forget()
    }

    /// A backup is the store now: what it does not know is waived, and what was sent after it is sent again.
    func wasRestored() {
        world.rateCheck.lossHappened()
        lostOutcomes = [:]
        world.replays.forget()
    }

    private func isForgiven(_ violation: String, _ type: any TypeScenarios) -> Bool {
        losses > 0 || world.restores > 0
            // A token is recognized by a digest with the encryption key.
            || world.keyChanges > 0 && violation.hasSuffix("a refused token is sent again")
            || world.devices?.explains(violation) ?? false
            || type.forgives(violation, wasRestarted: world.wasTakenOver, wasClockSet: world.wasClockSet)
    }

    // MARK: After a start

    func started() {
        storeCondition = "sound"
        looksAtAll = true
        if let run = world.run {
            world.rateCheck.started(run)
            world.credentials.started(run)
            world.holds.started()
            checkCredentials(run)
        }
        audit()
    }

    /// Each that is stored can be read.
    private func checkCredentials(_ run: World.Run) {
        guard losses == 0 else { return }
        let outbox = run.gateway.outbox
        let unreadable = world.weather.quietly {
            try? outbox.read { sql in
                try sql.all("SELECT upstream, owner FROM credentials WHERE sealed IS NOT NULL") { row in
                    (upstream: row[0] as UpstreamNumber, owner: row[1] as String)
                }.filter {
                    try StoredState(upstream: $0.upstream, sql: sql, vault: outbox.vault).credential(of: $0.owner)
                        == nil
                }
            }
        }
        guard let first = unreadable?.first else { return }
        fail("credentials outlast a change of the key", "that of \(first.owner) cannot be read after a start")
    }

    func restarted() {
        guard let run = world.run else { return }
        world.weather.quietly {
            let entries = world.expectations.entries.lazy.filter { !$0.isWaived }
            let record = records(entries, run)
            for entry in entries { look(at: entry, record) }
            world.replays.outcomesForgotten()
            world.isRestored = false
        }
    }

    // MARK: A queue that is moved

    /// The requests of its worker were given up, and what came back is forgotten.
    func gaveUp(_ upstream: String) {
        guard let run = world.run else { return }
        world.weather.quietly {
            let entries = world.expectations.entries.filter { $0.upstream == upstream && !$0.isWaived }
            let record = records(entries, run)
            for entry in entries { look(at: entry, record) }
            world.replays.outcomesForgotten(of: upstream)
        }
    }

    /// Another worker begins with the queue.
    func adopted(_ type: any TypeScenarios) {
        guard let run = world.run, let worker = run.workers.first(where: { $0.type.name == type.name })?.worker
        else { return fail("a queue can be adopted", "\(type.name) has no worker") }
        world.rateCheck.began(type.name, worker)
        world.credentials.began(type.name)
        world.holds.began(type.name)
        world.endpoints.disturbed()
        run.network.tokens[type.name]?.workerBegan()
        let (outbox, number) = (run.gateway.outbox, worker.queue.number)
        let open = world.weather.quietly {
            try? outbox.read { sql in
                try sql.value(
                    "SELECT count(*) FROM attempts WHERE upstream = ? AND endedAtMs IS NULL", number, as: Int.self)
            }
        }
        if let open, open > 0 {
            fail("what a worker left is known to be in doubt", "\(open) attempts of \(type.name) are still open")
        }
        let claimed = world.expectations.entries.lazy.filter { $0.upstream == type.name }.flatMap(\.ids)
        if let id = claimed.first(where: outbox.isInFlight) {
            fail("a queue is adopted without claims", "\(id) of \(type.name) counts as being sent")
        }
    }

    private func look(at entry: Expectations.Entry, _ record: (MessageID) -> MessageRecord?) {
        var mayBeRepeated = false
        for id in entry.ids {
            guard let record = record(id) else {
                if isRemoved(entry) { continue }
                return fail("nothing accepted is lost", "\(entry.mark), \(id), is gone after a restart")
            }
            checkOrigin(of: record, entry)
            // What was done after a backup is forgotten. It is done again, at an upstream that knows of it.
            if world.isRestored, record.state == .queued {
                (entry.isCancelled, entry.isSettled) = (false, false)
                entry.mayRepeat = entry.mayRepeat || entry.arrivals > 0
            }
            // It was taken, and what came back is forgotten: it may go out again.
            if record.state == .queued, entry.arrivals > 0 {
                entry.unknownOutcomes += 1
                mayBeRepeated = true
            }
        }
        // So may the copies that were stored with responses that were lost.
        let copies = (entry.whole ?? entry).unanswered
        if entry.ids.isEmpty, entry.arrivals > 0 { entry.unknownOutcomes += max(1, copies) }
        if mayBeRepeated { entry.unknownOutcomes += copies }
    }

    func checkOrigin(of record: MessageRecord, _ entry: Expectations.Entry) {
        if record.isFromSDK { coverage.visit("message: of an SDK") }
        guard record.isFromSDK != entry.isFromSDK else { return }
        fail("a message tells whether an SDK has posted it", "\(entry.mark), \(record.id): \(record.isFromSDK)")
    }

    /// Whether its record may have been removed: settled messages are kept for a while, and an operator removes some.
    func isRemoved(_ entry: Expectations.Entry) -> Bool {
        let isKept = world.plan.settings.retention == SettingsPlan.longestRetention
        guard !isKept || world.purged.contains(entry.upstream) else { return false }
        let mayEnd =
            entry.isPoison || entry.isExempt || entry.wasRejected || entry.isSentOnce
            || world.plan.settings.dropsOldest(of: entry.upstream)
        return entry.arrivals > 0 || !entry.leavesMark || !isKept && mayEnd
    }

    func audit() {
        guard let run = world.run else { return }
        do {
            let audit = try world.weather.quietly { try run.gateway.outbox.audit() }
            for account in audit.accounts where !account.findings.isEmpty {
                fail("the books balance", "\(account.upstream): \(account.findings.joined(separator: "; "))")
            }
        } catch {
            fail("the books balance", "\(error)")
        }
    }
}

/// Looks at what is logged; it changes nothing.
struct WorldLog: LogHandler {
    private let promises: Promises
    var metadata: Logger.Metadata = [:]
    var logLevel: Logger.Level

    init(_ promises: Promises, _ level: Logger.Level) { (self.promises, logLevel) = (promises, level) }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        let values = (event.metadata ?? [:]).map { "\($0.key)=\($0.value)" }.sorted().joined(separator: " ")
        promises.logged(event.level, "\(event.message) \(values)")
    }
}
