import PosternConformance
import PosternCore
import PosternTestKit
import Testing

@testable import CurioAdapter

/// Whatever happens on the way, a visitor's actions arrive in their order, each at least once, and ends quote the codes
/// of their opens.
@Suite struct CurioOrderTests {
    @Test(arguments: 0..<24)
    func actions_arriveInOrder_withTheRightCodes(seed: UInt64) throws {
        var dice = SplitMix64(state: seed)
        let isPeriodic = seed % 3 == 0
        var harness = try CurioHarness([
            "periodicDispatchEnabled": .bool(isPeriodic), "dispatchPeriodMinutes": .integer(2),
        ])
        var server = ModelServer(codeForm: Int(seed % 4))
        var caller = Caller()
        var posted: [String] = []
        for _ in 0..<60 {
            for _ in 0..<dice.roll(4) {
                let (sample, name) = caller.next(at: harness.now, &dice)
                try harness.post(sample)
                posted.append(name)
            }
            for _ in 0..<dice.roll(6) { try play(&harness, &server, &dice, troubles: true) }
            harness.now = harness.now + .seconds(dice.roll(20) == 0 ? 600 : dice.roll(20))
        }
        // The trouble ends; a lane that waits for its period gets there.
        for _ in 0..<2000 where !harness.queue.isEmpty {
            if case .waits(let until) = try play(&harness, &server, &dice, troubles: false) { harness.now = until }
        }
        #expect(harness.queue.isEmpty)
        #expect(server.faults.isEmpty, "\(server.faults.prefix(5))")
        #expect(server.arrivals == posted)
        #expect(harness.settled.allSatisfy { $0.state == .delivered })
    }

    @discardableResult
    private func play(
        _ harness: inout CurioHarness, _ server: inout ModelServer, _ dice: inout SplitMix64, troubles: Bool
    )
        throws
        -> CurioHarness.Turn
    {
        try harness.turn { request in
            guard troubles else { return server.answer(request) }
            switch dice.roll(12) {
            case 0: return UpstreamResponse(status: [500, 503, 429, 412, 404][dice.roll(5)])
            case 1: return nil
            case 2:
                // It arrives, but the answer is lost.
                server.loseAnswer(to: request)
                return nil
            case 3: server.forgetSessions()
            default: break
            }
            return server.answer(request)
        }
    }
}

/// A visitor's traffic: one session after the other, screens inside screens, events open and closed.
private struct Caller {
    private var sessions = 0
    private var code = ""
    private var isOpen = false
    private var count = 0
    /// Class and title of the open screens, key of the open events.
    private var screens: [(mark: String, title: String)] = []
    private var events: [String] = []

