import PosternCore
import PosternTestKit

@testable import PosternAPI
@testable import PosternHTTP

/// An event as a client sees it (WHATWG HTML, section 9.2.6).
struct ReceivedEvent: Equatable {
    var id = ""
    var type = ""
    var data = ""

    var json: JSON { JSON(Array(data.utf8)) }
    var ids: [String] { json["ids"].strings }
}

/// Reads a stream of events, and counts its comments.
struct EventParser {
    private var rest: [UInt8] = []
    private var event = ReceivedEvent()
    private(set) var events: [ReceivedEvent] = []
    private(set) var comments = 0
    private(set) var text = ""

    mutating func read(_ bytes: [UInt8]) {
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

    mutating func takeEvents() -> [ReceivedEvent] {
        defer { events = [] }
        return events
    }
}

/// A client of the gateway that listens.
final class EventClient {
    let head: HTTPClient.Answer
    private let client: HTTPClient
    private(set) var parser = EventParser()
    private var waiting: [ReceivedEvent] = []

    /// Returns once the stream has begun, so that whatever happens from now on is told.
    init(_ port: UInt16, _ query: String = "", headers: [(String, String)] = []) throws {
        client = try HTTPClient(port: port)
        client.sendRequest("GET", "/v1/stream" + query, headers: headers)
        head = try client.answer()
        if head.status == 200 { try read() }
    }

    /// Returns false at the end of the stream.
    @discardableResult private func read() throws -> Bool {
        guard let chunk = try client.nextChunk() else { return false }
        parser.read(chunk)
        waiting += parser.takeEvents()
        return true
    }

    /// The next event. Fails if none comes in time.
    func next() throws -> ReceivedEvent {
        // Comments alone would go on forever.
        let end = parser.comments + 2
        while waiting.isEmpty {
            guard parser.comments < end else { throw HTTPClient.Failure.deadline(got: parser.text) }
            guard try read() else { throw HTTPClient.Failure.closed(got: parser.text) }
        }
        return waiting.removeFirst()
    }

    /// Reads until an event of this type.
    func next(_ type: EventType) throws -> ReceivedEvent {
        while true {
            let event = try next()
            if event.type == type.rawValue { return event }
        }
    }

    /// What comes until the stream ends in good order.
    func rest() throws -> [ReceivedEvent] {
        while try read() {}
        defer { waiting = [] }
        return waiting
    }
}

/// A listener in virtual time, without a connection: the test says when it reads.
final class ManualListener: ResponseTarget, @unchecked Sendable {
    // @unchecked: for the thread of the test only.
    private(set) var listener: StreamListener!
    private(set) var wakes = 0
    private(set) var isCut = false
    private(set) var hasEnded = false
    private(set) var parser = EventParser()
    private let bufferBytes: Int

    init(
        _ stream: EventStream, _ filter: StreamListener.Filter = .init(), lastID: String? = nil, caller: Caller? = nil,
        bufferBytes: Int = 4096
    ) {
        self.bufferBytes = bufferBytes
        let responder = Responder(self, requestNumber: 0)
        listener = StreamListener(filter, lastID: lastID, caller: caller, responder, of: stream)
        responder.hangUp()
    }

    func settle(_ action: ResponseAction, requestNumber: UInt64) {}
    func onHangUp(requestNumber: UInt64, _ action: @escaping @Sendable () -> Void) {}
    func wake(requestNumber: UInt64) { wakes += 1 }
    func cut(requestNumber: UInt64?) { isCut = true }

    /// Reads once. Returns false if there is nothing.
    @discardableResult func readPart() -> Bool {
        var buffer = [UInt8](repeating: 0, count: bufferBytes)
        switch buffer.withUnsafeMutableBytes({ listener.read(into: $0) }) {
        case .bytes(let count):
            parser.read(Array(buffer[..<count]))
            return true
        case .nothing: return false
        case .end:
            hasEnded = true
            return false
        }
    }

    /// Reads all that there is, and returns the events.
    @discardableResult func read() -> [ReceivedEvent] {
        while readPart() {}
        return parser.takeEvents()
    }

    func leave() { listener.ended() }
}
