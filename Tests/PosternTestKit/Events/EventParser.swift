/// An event as a client sees it (WHATWG HTML, section 9.2.6).
package struct ReceivedEvent: Equatable {
    package var id = ""
    package var type = ""
    package var data = ""

    package var json: JSON { JSON(Array(data.utf8)) }
    package var ids: [String] { json["ids"].strings }
}

/// Reads a stream of events, and counts its comments.
package struct EventParser {
    private var rest: [UInt8] = []
    private var event = ReceivedEvent()
    package private(set) var events: [ReceivedEvent] = []
    package private(set) var comments = 0
    package private(set) var text = ""

    package init() {}

    package mutating func read(_ bytes: [UInt8]) {
        text += String(decoding: bytes, as: UTF8.self)
        rest += bytes
        while let end = rest.firstIndex(of: 10) {
            read(line: String(decoding: rest[..<end], as: UTF8.self))
            rest.removeFirst(end + 1)
        }
    }

    private mutating func read(line: String) {
        let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        let value = parts.count > 1 ? String(parts[1].trimmingPrefix(" ")) : ""
        switch parts.first {
        case _ where line.isEmpty:
            if !event.data.isEmpty { events.append(event) }
            event = ReceivedEvent(id: event.id)
        case "": comments += 1
        case "id": event.id = value
        case "event": event.type = value
        case "data": event.data += value
        default: break
        }
    }

    package mutating func takeEvents() -> [ReceivedEvent] {
        defer { events = [] }
        return events
    }
}
