import PosternCore
import PosternUpstream

/// What may be posted to an upstream of this type.
enum CurioKind: String, CaseIterable, Sendable {
    case sessionStart = "session_start"
    case sessionEnd = "session_end"
    case screenStart = "screen_start"
    case screenEnd = "screen_end"
    case event
    case eventEnd = "event_end"
    case pushToken = "push_token"
    case notificationRead = "notification_read"
    case customID = "custom_id"
    case location
    case userTags = "user_tags"
    case unregister

    init?(_ kind: Kind) { self.init(rawValue: kind.description) }

    /// Whether it can be part of a batch, and so be delivered late with its own time.
    var isBatchable: Bool {
        switch self {
        case .sessionStart, .sessionEnd, .screenStart, .screenEnd, .event, .eventEnd: true
        case .pushToken, .notificationRead, .customID, .location, .userTags, .unregister: false
        }
    }

    /// Screens and events, the only ones that periodic dispatch carries.
    var isPeriodic: Bool {
        switch self {
        case .screenStart, .screenEnd, .event, .eventEnd: true
        case .sessionStart, .sessionEnd, .pushToken, .notificationRead, .customID, .location, .userTags, .unregister:
            false
        }
    }
}

/// A parsed payload. It has been validated before, so it contains everything that its kind requires.
struct Action: Equatable, Sendable {
    let kind: CurioKind
    let visitor: String
    /// The caller's code of the session.
    let session: String
    /// When it happened, in milliseconds since 1970.
    let timestamp: Int64
    let content: Content
    /// The batch of an SDK that it came in; nil for what was reported alone.
    var sentIn: SDKBatch.Form?

    enum Content: Equatable, Sendable {
        /// `timeout`: the session's own, in minutes.
        case sessionStart(Device, timeout: Int?)
        case sessionEnd
        /// The end that belongs to this start has the same code, or has none and the same mark. There is one of the two.
        case open(Texts, mark: String?, code: String?)
        /// `texts` is nil if the caller does not repeat those of the start.
        /// With neither a code nor a mark, it closes the latest one, whatever that is: an SDK has forgotten the code.
        case close(Texts?, duration: Int64?, mark: String?, code: String?)
        /// Kinds without a batch form, with their parameters in addition to those of every request.
        case direct([Parameter])
    }

    struct Parameter: Equatable, Sendable {
        let name: String
        let value: String
    }
}

/// The two texts of a screen or an event, which are encoded twice.
struct Texts: Equatable, Sendable {
    enum Subject: UInt8, Sendable { case screen, event }
    let subject: Subject
    /// Title or key.
    let first: String
    /// Path or value.
    let second: String
}

/// The device block of a session: the device's description in `visit/create` and offline batches.
struct Device: Equatable, Sendable {
    /// In the order of the names; nil if the caller omitted the value.
    let values: [String?]

    static let required: [StaticString] = [
        "screenWidth", "screenHeight", "lang", "simOperator", "simOpCountry", "networkOpName", "connType", "brand",
        "model", "osType", "osVer", "curioSdkVer", "appVer",
    ]
    static let names = required + ["batteryLevel", "bluetooth", "storage", "activityWidth", "activityHeight"]

    /// Compared byte by byte: to Swift, `é` and `e` with a combining accent are equal, and a batch has one device block.
    static func == (left: Self, right: Self) -> Bool {
        left.values.elementsEqual(right.values) { left, right in
            switch (left, right) {
            case (nil, nil): true
            case (let left?, let right?): left.utf8.elementsEqual(right.utf8)
            case (nil, _?), (_?, nil): false
            }
        }
    }
}

extension Action {
    /// Nil if the payload is not one of this type.
    init?(_ message: Message) {
        guard let kind = CurioKind(message.kind) else { return nil }
        self.init(message.payload, of: kind)
    }

    init?(_ payload: [UInt8], of kind: CurioKind) {
        guard
            case .success(let action?) = JSONParser.ofThisThread.parseWithLoneSurrogates(
                payload, { Action($0, of: kind) })
        else { return nil }
        self = action
    }

    /// The time of a location that has none, 9999-12-31: it counts as just accepted, as all times ahead of the clock do.
    private static let notGiven: Int64 = 253_402_300_799_999

    /// Nil unless it is a screen or an event.
    var subject: Texts.Subject? {
        switch kind {
        case .screenStart, .screenEnd: .screen
        case .event, .eventEnd: .event
        case .sessionStart, .sessionEnd, .pushToken, .notificationRead, .customID, .location, .userTags, .unregister:
            nil
        }
    }