    mutating func next(at now: Timestamp, _ dice: inout SplitMix64) -> (UpstreamFixture.Sample, name: String) {
        count += 1
        // Devices report late at times.
        let timestamp = now.milliseconds - Int64(dice.roll(8) == 0 ? 500_000 : dice.roll(1000))
        func make(_ kind: Kind, _ members: String...) -> UpstreamFixture.Sample {
            let text = members.isEmpty ? "" : "," + members.joined(separator: ",")
            let common = #""visitorCode":"v","sessionCode":"\#(code)","timestamp":\#(timestamp)"#
            return UpstreamFixture.Sample(kind, "{\(common)\(text)}")
        }
        guard isOpen else {
            sessions += 1
            isOpen = true
            screens = []
            events = []
            code = Code.session(
                at: Timestamp(milliseconds: 1_421_920_800_000), clockSequence: UInt64(sessions), node: 7)
            return (make("session_start", CurioSample.device), "start")
        }
        switch dice.roll(10) {
        case 0:
            isOpen = false
            return (make("session_end"), "end")
        case 1...3:
            let mark = "c\(dice.roll(2))"
            screens.append((mark, "t\(count)"))
            return (
                make("screen_start", #""screenClass":"\#(mark)","pageTitle":"t\#(count)","path":"/&+%""#),
                "open t\(count)"
            )
        case 4...5:
            guard let index = screens.indices.randomElement(using: &dice) else { fallthrough }
            let mark = screens[index].mark
            guard let latest = screens.lastIndex(where: { $0.mark == mark }) else { fallthrough }
            let screen = screens.remove(at: latest)
            return (make("screen_end", #""screenClass":"\#(screen.mark)""#), "close \(screen.title)")
        case 6...7:
            events.append("k\(count)")
            return (make("event", #""eventKey":"k\#(count)","eventValue":"""#), "open k\(count)")
        case 8:
            guard !events.isEmpty else { fallthrough }
            let key = events.remove(at: dice.roll(events.count))
            return (make("event_end", #""eventKey":"\#(key)","eventValue":"","eventDuration":1"#), "close \(key)")
        default: return (make("custom_id", #""pushToken":"p","customId":"u\#(count)""#), "id u\(count)")
        }
    }
}

/// What Curio is to this test: sessions that live and die, and codes.
private struct ModelServer {
    /// How its codes look: strings, numbers, none, or one after the other.
    let codeForm: Int
    private(set) var faults: [String] = []
    /// What came for the first time, in order.
    private(set) var arrivals: [String] = []
    private var seen: Set<String> = []
    private var live: Set<String> = []
    private var dead: Set<String> = []
    private var unheard: Set<String> = []
    /// All codes under which an open is known; it may have come more than once.
    private var codes: [String: Set<String>] = [:]
    private var count = 0

    init(codeForm: Int) { self.codeForm = codeForm }

    mutating func forgetSessions() {
        dead.formUnion(live)
        live = []
    }

    /// No caller learns of a session that was created like this, and its code may be used once more.
    mutating func loseAnswer(to request: UpstreamRequest) {
        _ = answer(request)
        if request.path == "/visit/create" { unheard.insert(request.form["sessionCode"] ?? "") }
    }

    mutating func answer(_ request: UpstreamRequest) -> UpstreamResponse {
        let form = request.form
        let session = form["sessionCode"] ?? ""
        switch request.path {
        case "/visit/create":
            if dead.contains(session), unheard.remove(session) == nil { faults.append("\(session) is used again") }
            live.insert(session)
            // A re-created session does not follow the caller's order.
            if !Code.isReplacement(session) { arrive("start", of: session) }
            return UpstreamResponse(status: 200)
        case "/offline/create":
            take(form["data"] ?? "")
            return UpstreamResponse(status: 200)
        default: break
        }
        guard live.contains(session) else {
            if request.path == "/visit/end" { arrive("end", of: session) }
            return UpstreamResponse(status: 401)
        }
        switch request.path {
        case "/batch/create": take(form["data"] ?? "")
        case "/hit/create": return open(formDecoded(form["pageTitle"] ?? ""))
        case "/event/create": return open(formDecoded(form["eventKey"] ?? ""))
        case "/hit/end": close(formDecoded(form["pageTitle"] ?? ""), form["hitCode"])
        case "/event/end": close(formDecoded(form["eventKey"] ?? ""), form["eventCode"])
        case "/visitor/setPushData": arrive("id \(form["customId"] ?? "")")
        case "/visit/end":
            live.remove(session)
            dead.insert(session)
            arrive("end", of: session)
        default: faults.append("\(request.path) is no place")
        }
        return UpstreamResponse(status: 200)
    }

    private mutating func open(_ name: String) -> UpstreamResponse {
        arrive("open \(name)")
        count += 1
        switch codeForm == 3 ? count % 3 : codeForm {
        case 0:
            codes[name, default: []].insert("h\(count)")
            return UpstreamResponse(
                status: 200, body: Array(#"{"hitCode":"h\#(count)","eventCode":"h\#(count)"}"#.utf8))
        case 1:
            codes[name, default: []].insert("\(count)")
            return UpstreamResponse(status: 200, body: Array(#"{"hitCode":\#(count),"eventCode":\#(count)}"#.utf8))
        default: return UpstreamResponse(status: 200, body: Array("<html>".utf8))
        }
    }

    private mutating func close(_ name: String, _ code: String?) {
        if let code, codes[name]?.contains(code) != true { faults.append("\(name) is closed as \(code)") }
        arrive("close \(name)")
    }

    private mutating func take(_ data: String) {
        for match in data.matches(
            of:
                /\{"type":(\d),"timestamp":"\d+","sessionCode":"([^"]+)"(?:,"(?:pageTitle|eventKey)":"([^"]*)")?[^}]*?(?:"(?:hit|event)Code":"([^"]*)")?\}/
        ) {
            let name = match.3.map { formDecoded($0) } ?? ""
            let code = match.4.map(String.init) ?? ""
            switch match.1 {
            case "0":
                live.insert(String(match.2))
                if !Code.isReplacement(String(match.2)) { arrive("start", of: String(match.2)) }
            case "1":
                live.remove(String(match.2))
                dead.insert(String(match.2))
                arrive("end", of: String(match.2))
            case "2", "4":
                codes[name, default: []].insert(code)
                arrive("open \(name)")
            default: close(name, code)
            }
        }
    }

    /// Starts and ends have no name of their own, but come under one code each.
    private mutating func arrive(_ what: String, of session: String) {
        if seen.insert("\(what) \(session)").inserted { arrivals.append(what) }
    }

    private mutating func arrive(_ name: String) {
        if seen.insert(name).inserted { arrivals.append(name) }
    }
}

extension Code {
    /// The caller's codes in this test have a node that no replacement has.
    fileprivate static func isReplacement(_ code: String) -> Bool { !code.hasSuffix("-000000000007") }
}

extension SplitMix64 {
    /// From 0 to `sides` - 1.
    fileprivate mutating func roll(_ sides: Int) -> Int { Int(next() % UInt64(sides)) }
}
