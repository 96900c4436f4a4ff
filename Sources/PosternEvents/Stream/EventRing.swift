package import PosternCore

/// The latest events, each in the form in which it is sent (WHATWG HTML, section 9.2), for listeners that lag behind or
/// come back. Bounded by the size of that text.
struct EventRing {
    struct Entry {
        let type: EventType
        let upstream: UpstreamName?
        let text: [UInt8]
        /// When it was told.
        let at: Timestamp
        /// Its data, which is JSON, in `text`.
        let data: Range<Int>
    }

    /// What a ring holds at most.
    static let maxBytes = 4 << 20

    private let maxBytes: Int
    /// Distinguishes the ids of this run from those of earlier ones.
    private let run: String
    private(set) var entries: [Entry] = []
    /// The number of the first entry; events are numbered from 1 on.
    private(set) var first = 1
    private var bytes = 0

    init(run: UInt64, maxBytes: Int = Self.maxBytes) {
        self.run = String(run, radix: 16)
        self.maxBytes = maxBytes
    }

    /// The number that the next event gets.
    var next: Int { first + entries.count }

    subscript(_ number: Int) -> Entry { entries[number - first] }

    mutating func append(_ event: PublishedEvent, at moment: Timestamp) {
        var text = Array("id: \(id(next))\nevent: \(event.type.rawValue)\ndata: ".utf8)
        let start = text.count
        text += event.data.utf8
        let end = text.count
        text += "\n\n".utf8
        entries.append(Entry(type: event.type, upstream: event.upstream, text: text, at: moment, data: start..<end))
        bytes += text.count
    }

    /// Removes the oldest events, as many as have to go. Returns whether that was any.
    mutating func trim() -> Bool {
        var surplus = 0
        while bytes > maxBytes, surplus < entries.count - 1 {
            bytes -= entries[surplus].text.count
            surplus += 1
        }
        entries.removeFirst(surplus)
        first += surplus
        return surplus > 0
    }

    /// Forgets all events. The next one does not follow the last: what happens until then is not known.
    mutating func interrupt() {
        first = next + 1
        entries = []
        bytes = 0
    }

    // MARK: As JSON

    /// Events that `filter` admits, as JSON objects, oldest first: those after `id`, or else the latest ones. At most
    /// `limit`, and one more than fits into `maxBytes`. `last` is the id after which to go on, `hasGap` whether events
    /// are missing in between.
    func events(
        after id: String?, _ filter: StreamListener.Filter, limit: Int, maxBytes: Int
    ) -> (events: [String], last: String, hasGap: Bool) {
        var (events, bytes) = ([String](), 0)
        /// Returns whether there is room for more.
        func take(_ number: Int) -> Bool {
            let entry = self[number]
            guard filter.admits(entry) else { return true }
            let data = String(decoding: entry.text[entry.data], as: UTF8.self)
            let (id, type) = (self.id(number), entry.type.rawValue)
            events.append("{\"id\":\"\(id)\",\"type\":\"\(type)\",\"at\":\"\(entry.at)\",\"data\":\(data)}")
            bytes += entry.text.count
            return events.count < limit && bytes < maxBytes
        }
        guard let id else {
            for number in (first..<next).reversed() where !take(number) { break }
            return (events.reversed(), self.id(next - 1), false)
        }
        let start = number(after: id)
        let end = ((start ?? first)..<next).first { !take($0) } ?? next - 1
        return (events, self.id(end), start == nil)
    }

    // MARK: Ids

    func id(_ number: Int) -> String { "\(run)-\(number)" }

    /// The number of the event after the one with this id; nil if events are missing in between, or the id is not one of
    /// this run.
    func number(after id: String) -> Int? {
        let parts = id.split(separator: "-", omittingEmptySubsequences: false)
        guard parts.count == 2, parts[0] == run, let number = Int(parts[1]) else { return nil }
        return (first - 1..<next).contains(number) ? number + 1 : nil
    }

    /// What a listener gets that has missed events. It has the id of the latest event, so that a listener that comes back
    /// misses nothing more.
    var gap: [UInt8] { Array("id: \(id(next - 1))\nevent: gap\ndata: {}\n\n".utf8) }
}

/// An event in the form in which clients get it, here or at another gateway.
package struct PublishedEvent: Sendable, Equatable {
    package let type: EventType
    /// Nil if it concerns more than one.
    package let upstream: UpstreamName?
    /// A JSON object.
    package let data: String

    package init(type: EventType, upstream: UpstreamName?, data: String) {
        (self.type, self.upstream, self.data) = (type, upstream, data)
    }

    init(_ event: Event) {
        (type, upstream) = (event.type, event.upstream)
        let ids = event.ids.map { "\"\($0)\"" }.joined(separator: ",")
        let sdk = event.named.map { ",\"sdk\":\($0.json(event.ids))" } ?? ""
        let upstream = event.upstream.map { "\"\($0)\"" } ?? "null"
        let operation = event.operation.map { ",\"operation\":\(JSONEscapes.quoted($0))" } ?? ""
        let requests = event.requests > 0 ? ",\"requests\":\(event.requests)" : ""
        let by = event.by.map { ",\"by\":\(JSONEscapes.quoted($0))" } ?? ""
        data =
            "{\"upstream\":\(upstream),\"ids\":[\(ids)],\"count\":\(event.count)\(requests)\(sdk)\(operation)\(by)}"
    }
}