    /// The caller's code of a screen or an event.
    var code: String? {
        switch content {
        case .open(_, _, let code), .close(_, _, _, let code): code
        case .sessionStart, .sessionEnd, .direct: nil
        }
    }

    /// Nil if this version would not accept the payload.
    init?(_ payload: JSONValue, of kind: CurioKind) {
        guard let visitor = payload["visitorCode"]?.string, let session = payload["sessionCode"]?.string,
            let timestamp = payload["timestamp"]?.integer ?? (kind == .location ? Self.notGiven : nil),
            let content = Content(payload, of: kind)
        else { return nil }
        self.init(
            kind: kind, visitor: visitor, session: session, timestamp: timestamp, content: content,
            sentIn: payload["sentIn"]?.string.flatMap(SDKBatch.Form.init))
    }
}

extension Action.Content {
    fileprivate init?(_ payload: JSONValue, of kind: CurioKind) {
        switch kind {
        case .sessionStart:
            self = .sessionStart(
                Device(values: Device.names.map { payload[$0]?.plainText }),
                timeout: payload["sessionTimeout"]?.integer.map { Int($0) })
        case .sessionEnd: self = .sessionEnd
        case .screenStart, .screenEnd:
            let (mark, code) = (payload["screenClass"]?.string, payload["hitCode"]?.string)
            var texts: Texts?
            if let title = payload["pageTitle"]?.string, let path = payload["path"]?.string {
                texts = Texts(subject: .screen, first: title, second: path)
            }
            if kind == .screenStart {
                guard let texts, mark != nil || code != nil else { return nil }
                self = .open(texts, mark: mark, code: code)
            } else {
                self = .close(texts, duration: nil, mark: mark, code: code)
            }
        case .event, .eventEnd:
            let code = payload["eventCode"]?.string
            var texts: Texts?
            if let key = payload["eventKey"]?.string, let value = payload["eventValue"]?.string {
                texts = Texts(subject: .event, first: key, second: value)
            }
            // No text contains a NUL.
            let mark = texts.map { $0.first + "\0" + $0.second }
            if kind == .event {
                guard let texts else { return nil }
                self = .open(texts, mark: mark, code: code)
            } else {
                guard let duration = payload["eventDuration"]?.integer else { return nil }
                self = .close(texts, duration: duration, mark: mark, code: code)
            }
        case .pushToken: self = .direct([.init("pushId", "")] + Self.given(payload, "pushToken", "customId"))
        case .notificationRead, .customID:
            let id = payload["pushId"]?.string ?? payload["userInfo"]?["pId"]?.string ?? ""
            let read = id.isEmpty ? [] : [Action.Parameter("pushId", id)]
            self = .direct((read.isEmpty ? [.init("pushId", "")] : read) + Self.given(payload, "pushToken", "customId"))
        case .location: self = .direct(Self.given(payload, "lat", "long"))
        case .userTags: self = .direct([.init("userTags", payload["userTags"]?.compactTexts ?? "{}")])
        case .unregister: self = .direct(Self.given(payload, "customId", "pushToken"))
        }
    }

    /// The values that are present and not empty.
    private static func given(_ payload: JSONValue, _ names: StaticString...) -> [Action.Parameter] {
        names.compactMap { name in
            guard let text = payload[name]?.plainText, !text.isEmpty else { return nil }
            return .init("\(name)", text)
        }
    }
}

extension Action.Parameter {
    fileprivate init(_ name: String, _ value: String) {
        self.name = name
        self.value = value
    }
}

extension JSONValue {
    /// A string's value; a number as it is spelled, except `-0`, and without an exponent. Nil for a number that is too
    /// long for that.
    var plainText: String? {
        switch kind {
        case .string: return string
        case .number where bytes.contains(where: { $0 | 0x20 == UInt8(ascii: "e") }):
            let number = DecimalLiteral(self)
            guard number.length <= Self.longestDecimal else { return nil }
            return String(unsafeUninitializedCapacity: number.length) { number.write(to: $0) }
        case .number:
            return bytes.elementsEqual("-0".utf8) ? "0" : String(decoding: bytes, as: UTF8.self)
        case .object, .array, .true, .false, .null: return nil
        }
    }

    /// In bytes. No coordinate is nearly as long, and `1e-300` has 302 characters without its exponent.
    static let longestDecimal = 400

    /// An object of strings, without white space or needless escapes.
    fileprivate var compactTexts: String {
        let texts = members.map { JSONEscapes.quoted($0.string ?? "") + ":" + JSONEscapes.quoted($1.string ?? "") }
        return "{" + texts.joined(separator: ",") + "}"
    }
}
