import PosternCore
import PosternUpstream

// What is kept of a session is stored below `s/<its code>`. Each value has one author, since acceptance and delivery
// read and write side by side: what acceptance writes delivery only reads (or removes, when it is no longer needed),
// and the other way round.
//
// The first expires, and all below it with it.
//
// Screens and events with a code of the caller's are found by it, in each session of the visitor. They are remembered for as
// long as their session is, closed or not.
//
// key                       author      value
// s/<session>               acceptance  Session: who, since when, the device block
// s/<session>/o/<mark>      acceptance  OpenInterval: the latest open one without a code that goes by this mark
// s/<session>/u/<open id>   acceptance  OpenInterval: one that the latest of its mark covers
// s/<session>/h/<code>      acceptance  OpenInterval: one with a code
// s/<session>/n/<index>/<…> acceptance  the code of an open one, newest first; by its subject, and by its mark
// s/<session>/c/<close id>  acceptance  OpenInterval: what this queued end closes; removed when the end is delivered
// s/<session>/l             delivery    RemoteSession: how the upstream knows the session
// s/<session>/k/<open id>   delivery    IntervalCode: the outcome of an open; removed when the open ends
// h/<visitor, code>         acceptance  the session of the one with this code; expires by itself

/// A session as its caller started it.
struct Session: Equatable, Sendable {
    var visitor: String
    /// The caller's time, in milliseconds since 1970.
    var startedAt: Int64
    var device: Device
    /// When a request of an SDK was accepted last that quotes it. For the gateway's own API approximately, since it is only
    /// renewed from time to time.
    var touchedAt: Timestamp
    /// Whether its end has been accepted.
    var isEnded = false
    /// Its own timeout, in minutes; nil for that of the settings.
    var timeoutMinutes: Int?
    /// Whether any of its screens and events has a code of the caller's.
    var hasCodes = false
    /// Whether a record of an SDK named it before its start was accepted, if that ever is: the upstream knows it.
    var isAdopted = false
    /// The start and the end that an SDK has reported, of which it may send repeats.
    var start: MessageID?
    var end: MessageID?
}

extension Session {
    /// It is remembered as long as the settings say, from now on.
    func change(of code: String, at now: Timestamp, _ settings: CurioSettings) -> StateChange {
        .set(key: Key.session(code), value: bytes, expiry: expiry(at: now, settings))
    }

    func expiry(at now: Timestamp, _ settings: CurioSettings) -> StateChange.Expiry {
        StateChange.Expiry(at: now + settings.retention(of: self), lane: visitor)
    }

    /// Compared byte by byte, as lanes are.
    func isOf(_ visitor: String) -> Bool { self.visitor.utf8.elementsEqual(visitor.utf8) }

    /// Whether its start was accepted here.
    var hasStarted: Bool { !isAdopted || start != nil }

    /// Whether an SDK may quote it: it has neither ended nor been idle for longer than its timeout.
    func isLive(at now: Timestamp, _ settings: CurioSettings) -> Bool {
        hasStarted && !isEnded && now - touchedAt <= settings.timeout(of: self)
    }
}

/// A screen or an event whose end has not been accepted; with a code, also one that has ended.
struct OpenInterval: Equatable, Sendable {
    var id: MessageID
    var timestamp: Int64
    /// Those of a screen, and of an event with a code, which the end need not repeat.
    var texts: Texts?
    /// The previous open one of the same mark, if it has no code.
    var covers: MessageID?
    /// The caller's code.
    var code: String?
    /// With a code: the hash of its mark, if it has one.
    var markHash: String?
    /// With a code: the end that was accepted.
    var closedBy: MessageID?
    /// Its session, if its end is in another one.
    var session: String?
}

/// How the upstream knows a session.
struct RemoteSession: Equatable, Sendable {
    /// Whether the upstream has accepted its start.
    var isStarted = false
    /// The upstream's code, if it is a replacement of the caller's.
    var replacement: String?
    /// The next code, which has to be created before it is used, because the current one is dead upstream.
    var pending: String?
    /// The number of codes in a row that the upstream reported as dead, since it last accepted something of the
    /// session.
    var rounds = 0
    /// The number of codes in a row with which it refused to create a session.
    var refusedStarts = 0
    /// Why the upstream will never accept its start.
    var refusal: String?
    /// Records up to this message keep an earlier code, with which they were sent before.
    var earlier: Earlier?

