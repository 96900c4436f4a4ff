import PosternCore

@testable import PosternStore

/// What a store has promised: for each payload handed to it, where it may be found.
struct StoreExpectations {
    enum Place: Hashable, Sendable {
        case nowhere
        case stored(MessageState)
    }

    struct Entry {
        let text: String
        var id: MessageID?
        /// Where a restart may find it.
        var places: Set<Place> = [.nowhere, .stored(.queued)]
    }

    private(set) var entries: [Entry] = []
    /// Of what a restart has not found: how many the store had acknowledged.
    private(set) var lost = 0
    private var byID: [MessageID: Int] = [:]

    /// A payload of its own for each.
    mutating func add(length: Int) -> (number: Int, text: String) {
        let number = entries.count
        let text = "{\"n\":\(number),\"text\":\"\(String(repeating: "x", count: length))\"}"
        entries.append(Entry(text: text))
        return (number, text)
    }

    // MARK: What the store answers

    mutating func accepted(_ number: Int, as id: MessageID) {
        entries[number].id = id
        entries[number].places = [.stored(.queued)]
        byID[id] = number
    }

    mutating func refused(_ number: Int) { entries[number].places = [.nowhere] }

    /// A change was asked for.
    mutating func mayBe(_ place: Place, _ ids: [MessageID]) {
        for id in ids { byID[id].map { _ = entries[$0].places.insert(place) } }
    }

    /// The store answered that the change was made.
    mutating func became(_ place: Place, _ ids: [MessageID]) {
        for id in ids { byID[id].map { entries[$0].places = [place] } }
    }

    /// The store answered that the change was not made.
    mutating func isNot(_ place: Place, _ ids: [MessageID]) {
        for id in ids { byID[id].map { _ = entries[$0].places.remove(place) } }
    }

    func isExpected(_ message: Message) -> Bool {
        byID[message.id].map { entries[$0].text.utf8.elementsEqual(message.payload) } ?? false
    }

    /// Messages that can be in one place only.
    func ids(in place: Place) -> [MessageID] { entries.filter { $0.places == [place] }.compactMap(\.id) }

    /// Messages that can be in a place, perhaps among others.
    func ids(thatMayBeIn place: Place) -> [MessageID] { entries.filter { $0.places.contains(place) }.compactMap(\.id) }

    // MARK: What a restart finds

    /// Compares the rows with the promises. Returns what does not agree.
    mutating func findings(in outbox: Outbox, of number: UpstreamNumber, isDurable: Bool) throws -> [String] {
        var found: [MessageID: (place: Place, text: String?)] = [:]
        try outbox.read { sql in
            try sql.each("SELECT id, payload FROM queued_#", of: number) {
                found[$0[0]] = (.stored(.queued), String(decoding: $0[1] as [UInt8], as: UTF8.self))
            }
            try sql.each("SELECT id FROM received_#", of: number) { found[$0[0]] = (.stored(.delivered), nil) }
            try sql.each("SELECT id, state FROM ended_#", of: number) { found[$0[0]] = (.stored($0[1]), nil) }
        }
        identify(found.compactMapValues(\.text))
        var findings: [String] = []
        for index in entries.indices {
            let entry = entries[index]
            let row = entry.id.flatMap { found.removeValue(forKey: $0) }
            let place = row?.place ?? .nowhere
            if !entry.places.contains(place) {
                if place == .nowhere { lost += 1 }
                findings.append(
                    "payload \(index) (\(entry.id.map { "\($0)" } ?? "-")) is \(place), not \(entry.places)")
            }
            if let text = row?.text, text != entry.text { findings.append("payload \(index) was changed") }
            if isDurable { entries[index].places = [place] }
        }
        findings += found.keys.sorted().map { "\($0) was never handed in" }
        return findings
    }

    /// Finds out the ids of messages whose acceptance was not answered.
    private mutating func identify(_ texts: [MessageID: String]) {
        let open = Dictionary(
            uniqueKeysWithValues: entries.indices.filter { entries[$0].id == nil }.map { (entries[$0].text, $0) })
        for (id, text) in texts where byID[id] == nil {
            guard let number = open[text] else { continue }
            entries[number].id = id
            byID[id] = number
        }
    }
}
