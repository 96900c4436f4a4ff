import CurioSimulator
import PosternConformance
import PosternCore
import PosternSimulatorKit
import PosternTestKit
import PosternUpstream
import Testing

@testable import CurioAdapter

/// Whatever happens on the way, a visitor's actions arrive in their order, each at least once, and ends quote the codes
/// of their opens.
@Suite struct CurioOrderTests {
    @Test(arguments: 0..<24)
    func actions_arriveInOrder_withTheRightCodes(seed: UInt64) throws {
        var random = SplitMix64(state: seed)
        let isPeriodic = seed % 3 == 0
        var harness = try CurioHarness([
            "periodicDispatchEnabled": .bool(isPeriodic), "dispatchPeriodMinutes": .integer(2),
        ])
        var server = Server(codeForm: ["string", "number", "html", "mixed"][Int(seed % 4)], at: harness.now)
        var caller = Caller()
        var posted: [String] = []
        for _ in 0..<60 {
            for _ in 0..<random.below(4) {
                let (sample, name) = caller.next(at: harness.now, &random)
                try harness.post(sample)
                posted.append(name)
            }
            for _ in 0..<random.below(6) { try play(&harness, &server, &random, troubles: true) }
            harness.now = harness.now + .seconds(random.below(20) == 0 ? 600 : random.below(20))
        }
        // The faults end, and lanes that wait for their period are sent.
        for _ in 0..<2000 where !harness.queue.isEmpty {
            if case .waits(let until) = try play(&harness, &server, &random, troubles: false) { harness.now = until }
        }
        #expect(harness.queue.isEmpty)
        #expect(server.violations.isEmpty, "\(server.violations.prefix(5))")
        #expect(server.arrivals == posted)
        #expect(harness.settled.allSatisfy { $0.state == .delivered })
    }

    @discardableResult
    private func play(
        _ harness: inout CurioHarness, _ server: inout Server, _ random: inout SplitMix64, troubles: Bool
    ) throws -> CurioHarness.Turn {
        let now = harness.now
        return try harness.turn { request in
            guard troubles else { return server.answer(request, at: now) }
            switch random.below(12) {
            case 0: return UpstreamResponse(status: [500, 503, 429, 412, 404][random.below(5)])
            case 1: return nil
            case 2:
                // It arrives, but the answer is lost.
                server.answer(request, at: now, isLost: true)
                return nil
            case 3: server.forgetSessions()
            default: break
            }
            return server.answer(request, at: now)
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

    mutating func next(at now: Timestamp, _ random: inout SplitMix64) -> (UpstreamFixture.Sample, name: String) {
        count += 1
        // Devices report late at times.
        let timestamp = now.milliseconds - Int64(random.below(8) == 0 ? 500_000 : random.below(1000))
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
        switch random.below(10) {
        case 0:
            isOpen = false
            return (make("session_end"), "end")
        case 1...3:
            let mark = "c\(random.below(2))"
            screens.append((mark, "t\(count)"))
            return (
                make("screen_start", #""screenClass":"\#(mark)","pageTitle":"t\#(count)","path":"/&+%""#),
                "open t\(count)"
            )
        case 4...5:
            guard let index = screens.indices.randomElement(using: &random) else { fallthrough }
            let mark = screens[index].mark
            guard let latest = screens.lastIndex(where: { $0.mark == mark }) else { fallthrough }
            let screen = screens.remove(at: latest)
            return (make("screen_end", #""screenClass":"\#(screen.mark)""#), "close \(screen.title)")
        case 6...7:
            events.append("k\(count)")
            return (make("event", #""eventKey":"k\#(count)","eventValue":"""#), "open k\(count)")
        case 8:
            guard !events.isEmpty else { fallthrough }
            let key = events.remove(at: random.below(events.count))
            return (make("event_end", #""eventKey":"\#(key)","eventValue":"","eventDuration":1"#), "close \(key)")
        default: return (make("custom_id", #""pushToken":"p","customId":"u\#(count)""#), "id u\(count)")
        }
    }
}

/// Curio as its strict simulator plays it, and what it has received.
private struct Server {
    private let time: ManualTime
    private let simulator: any Simulator
    private(set) var violations: [String] = []
    /// What arrived for the first time, in order.
    private(set) var arrivals: [String] = []
    private var seen: Set<String> = []

    /// - Parameter codeForm: How its codes look: texts, numbers, none, or one after the other.
    init(codeForm: String, at now: Timestamp) {
        time = ManualTime(now: now)
        simulator = SimulatorType.curio.make(1, time)
        control(#"{"codeForm":"\#(codeForm)"}"#)
    }

    func forgetSessions() { control(#"{"killSessions":"all"}"#) }

    private func control(_ text: String) {
        let request = SimulatedRequest(method: "POST", path: "/control", body: Array(text.utf8))
        #expect(simulator.control(request)?.status == 200)
    }

    @discardableResult
    mutating func answer(_ request: UpstreamRequest, at now: Timestamp, isLost: Bool = false) -> UpstreamResponse {
        time.advance(by: now - time.now)
        var asked = SimulatedRequest(request)
        asked.isAnswerLost = isLost
        let result = simulator.judge(asked, poisons: [])
        violations += result.violations
        for text in result.texts { arrive(JSON(Array(text.utf8))) }
        // A session that is not live has ended.
        if result.status == 401, request.path == "/visit/end" { arrive("end", of: request.form["sessionCode"] ?? "") }
        return UpstreamResponse(status: result.status ?? 0, body: result.answer?.body ?? [])
    }

    private mutating func arrive(_ item: JSON) {
        let (session, name) = (item["session"].string ?? "", item["pageTitle"].string ?? item["eventKey"].string ?? "")
        switch item["action"].string {
        // A re-created session does not follow the caller's order.
        case "session_start": if !Code.isReplacement(session) { arrive("start", of: session) }
        case "session_end": arrive("end", of: session)
        case "screen_start", "event": arrive("open \(name)")
        case "screen_end", "event_end": arrive("close \(name)")
        default: arrive("id \(item["customId"].string ?? "")")
        }
    }

    /// Starts and ends have no name of their own, but come under one code each.
    private mutating func arrive(_ name: String, of session: String = "") {
        if seen.insert("\(name) \(session)").inserted { arrivals.append(name) }
    }
}

extension Code {
    /// The caller's codes in this test have a node that no replacement has.
    fileprivate static func isReplacement(_ code: String) -> Bool { !code.hasSuffix("-000000000007") }
}
