import PosternCore
import PosternEvents
import PosternStore
import PosternScenarios

@testable import PosternGateway

/// What callbacks promise: the notified upstream gets one event about each message that ends in one of the reported
/// states, and no other event.
final class CallbackWatch {
    private unowned let world: World
    private let plan: CallbackPlan?
    /// The entries of events, by the texts of the events.
    private var events: [String: Expectations.Entry] = [:]
    private var reports: [Report: [Expectations.Entry]] = [:]
    /// Those of entries of events, the ids that these had when they were found, and the ids of what they are about.
    private var numbers: Set<Int> = []
    private var known: Set<MessageID> = []
    private var subjects: Set<String> = []

    private struct Report: Hashable {
        let id: String
        let state: String
    }

    init(_ world: World) {
        self.world = world
        plan = world.plan.settings.callbacks
    }

    /// The entries of a request or an item: those of its events, and those of other messages.
    func entries(in text: [UInt8]) -> [Expectations.Entry] {
        guard plan != nil, text.hasBytes(of: Self.startText) || text.hasBytes(of: AlertPromises.startText) else {
            return world.expectations.entries(in: text)
        }
        var rest: [UInt8] = []
        var found: [Expectations.Entry] = []
        var index = 0
        while index < text.count {
            guard let end = Self.endOfEvent(in: text, from: index) else {
                rest.append(text[index])
                index += 1
                continue
            }
            found.append(entry(of: String(decoding: text[index..<end], as: UTF8.self)))
            index = end
        }
        return world.expectations.entries(in: rest) + found
    }

    /// The entries of the events about a message.
    func entries(about ids: [MessageID]) -> [Expectations.Entry] {
        reports.filter { ids.map(\.description).contains($0.key.id) }.flatMap(\.value)
    }

    private static let startText = #"{"id":""#
    private static let start = Array(startText.utf8)
    private static let second = Array(#"","upstream":""#.utf8)
    /// The members of an event that are the same for every end of a message are in front, and no payload of the world has
    /// the same ones.
    private static func endOfEvent(in text: [UInt8], from first: Int) -> Int? {
        guard text[first] == start[0],
            text[first...].starts(with: start) && text[first...].dropFirst(start.count + 13).starts(with: second)
                || AlertPromises.isAlert(text[first...])
        else {
            return nil
        }
        var (depth, isText, index) = (0, false, first)
        while index < text.count {
            switch text[index] {
            case UInt8(ascii: "\""): isText.toggle()
            case UInt8(ascii: "\\") where isText: index += 1
            case UInt8(ascii: "{") where !isText: depth += 1
            case UInt8(ascii: "}") where !isText:
                depth -= 1
                if depth == 0 { return index + 1 }
            default: break
            }
            index += 1
        }
        return nil
    }

    // MARK: While it goes on

    private func entry(of text: String) -> Expectations.Entry {
        if let known = events[text] { return known }
        let entry = world.expectations.begin(plan?.upstream ?? "", lane: nil)
        events[text] = entry
        numbers.insert(entry.number)
        if text.hasPrefix(AlertPromises.startText) {
            entry.ids = world.alerts.sent(text)
            return entry
        }
        let event = Event(text)
        check(event, text)
        reports[Report(id: event.id, state: event.state), default: []].append(entry)
        subjects.insert(event.id)
        if let id = rows(about: event.id, in: .queued).first(where: { !known.contains($0.id) })?.id {
            entry.ids = [id]
            known.insert(id)
        }
        world.promises.coverage.visit("callback: \(event.state)")
        return entry
    }

    private struct Event {
        let id: String
        let state: String
        let key: String?

        init(_ text: String) {
            func member(_ name: String) -> String? {
                text.firstBytes(of: "\"\(name)\":\"").map { String(text[$0.upperBound...].prefix { $0 != "\"" }) }
            }
            (id, state, key) = (member("id") ?? "", member("state") ?? "", member("key"))
        }
    }

    private func check(_ event: Event, _ text: String) {
        if let key = event.key, subjects.contains(key) {
            world.promises.fail("no event is reported", text)
        }
        guard let plan, plan.states.contains(event.state) else {
            return world.promises.fail("only the ends that were chosen are reported", text)
        }
        // What failed or was dropped may be queued again.
        guard event.state == "delivered" || event.state == "expired", let run = world.run,
            let id = MessageID(event.id), let subject = world.expectations.entries.last(where: { $0.ids.contains(id) }),
            !subject.isWaived
        else { return }
        let record = world.weather.quietly { (try? run.gateway.outbox.message(id)) ?? nil }
        guard let record, record.state.name != event.state else { return }
        world.promises.fail("an event is true", "\(subject.mark), \(id), is \(record.state.name): \(text)")
    }

    private func rows(about id: String, in state: MessageState) -> [MessageRecord] {
        guard let plan, let outbox = world.run?.gateway.outbox else { return [] }
        let filter = MessageFilter(upstream: UpstreamName(plan.upstream), state: state, key: id)
        return world.weather.quietly { (try? outbox.messages(filter, after: nil, limit: 100))?.messages ?? [] }
    }

    // MARK: At the end

    func atTheEnd() {
        guard let plan, let run = world.run else { return }
        for entry in world.expectations.entries
        where !entry.isWaived && !entry.isErased && !numbers.contains(entry.number) {
            for id in entry.ids {
                guard let record = (try? run.gateway.outbox.message(id)) ?? nil, plan.states.contains(record.state.name)
                else { continue }
                check(entry, id, record.state.name)
            }
        }
    }

    private func check(_ entry: Expectations.Entry, _ id: MessageID, _ state: String) {
        let seen = reports[Report(id: id.description, state: state), default: []]
        // Neither can be queued again.
        if state == "delivered" || state == "expired", seen.count > 1 + world.restores {
            world.promises.fail("each end is reported once", "\(entry.mark), \(id), was \(state) \(seen.count) times")
        }
        // An operator may have cancelled the event.
        guard !seen.contains(where: { $0.arrivals > 0 || $0.isWaived || $0.isExempt }), !mayBeDropped(about: id) else {
            return
        }
        world.promises.fail("each end is reported", "\(entry.mark), \(id), is \(state), and no event says so")
    }

    /// On a full disk, an event may have been stored as dropped.
    private func mayBeDropped(about id: MessageID) -> Bool {
        guard !world.plan.diskFaults.isEmpty else { return false }
        let isKept = world.plan.settings.retention == SettingsPlan.longestRetention
        return !isKept || !rows(about: id.description, in: .dropped).isEmpty
    }
}
