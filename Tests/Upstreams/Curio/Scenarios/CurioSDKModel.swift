import Foundation
package import PosternCore
package import PosternScenarios

/// Curio's SDKs: what the app does is a row of a table first. A row is sent alone or, with periodic dispatch, with others; what
/// could not be sent goes into an offline batch (the specification's section 9.1).
package struct CurioSDKModel: SDKModel {
    enum Client { case iOS, android }
    private enum Request {
        /// A row, or the read of a notification, alone.
        case online
        case periodic, offline
        /// The start of another session, in place of one that is not live.
        case renewal
    }
    private struct Flight {
        let number: Int
        let request: Request
        /// Empty for the read of a notification.
        let rows: [CurioSDKRow]
        let session: String
        let sentAt: Timestamp
    }
    private static let mostRecords = 250
    private static let mostRounds = 5
    private static let mostFailures = 5
    /// That of its sessions, without the time that a request takes.
    private static let sessionTimeout = Duration.seconds(30 * 60 - 60)

    private let client: Client
    private let form: CurioSDKForm
    private let isPeriodic: Bool
    private let number: Int
    /// Whether it is in front of the platform itself, which refuses while it is not available. The gateway must not.
    private let isAtPlatform: Bool
    /// In the order in which they happened.
    private var rows: [CurioSDKRow] = []
    /// Reads of notifications, which are in no batch.
    private var reads: [Expectations.Entry] = []
    private var inFlight: Flight?
    private var isRunning = false
    private var isReading = false
    private var session: String?
    private var start: Expectations.Entry?
    /// When the latest request was sent that was accepted in a session that has not ended.
    private var used: [String: Timestamp] = [:]
    /// What has taken the place of a session that was not live, and that has to be begun first.
    private var renewed: [String: String] = [:]
    private var toBegin: String?
    /// The rows that have begun what is open.
    private var screen: CurioSDKRow?
    private var event: CurioSDKRow?
    /// By the row that has begun what has the code.
    private var codes: [Int: String] = [:]
    private var rounds = 0
    /// Failures of offline batches in a row.
    private var failures = 0
    /// The sessions whose starts it has deleted.
    private var lostStarts: Set<String> = []
    private var sessions = 0
    private var requests = 0
    private var rowNumbers = 0

    package init(_ device: SDKDevice, isAtPlatform: Bool = false) {
        number = device.number
        client = device.random.chance(0.5) ? .iOS : .android
        isPeriodic = device.random.chance(0.5)
        form = CurioSDKForm(client, visitor: "app-\(device.number)")
        self.isAtPlatform = isAtPlatform
    }

    package var isEmpty: Bool { rows.isEmpty && reads.isEmpty && inFlight == nil }

    // MARK: The app

    package mutating func use(_ stage: Stage, poison: Double) {
        for _ in 0..<(stage.random.chance(0.3) ? stage.random.from(2...5) : 1) { act(stage, poison) }
        if !isPeriodic { isRunning = true }
    }

    private mutating func act(_ stage: Stage, _ poison: Double) {
        guard session != nil else { return begin(stage) }
        switch stage.random.below(10) {
        case 0:
            add(.end, stage)
            (session, screen, event, isRunning) = (nil, nil, nil, true)
        case 1, 2, 3:
            let closed = screen
            let row = add(closed == nil ? .screen : .screenEnd, stage, closing: closed)
            screen = closed == nil ? row : nil
        case 4:
            let entry = stage.beginOfSDK("notification_read", lane: nil)
            entry.isNeeded = true
            reads.append(entry)
            isReading = true
        default:
            let closed = event
            let isPoison = closed == nil && stage.random.chance(poison)
            let row = add(closed == nil ? .event : .eventEnd, stage, closing: closed, isPoison: isPoison)
            // What is refused cannot be ended.
            event = closed == nil && !isPoison ? row : nil
        }
    }

    private mutating func begin(_ stage: Stage) {
        session = newSession()
        add(.start, stage)
        isRunning = true
    }

    private mutating func newSession() -> String {
        sessions += 1
        return "6e\(hexadecimal(sessions, 6))-a21d-11e4-8123-3\(hexadecimal(number, 11))"
    }

    @discardableResult
    private mutating func add(
        _ kind: CurioSDKRow.Kind, _ stage: Stage, closing: CurioSDKRow? = nil, isPoison: Bool = false
    ) -> CurioSDKRow {
        rowNumbers += 1
        var entry: Expectations.Entry?
        if let name = kind.messageKind {
            let begun = stage.beginOfSDK(name, lane: form.visitor, isPoison: isPoison)
            // What ends it has nothing to end without it. A code is that of one message, as a session's start is.
            (begun.isNeeded, begun.isKnownAgain) = (!isPoison, kind == .start || isPeriodic)
            (begun.mayRepeat, begun.mayBeCollected) = (kind == .start, kind != .start)
            if kind == .start { start = begun } else { begun.start = start }
            entry = begun
        }
        // The sender makes the codes of what is sent together.
        if isPeriodic, kind == .screen || kind == .event {
            codes[rowNumbers] = ownCode(of: rowNumbers)
        }
        let row = CurioSDKRow(
            number: rowNumbers, kind: kind, session: session ?? "", time: stage.now.milliseconds, entry: entry,
            text: closing?.text ?? entry?.mark ?? "", value: closing?.value ?? (isPoison ? "clear" : "1"),
            opens: closing?.number)
        rows.append(row)
        return row
    }

    private func ownCode(of row: Int) -> String {
        "\(hexadecimal(row, 8))-0000-4000-9000-\(hexadecimal(number, 12))"
    }

    // MARK: Requests

    package mutating func calls(at now: Timestamp, timerFired: Bool) -> [SDKCall] {
        if timerFired { (isRunning, isReading) = (true, true) }
        guard inFlight == nil else { return [] }
        if rows.isEmpty { isRunning = false }
        // A session that has not begun would be renewed, and its own start would be a repeat then.
        let begins = rows.contains { $0.kind == .start && $0.session == session }
        if reads.isEmpty || session == nil || begins { isReading = false }
        if let toBegin, isRunning || isReading { return [send(.renewal, [], in: toBegin, at: now)] }
        if isRunning, let first = rows.first {
            let current = renewed[first.session] ?? first.session
            func leading(_ belongs: (CurioSDKRow) -> Bool) -> [CurioSDKRow] {
                Array(rows.prefix(Self.mostRecords).prefix(while: belongs))
            }
            if first.isOffline { return [send(.offline, leading(\.isOffline), in: current, at: now)] }
            guard isOfPeriod(first) else { return [send(.online, [first], in: current, at: now)] }
            return [send(.periodic, leading { $0.session == first.session && isOfPeriod($0) }, in: current, at: now)]
        }
        guard isReading, let session else { return [] }
        return [send(.online, [], in: renewed[session] ?? session, at: now)]
    }

    private func isOfPeriod(_ row: CurioSDKRow) -> Bool {
        isPeriodic && !row.isOffline && row.kind != .start && row.kind != .end
    }

    private mutating func send(
        _ request: Request, _ sent: [CurioSDKRow], in session: String, at now: Timestamp
    ) -> SDKCall {
        requests += 1
        for row in sent where row.kind == .end { (used[row.session], used[session]) = (nil, nil) }
        let sent = sent.map { row in
            var row = row
            let begun = row.opens ?? row.number
            // The simulator takes no record without a code.
            if isAtPlatform, request == .offline, codes[begun] == nil { codes[begun] = ownCode(of: begun) }
            row.code = codes[begun]
            return row
        }
        inFlight = Flight(number: requests, request: request, rows: sent, session: session, sentAt: now)
        let (path, body) =
            switch request {
            case .online: sent.first.map { form.online($0, in: session) } ?? form.read(reads[0].mark, in: session)
            case .periodic: form.batch(sent, in: session)
            case .offline: form.offline(sent)
            case .renewal: form.start(session, model: "iPhone")
            }
        // The device block has the mark of one start.
        let unmarked = sent.filter { $0.kind == .start }.dropFirst().map(\.number)
        let marked = sent.filter { !unmarked.contains($0.number) }.compactMap(\.entry)
        let entries = request == .online && sent.isEmpty ? [reads[0]] : marked
        return SDKCall(
            requests, path, headers: [("Content-Type", "application/x-www-form-urlencoded")], body: body, entries)
    }

    // MARK: Answers

    package mutating func take(_ reply: SDKReply?, to call: SDKCall) -> SDKVerdict {
        guard let flight = inFlight, flight.number == call.number else { return .kept }
        inFlight = nil
        switch reply?.status {
        case 200:
            succeed(flight, reply?.text ?? "")
            return .accepted
        case 401 where flight.request == .online && flight.rows.first?.kind != .start || flight.request == .periodic:
            let lastUsed = used[flight.session]
            renew(flight)
            if let lastUsed, flight.sentAt - lastUsed < Self.sessionTimeout {
                return .forgotten("401 in session \(flight.session), which was used \(flight.sentAt - lastUsed) before")
            }
        case nil: fail(flight)
        case let status? where isAtPlatform && (status == 503 || status == 401): fail(flight)
        case let status?:
            fail(flight)
            return .unexpected("\(status) \(reply?.text ?? "")")
        }
        return .kept
    }

    private mutating func succeed(_ flight: Flight, _ text: String) {
        if flight.request != .offline, !flight.rows.contains(where: { $0.kind == .end }) {
            used[flight.session] = flight.sentAt
        }
        if flight.request == .renewal { return toBegin = nil }
        rounds = 0
        if flight.request == .offline { failures = 0 }
        guard let row = flight.rows.first else { return _ = reads.removeFirst() }
        let numbers = Set(flight.rows.map(\.number))
        rows.removeAll { numbers.contains($0.number) }
        guard flight.request == .online, row.opens == nil else { return }
        let object = try? JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any]
        if let code = object?["hitCode"] ?? object?["eventCode"] { codes[row.number] = "\(code)" }
    }

    /// It begins another session, and makes the request again.
    private mutating func renew(_ flight: Flight) {
        rounds += 1
        guard rounds <= Self.mostRounds, flight.rows.first?.kind != .end else { return fail(flight) }
        let code = newSession()
        toBegin = code
        if let begun = flight.rows.first?.session ?? session { renewed[begun] = code }
    }

    private mutating func fail(_ flight: Flight) {
        (isRunning, isReading, rounds) = (false, false, 0)
        let numbers = Set(flight.rows.map(\.number))
        switch flight.request {
        case .renewal: break
        case .offline:
            failures += 1
            if client == .android, failures == Self.mostFailures { dropCache() }
        // Android keeps what it collects for the next period.
        case .periodic where client == .android: break
        case .online, .periodic:
            for index in rows.indices where numbers.contains(rows[index].number) { rows[index].isOffline = true }
        }
    }

    /// What has failed offline too often is deleted; the app does not end what was in it.
    private mutating func dropCache() {
        failures = 0
        let dropped = Set(rows.filter(\.isOffline).map(\.number))
        lostStarts.formUnion(rows.filter { $0.isOffline && $0.kind == .start }.map(\.session))
        rows.removeAll { dropped.contains($0.number) || $0.opens.map(dropped.contains) ?? false }
        if let screen, dropped.contains(screen.number) { self.screen = nil }
        if let event, dropped.contains(event.number) { self.event = nil }
    }

    /// The app goes on in a session whose start was deleted, or in one that is not live, and that may be forgotten: then it
    /// gets the device block of the request.
    package func explains(_ violation: String) -> Bool {
        lostStarts.contains { violation.hasSuffix("a record before the start of session \($0)") }
            || renewed.keys.contains { violation.hasSuffix("a record with another device block than session \($0)") }
    }

    /// What has no batch needs a session.
    package mutating func finish() {
        guard session == nil, !reads.isEmpty else { return }
        let code = newSession()
        (session, toBegin, isReading) = (code, code, true)
    }
}
