import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import CurioAdapter

/// Which items are accepted after which others (the specification's A17), and what is remembered.
@Suite struct CurioAcceptanceTests {
    private static let other = "6d551000-a21d-11e4-8123-03ab5c7d9e20"

    private func refusal(
        of sample: UpstreamFixture.Sample, after others: [UpstreamFixture.Sample] = [],
        _ settings: [String: SettingValue] = [:]
    ) throws -> AcceptanceError? {
        var harness = try CurioHarness(settings)
        for other in others { try harness.post(other) }
        do {
            try harness.post(sample)
            return nil
        } catch let refusal as AcceptanceError {
            return refusal
        }
    }

    @Test(arguments: CurioKind.allCases.filter { $0 != .sessionStart })
    func action_isRefused_unlessItsSessionIsOpenForThisVisitor(kind: CurioKind) throws {
        let sample = try #require(CurioSample.good.first { $0.kind == Kind(kind.rawValue) })
        for others in [
            [], [CurioSample.sessionStart(session: Self.other)], [CurioSample.sessionStart(visitor: "another visitor")],
        ] {
            let refusal = try #require(try refusal(of: sample, after: others))
            #expect(refusal.reason == .unknownSession)
            #expect(refusal.detail.contains("send a session_start with it first"))
        }
        let ended = try refusal(of: sample, after: [CurioSample.sessionStart(), CurioSample.make("session_end")])
        #expect(ended?.reason == .unknownSession)
        #expect(ended?.detail.contains("ended") == true)
    }

