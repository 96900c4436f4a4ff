import PosternCore
import PosternUpstream

/// Validates events, and fills in defaults (the specification's "Event schema" and "Defaults").
struct SamsaraValidation: Sendable {
    /// The configured `sourceId` as JSON, and its lane.
    private let defaultSource: (text: [UInt8], lane: Lane)?
    private let addsID: Bool
    private let maxBytes: Int

    init(sourceID: String?, addsID: Bool, maxBytes: Int) {
        defaultSource = sourceID.map { (Array(JSONEscapes.quoted($0).utf8), .digest(of: $0.utf8)) }
        self.addsID = addsID
        self.maxBytes = maxBytes
    }

    func validate(_ payload: JSONValue, in context: ValidationContext) throws(InvalidPayload) -> ValidPayload {
        guard payload.kind == .object else { throw InvalidPayload([PayloadError("", "must be an object")]) }
        let event = Event(payload)
        var faults = PayloadErrors(atMost: context.maxFaults)
        var defaults = Defaults()

        if let timestamp = event.timestamp, timestamp.kind != .null {
            if timestamp.integer.map({ $0 < 0 }) ?? true {
                faults.add("/timestamp", "must be an integer from 0 to \(Int64.max): milliseconds since 1970")
            }
        } else {
            defaults.set("timestamp", to: Array(String(context.acceptedAt.milliseconds).utf8), at: event.timestamp)
        }
        let lane = lane(of: event, &defaults, &faults)
        if !(event.eventName?.isFilledIn ?? false) { faults.add("/eventName", "must be a non-blank string") }
        Self.check(event.receivedAt, "/receivedAt", &faults)
        Self.check(event.publishedAt, "/publishedAt", &faults)
        if addsID, event.id?.kind ?? .null == .null {
            let quote = UInt8(ascii: "\"")
            defaults.set("id", to: [quote] + UUIDText.version4(context.random()) + [quote], at: event.id)
        }

        let size = payload.bytes.count + defaults.growth
        if size > maxBytes { faults.add("", "must not have more than \(maxBytes) bytes; it has \(size)") }
        guard faults.isEmpty else { throw InvalidPayload(faults) }
        return ValidPayload(lane: lane, rewritten: defaults.isEmpty ? nil : defaults.written(into: payload))
    }

    /// A time that the server sets if it is missing.
    private static func check(_ time: JSONValue?, _ pointer: String, _ faults: inout PayloadErrors) {
        guard let time, !time.isIntegerLiteral, time.kind != .null else { return }
        faults.add(pointer, "must be an integer or null")
    }

    /// Returns the event's `sourceId`, or its replacement.
    private func lane(of event: Event, _ defaults: inout Defaults, _ faults: inout PayloadErrors) -> Lane {
        if let source = event.sourceID, source.kind != .null {
            guard source.isFilledIn else {
                faults.add("/sourceId", "must be a non-blank string")
                return .none
            }
            return .digest(of: source)
        }
        if let defaultSource {
            defaults.set("sourceId", to: defaultSource.text, at: event.sourceID)
            return defaultSource.lane
        }
        if let device = event.deviceID, device.isFilledIn {
            defaults.set("sourceId", to: Array(device.bytes), at: event.sourceID)
            return .digest(of: device)
        }
        faults.add("/sourceId", "must be a non-blank string: the event has no UDID, the upstream no setting sourceId")
        return .none
    }
}

/// The relevant members of an event, found in one pass.
struct Event {
    var timestamp: JSONValue?
    var sourceID: JSONValue?
    var eventName: JSONValue?
    var receivedAt: JSONValue?
    var publishedAt: JSONValue?
    var id: JSONValue?
    /// The device's id in Samsara's iOS client.
    var deviceID: JSONValue?

    /// The lengths of their names, one bit each: most other names are excluded by that alone.
    private static let lengths: UInt16 = 1 << 2 | 1 << 4 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11

    init(_ payload: JSONValue) {
        for (key, value) in payload.members {
            guard key.hasEscapes || Self.lengths >> key.rawString.count & 1 == 1 else { continue }
            if key.equals("timestamp") {
                timestamp = value
            } else if key.equals("sourceId") {
                sourceID = value
            } else if key.equals("eventName") {
                eventName = value
            } else if key.equals("receivedAt") {
                receivedAt = value
            } else if key.equals("publishedAt") {
                publishedAt = value
            } else if key.equals("id") {
                id = value
            } else if key.equals("UDID") {
                deviceID = value
            }
        }
    }
}

/// Values that an event lacks. They are inserted into its text, in place of a `null` or directly after the opening
/// brace; every other byte is kept.
private struct Defaults {
    private var members: [UInt8] = []
    private var instead: [Replacement] = []

    private struct Replacement {
        let range: Range<Int>
        let text: [UInt8]
    }

    var isEmpty: Bool { members.isEmpty && instead.isEmpty }

    /// The number of bytes by which the text grows. The object is not empty, or it would have been rejected.
    var growth: Int { instead.reduce(members.count) { $0 + $1.text.count - $1.range.count } }

    mutating func set(_ name: StaticString, to text: [UInt8], at null: JSONValue?) {
        if let null { return instead.append(Replacement(range: null.range, text: text)) }
        members.append(UInt8(ascii: "\""))
        name.withUTF8Buffer { members.append(contentsOf: $0) }
        members += [UInt8(ascii: "\""), UInt8(ascii: ":")] + text + [UInt8(ascii: ",")]
    }

    func written(into payload: JSONValue) -> [UInt8] {
        let bytes = payload.bytes
        let start = payload.range.lowerBound
        var text: [UInt8] = []
        text.reserveCapacity(bytes.count + growth)
        text.append(bytes[0])
        text += members
        var copied = 1
        for value in instead.sorted(by: { $0.range.lowerBound < $1.range.lowerBound }) {
            text += bytes[copied..<value.range.lowerBound - start]
            text += value.text
            copied = value.range.upperBound - start
        }
        return text + bytes[copied...]
    }
}

extension JSONValue {
    /// A string that is neither empty nor blank.
    fileprivate var isFilledIn: Bool { kind == .string && !isBlankString }
}