    struct Earlier: Equatable, Sendable {
        var code: String
        var through: MessageID
    }

    /// The code that the upstream accepted last, or will accept first.
    func code(of session: String) -> String { replacement ?? session }

    /// The code in a record of `message`.
    func recordCode(of session: String, for message: MessageID) -> String {
        if let earlier, message <= earlier.through { return earlier.code }
        return code(of: session)
    }

    /// The code of a request that creates the session.
    func codeToCreate(_ session: String) -> String { pending ?? code(of: session) }

    /// Whether the session has to be created before anything that needs it alive is sent.
    var mustBeCreated: Bool { !isStarted || pending != nil }
}

/// The code under which the upstream knows a start that it accepted.
enum IntervalCode: Equatable, Sendable {
    case server(String)
    /// It was sent in a batch, with the derived code.
    case own
    /// Accepted, but the response contained no code.
    case missing
    /// Rejected permanently.
    case refused
}

extension Session {
    init?(_ bytes: [UInt8]) {
        let known = RecordReader(bytes, version: 3)
        let extended = known ?? RecordReader(bytes, version: 2)
        guard var record = extended ?? RecordReader(bytes, version: 1) else { return nil }
        visitor = record.text() ?? ""
        startedAt = record.number()
        touchedAt = Timestamp(milliseconds: record.number())
        isEnded = record.flag()
        device = Device(values: Device.names.map { _ in record.text() })
        if extended != nil {
            let minutes = Int(record.number())
            timeoutMinutes = minutes == 0 ? nil : minutes
            hasCodes = record.flag()
        }
        if known != nil {
            isAdopted = record.flag()
            start = record.id()
            end = record.id()
        }
        if record.failed { return nil }
    }

    var bytes: [UInt8] {
        let isOfSDK = isAdopted || start != nil || end != nil
        let isExtended = isOfSDK || timeoutMinutes != nil || hasCodes
        var record = RecordWriter(version: isOfSDK ? 3 : isExtended ? 2 : 1)
        record.add(visitor)
        record.add(startedAt)
        record.add(touchedAt.milliseconds)
        record.add(isEnded)
        for value in device.values { record.add(value) }
        if isExtended {
            record.add(Int64(timeoutMinutes ?? 0))
            record.add(hasCodes)
        }
        if isOfSDK {
            record.add(isAdopted)
            record.add(start?.rawValue ?? 0)
            record.add(end?.rawValue ?? 0)
        }
        return record.bytes
    }
}

extension OpenInterval {
    var subject: Texts.Subject { texts?.subject ?? .event }

    /// With a code: the indexes that contain it until its end.
    var indexes: [String] { [Key.index(of: subject)] + (markHash.map { [$0] } ?? []) }

    init?(_ bytes: [UInt8]) {
        let coded = RecordReader(bytes, version: 2)
        guard var record = coded ?? RecordReader(bytes, version: 1) else { return nil }
        id = MessageID(rawValue: record.number())
        timestamp = record.number()
        covers = record.id()
        let (first, second) = (record.text(), record.text())
        var subject = Texts.Subject.screen
        if coded != nil {
            subject = record.flag() ? .event : .screen
            code = record.text()
            markHash = record.text()
            closedBy = record.id()
            session = record.text()
        }
        if let first, let second { texts = Texts(subject: subject, first: first, second: second) }
        if record.failed { return nil }
    }

    var bytes: [UInt8] {
        var record = RecordWriter(version: code == nil ? 1 : 2)
        record.add(id.rawValue)
        record.add(timestamp)
        record.add(covers?.rawValue ?? 0)
        record.add(texts?.first)
        record.add(texts?.second)
        if let code {
            record.add(texts?.subject == .event)
            record.add(code)
            record.add(markHash)
            record.add(closedBy?.rawValue ?? 0)
            record.add(session)
        }
        return record.bytes
    }
}