    @Test func sessionCode_isTakenOnce() throws {
        for others in [
            [CurioSample.sessionStart()], [CurioSample.sessionStart(visitor: "another visitor")],
            [CurioSample.sessionStart(), CurioSample.make("session_end")],
        ] {
            #expect(try refusal(of: CurioSample.sessionStart(), after: others)?.reason == .conflict)
        }
        #expect(
            try refusal(of: CurioSample.sessionStart(session: Self.other), after: [CurioSample.sessionStart()]) == nil)
    }

    @Test func end_isRefused_withoutItsOpen() throws {
        let start = CurioSample.sessionStart()
        let screenEnd = CurioSample.make("screen_end", CurioSample.screenClass)
        let otherEnd = CurioSample.make("screen_end", #""screenClass":"Away""#)
        let otherEvent = CurioSample.make("event", #""eventKey":"Buton>Giri","eventValue":"ş100% A+B""#)
        #expect(try refusal(of: screenEnd, after: [start])?.reason == .conflict)
        #expect(try refusal(of: otherEnd, after: [start, CurioSample.screenStart()])?.reason == .conflict)
        #expect(try refusal(of: screenEnd, after: [start, CurioSample.screenStart(), screenEnd])?.reason == .conflict)
        #expect(try refusal(of: CurioSample.eventEnd(), after: [start, otherEvent])?.reason == .conflict)
        #expect(try refusal(of: CurioSample.eventEnd(), after: [start, CurioSample.event()]) == nil)
    }

    @Test func ends_closeTheLatestOfTheirMark_first() throws {
        var harness = try CurioHarness()
        try harness.post(CurioSample.sessionStart())
        let opens = try ["1", "2", "3"].map { try harness.post(CurioSample.screenStart($0, "/")).id }
        var closed: [MessageID?] = []
        for _ in opens {
            let end = try harness.post(CurioSample.make("screen_end", CurioSample.screenClass)).id
            let open = harness.state.open(at: Key.closing(end, of: CurioSample.session))
            closed.append(open?.id)
            #expect(open?.texts?.first == String(4 - closed.count))
        }
        #expect(closed == opens.reversed())
        #expect(throws: AcceptanceError.self) {
            try harness.post(CurioSample.make("screen_end", CurioSample.screenClass))
        }
        #expect(harness.state.values(below: "s/\(CurioSample.session)/o", atMost: 9).isEmpty)
        #expect(harness.state.values(below: "s/\(CurioSample.session)/u", atMost: 9).isEmpty)
    }

    @Test func screensAndEvents_costAChangeOrTwo() throws {
        var harness = try CurioHarness()
        try harness.post(CurioSample.sessionStart())
        #expect(try harness.post(CurioSample.screenStart()).changes.count == 1)
        #expect(try harness.post(CurioSample.event()).changes.count == 1)
        #expect(try harness.post(CurioSample.event()).changes.count == 2)
        #expect(try harness.post(CurioSample.make("screen_end", CurioSample.screenClass)).changes.count == 2)
        #expect(try harness.post(CurioSample.make("unregister")).changes.isEmpty)
    }

    @Test func cap_refusesForAWhile_perVisitor() throws {
        let start = CurioSample.sessionStart()
        let events = [CurioSample.event(), CurioSample.event()]
        let full = try refusal(
            of: CurioSample.event(), after: [start] + events, ["maxCachedActivityCount": .integer(3)])
        #expect(full?.reason == .full)
        #expect(full?.detail.contains("3 undelivered actions") == true)
        #expect(
            try refusal(of: CurioSample.event(), after: [start] + events, ["maxCachedActivityCount": .integer(4)])
                == nil)
        let another = CurioSample.sessionStart(session: Self.other, visitor: "another visitor")
        #expect(try refusal(of: another, after: [start] + events, ["maxCachedActivityCount": .integer(3)]) == nil)
    }

    @Test func sessionRow_livesOnWithItsActions_andNotLongAfterItsEnd() throws {
        var harness = try CurioHarness([
            "sessionTimeoutMinutes": .integer(10), "onlineMaxAgeSeconds": .integer(31_536_000),
        ])
        func expiry(_ changes: [StateChange]) -> StateChange.Expiry? {
            for case .set(Key.session(CurioSample.session), _, let expiry) in changes { return expiry }
            return nil
        }
        let began = harness.now
        let first = try harness.post(CurioSample.sessionStart()).changes
        #expect(expiry(first) == StateChange.Expiry(at: began + .seconds(24 * 600), lane: CurioSample.visitor))
        harness.now = began + .seconds(2400)
        #expect(try expiry(harness.post(CurioSample.event()).changes) == nil)
        harness.now = began + .seconds(2401)
        let renewed = try harness.post(CurioSample.event()).changes
        #expect(expiry(renewed)?.at == harness.now + .seconds(24 * 600))
        #expect(try expiry(harness.post(CurioSample.event()).changes) == nil)
        let ended = try harness.post(CurioSample.make("session_end")).changes
        #expect(expiry(ended) == StateChange.Expiry(at: harness.now + .seconds(1200), lane: CurioSample.visitor))
    }

    @Test func waitingLane_isWoken_byWhatDoesNotWait() throws {
        var harness = try CurioHarness(["periodicDispatchEnabled": .bool(true)])
        let wake = StateChange.wake(lane: CurioSample.visitor)
        #expect(try !harness.post(CurioSample.sessionStart()).changes.contains(wake))
        #expect(try !harness.post(CurioSample.screenStart()).changes.contains(wake))
        #expect(try !harness.post(CurioSample.event()).changes.contains(wake))
        #expect(try harness.post(CurioSample.make("unregister")).changes.contains(wake))
        #expect(try harness.post(CurioSample.event(at: CurioSample.fresh - 361_000)).changes.contains(wake))
        #expect(try harness.post(CurioSample.make("session_end")).changes.contains(wake))
    }

    @Test func waitingLane_isWoken_byAFullBatch() throws {
        var harness = try CurioHarness(["periodicDispatchEnabled": .bool(true)])
        try harness.post(CurioSample.sessionStart())
        try harness.turn { _ in UpstreamResponse(status: 200) }
        for count in 1...250 {
            let changes = try harness.post(CurioSample.event()).changes
            #expect(changes.contains(.wake(lane: CurioSample.visitor)) == (count == 250), "\(count)")
        }
    }
}