extension RemoteSession {
    init?(_ bytes: [UInt8]) {
        guard var record = RecordReader(bytes, version: 1) else { return nil }
        isStarted = record.flag()
        rounds = Int(record.number())
        refusedStarts = Int(record.number())
        replacement = record.text()
        pending = record.text()
        refusal = record.text()
        let through = MessageID(rawValue: record.number())
        earlier = record.text().map { Earlier(code: $0, through: through) }
        if record.failed { return nil }
    }

    var bytes: [UInt8] {
        var record = RecordWriter(version: 1)
        record.add(isStarted)
        record.add(Int64(rounds))
        record.add(Int64(refusedStarts))
        record.add(replacement)
        record.add(pending)
        record.add(refusal)
        record.add(earlier?.through.rawValue ?? 0)
        record.add(earlier?.code)
        return record.bytes
    }
}

extension IntervalCode {
    init?(_ bytes: [UInt8]) {
        guard var record = RecordReader(bytes, version: 1) else { return nil }
        let form = record.number()
        let code = record.text()
        if record.failed { return nil }
        switch (form, code) {
        case (0, let code?): self = .server(code)
        case (1, nil): self = .own
        case (2, nil): self = .missing
        case (3, nil): self = .refused
        default: return nil
        }
    }

    var bytes: [UInt8] {
        var record = RecordWriter(version: 1)
        switch self {
        case .server(let code):
            record.add(Int64(0))
            record.add(code)
            return record.bytes
        case .own: record.add(Int64(1))
        case .missing: record.add(Int64(2))
        case .refused: record.add(Int64(3))
        }
        record.add(String?.none)
        return record.bytes
    }
}

/// Keys of the state.
enum Key {
    static func session(_ code: String) -> String { "s/" + code }
    /// The key of the session that a key is below; nil if it is not below one.
    static func session(above key: String) -> String? {
        let parts = key.split(separator: "/", maxSplits: 2, omittingEmptySubsequences: false)
        return parts.count == 3 ? "\(parts[0])/\(parts[1])" : nil
    }
    static func open(_ subject: Texts.Subject, _ mark: String, of session: String) -> String {
        "s/\(session)/o/\(hash(subject, mark: mark))"
    }
    static func covered(_ open: MessageID, of session: String) -> String { "s/\(session)/u/\(open)" }
    static func closing(_ close: MessageID, of session: String) -> String { "s/\(session)/c/\(close)" }
    static func remote(of session: String) -> String { "s/\(session)/l" }
    static func code(of open: MessageID, in session: String) -> String { "s/\(session)/k/\(open)" }
    static func coded(_ code: String, of session: String) -> String { "s/\(session)/h/\(Code.hash(code))" }
    static func session(ofCode code: String, visitor: String) -> String { "h/\(Code.hash(visitor, code))" }
    /// What the open screens and events of the index are below, in the order of these keys the newest first.
    static func newest(_ index: String, of session: String) -> String { "s/\(session)/n/\(index)" }
    static func newest(_ index: String, _ open: MessageID, of session: String) -> String {
        let digits = String(UInt64(bitPattern: ~open.rawValue), radix: 16)
        return newest(index, of: session) + "/" + digits
    }
    /// The index of all screens, or of all events.
    static func index(of subject: Texts.Subject) -> String { subject == .screen ? "s" : "e" }
    static func hash(_ subject: Texts.Subject, mark: String) -> String { Code.hash("\(subject)", mark) }
}

extension UpstreamState {
    func session(_ code: String) -> Session? {
        value(of: Key.session(code)).flatMap(Session.init)
    }
    /// - Parameter session: What is known of it.
    func remote(of code: String, _ session: Session? = nil) -> RemoteSession {
        value(of: Key.remote(of: code)).flatMap(RemoteSession.init)
            ?? RemoteSession(isStarted: session?.isAdopted ?? false)
    }
    func open(at key: String) -> OpenInterval? { value(of: key).flatMap(OpenInterval.init) }
    func newest(_ index: String, of session: String) -> OpenInterval? {
        values(below: Key.newest(index, of: session), atMost: 1).first
            .flatMap { open(at: Key.coded(String(decoding: $0.value, as: UTF8.self), of: session)) }
    }
    func code(of open: MessageID, in session: String) -> IntervalCode? {
        value(of: Key.code(of: open, in: session)).flatMap(IntervalCode.init)
    }
}
