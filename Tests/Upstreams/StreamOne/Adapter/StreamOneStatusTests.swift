import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import StreamOneAdapter
@testable import StreamOneClient

/// The specification's sections 7 and 8.
@Suite struct StreamOneStatusTests {
    /// A line of `statuses.txt`: number, name, and the specification's own word for the class.
    private struct Row: CustomTestStringConvertible, Sendable {
        let number: Int
        let name: String
        let word: String
        var testDescription: String { "\(number) \(name)" }
    }

    private static let rows: [Row] = {
        let text = (try? Fixture.bytes("statuses.txt")).map { String(decoding: $0, as: UTF8.self) } ?? ""
        return text.split(separator: "\n").map { line in
            let parts = line.split(separator: " ", maxSplits: 2)
            return Row(number: Int(parts[0]) ?? -1, name: String(parts[1]), word: String(parts[2]))
        }
    }()

    @Test func table_isTheSpecifications() {
        #expect(Self.rows.count == 138)
        #expect(Status.all.map(\.number) == Self.rows.map(\.number))
        #expect(Status.all.map(\.name) == Self.rows.map(\.name))
    }

    // MARK: Verdicts

    private let now = UpstreamFixture.now

    private func judge(
        _ body: String, status: Int = 200, action: String = "edit", mayHaveArrived: Bool = false,
        pause: Pause? = nil, headers: [(name: String, value: String)] = []
    ) -> Judgement {
        outcome(body, status: status, action: action, mayHaveArrived: mayHaveArrived, pause: pause, headers: headers)
            .judgement
    }

    private func outcome(
        _ body: String, status: Int = 200, action: String = "edit", mayHaveArrived: Bool = false,
        pause: Pause? = nil, headers: [(name: String, value: String)] = []
    ) -> Outcome {
        let response = UpstreamResponse(status: status, headers: headers, body: Array(body.utf8))
        return Judge(
            call: StreamOneCall(command: "item", action: action), mayHaveArrived: mayHaveArrived, pause: pause,
            lengths: .init(),
            now: now
        ).outcome(on: response, Answer(response))
    }

    private func shown(_ row: Row) -> String { "status \(row.number) \(row.name): M\(row.number)" }

    @Test(arguments: rows)
    private func status_hasItsVerdict(row: Row) throws {
        let text = StreamOneSamples.answer(row.number)
        let judgement = judge(text)
        let verdict: Verdict =
            switch row.word {
            case "ok": .delivered(result: Array(text.utf8))
            case "retry; outcome of a write unknown": .suspect(after: nil, rule: .afterTries(5))
            case "re-sign", "without a session: hold actor; with a session: re-auth": .retry(after: .seconds(1))
            case "retry, slowly; a login: tell the caller": .retry(after: .seconds(60))
            case "retry, slowly, without counting attempts": .retry(after: .seconds(30))
            default: .reject(reason: shown(row))
            }
        #expect(judgement.verdict == verdict)
        #expect(judgement.tookNothing == [2, 3, 8, 10].contains(row.number))
        if [1, 2, 3, 8, 10].contains(row.number) { #expect(judgement.reason == shown(row)) }
        let isKept = if case .reject = verdict { true } else { row.number == 1 }
        #expect(judgement.refusal == (isKept ? Array(text.utf8) : nil))
    }

    /// † of the table: refused because its own earlier try had done it.
    @Test(arguments: rows, ["edit", "delete", "removeall"])
    private func repeatedCall_isDelivered_whenItWasDoneAlready(row: Row, action: String) {
        let text = StreamOneSamples.answer(row.number)
        let isDone = row.word == "permanent†" && (action != "edit" || !row.name.hasSuffix("NOT_FOUND"))
        let verdict = judge(text, action: action, mayHaveArrived: true).verdict
        if isDone {
            #expect(verdict == .delivered(result: Array(text.utf8)))
        } else {
            #expect(verdict == judge(text, action: action, mayHaveArrived: false).verdict)
        }
    }

    @Test func unknownStatus_isARefusal() {
        for number in [9999, 900, -1] {
            #expect(
                judge(StreamOneSamples.answer(number)).verdict
                    == .reject(reason: "status \(number) UNKNOWN: M\(number)"))
        }
    }

    /// 7.2.
    @Test(arguments: [
        "5", #""foo""#, "null", "true", "[1,2,3]", "not JSON", "", #"{"foo":"bar"}"#, #"{"header":[]}"#,
        #"{"body":[]}"#,
        #"{"header":"foo","body":null}"#, #"{"header":{"status":0},"body":null}"#,
        #"{"header":{"statusmessage":"OK"},"body":[]}"#, #"{"header":{"status":"OK","statusmessage":"OK"},"body":[]}"#,
        #"{"header":{"status":0,"statusmessage":0},"body":[]}"#, #"{"header":{"status":0,"statusmessage":"OK"}}"#,
        #"{"header":{"status":0.9,"statusmessage":"OK"},"body":null}"#,
    ])
    func invalidAnswer_isRepeated(text: String) {
        #expect(Answer(Array(text.utf8)) == nil)
        #expect(judge(text).verdict == .suspect(after: nil))
        #expect(!judge(text).tookNothing)
    }

    @Test func largeResponse_isJudgedByItsHeader_beforeOrAfterItsBody() throws {
        let body = "[0" + String(repeating: ",0", count: 1 << 20) + "]"
        let header = #"{"status":0,"statusmessage":"OK","cacheable":true,"sessiontimeout":60}"#
        for text in [#"{"header":\#(header),"body":\#(body)}"#, #"{"body":\#(body),"header":\#(header)}"#] {
            let answer = try #require(Answer(Array(text.utf8)))
            #expect(answer.isSuccess)
            #expect(answer.isCacheable)
            let renewed = String(decoding: answer.bytes(sessionTimeout: 7), as: UTF8.self)
            #expect(renewed.contains(#""sessiontimeout":7}"#))
            #expect(renewed.utf8.count == text.utf8.count - 1)
        }
        #expect(Answer(Array(#"{"header":\#(header),"body":\#(body.dropLast())}"#.utf8)) == nil)
        #expect(Answer(Array(#"{"header":\#(header),"other":\#(body)}"#.utf8)) == nil)
        #expect(Answer(Array(body.utf8)) == nil)
    }

    @Test(arguments: [
        (#"{"header":{"status":0,"statusmessage":"OK"},"body":null}"#, true),
        (#"{"header":{"status":0,"statusmessage":"OK"},"body":true}"#, true),
        (#"{"header":{"status":0,"statusmessage":"OK"},"body":"foobar"}"#, true),
        (#"{"body":{"a":1},"header":{"status":0,"statusmessage":"OK"},"more":1}"#, true),
        (#"{"header":{"status":1,"statusmessage":"Internal error"},"body":5}"#, false),
        (#"{"header":{"status":1337,"statusmessage":"…"},"body":[1,2,3]}"#, false),
    ])
    func answer_isValid(text: String, isSuccess: Bool) throws {
        let answer = try #require(Answer(Array(text.utf8)))
        #expect(answer.isSuccess == isSuccess)
        #expect(answer.bytes == Array(text.utf8))
    }

    /// 7.3; only JSON's `true` counts.
    @Test(arguments: [("true", 0, true), ("false", 0, false), ("1", 0, false), ("true", 4, false)])
    func answer_isCacheable_whenItIsASuccessAndSaysSo(cacheable: String, status: Int, isCacheable: Bool) throws {
        let text = #"{"header":{"status":\#(status),"statusmessage":"OK","cacheable":\#(cacheable)},"body":1}"#
        #expect(try #require(Answer(Array(text.utf8))).isCacheable == isCacheable)
    }

    /// What the SDKs can read was an answer: the call must not be made again for it.
    @Test func answerOnlyThisParserRefuses_isAnAnswer() {
        let deep = String(repeating: "[", count: 100) + String(repeating: "]", count: 100)
        let large = #"{"a":"\#(String(repeating: "x", count: 1 << 20))","a":2}"#
        for body in [deep, #"{"a":1,"a":2}"#, large] {
            let text = StreamOneSamples.answer(cacheable: true, body: body)
            #expect(judge(text).verdict == .delivered(result: Array(text.utf8)))
            #expect(Answer(Array(text.utf8))?.isCacheable == false)
        }
        let refused = StreamOneSamples.answer(6, body: #"{"a":1,"a":2}"#)
        #expect(judge(refused).verdict == .reject(reason: "status 6 INPUT_ERROR: M6"))
        #expect(judge(deep).verdict == .suspect(after: nil))
    }

    @Test(arguments: [199, 301, 302, 400, 401, 403, 404, 500])
    func answerOutside2xx_isATransportFault(status: Int) {
        #expect(judge(StreamOneSamples.answer(), status: status).verdict == .retry(after: nil))
    }

    @Test(arguments: [(200, "<html>"), (200, "{}"), (204, "")])
    func success_thatIsNoAnswer_isRepeated_butNotWithoutEnd(status: Int, body: String) {
        #expect(judge(body, status: status).verdict == .suspect(after: nil))
    }

    // MARK: Pauses

    /// Plays answers one after the other, each when the pause before it is over.
    private func pauses(_ number: Int, times: Int) throws -> [Verdict] {
        var state = DictionaryState()
        var moment = now
        return (0..<times).map { _ in
            let response = UpstreamResponse(status: 200, body: Array(StreamOneSamples.answer(number).utf8))
            let outcome = Judge(
                call: StreamOneCall(command: "item", action: "edit"), mayHaveArrived: false,
                pause: Pause(in: state), lengths: .init(), now: moment
            ).outcome(on: response, Answer(response))
            state.apply(outcome.changes)
            moment = Pause(in: state)?.until ?? moment
            return outcome.judgement.verdict
        }
    }

    private func seconds(_ verdicts: [Verdict]) -> [Double?] {
        verdicts.map { verdict in
            if case .retry(let after?) = verdict { after.inSeconds } else { nil }
        }
    }

    @Test func readOnly_pausesFrom30sTo5min() throws {
        #expect(seconds(try pauses(10, times: 6)) == [30, 60, 120, 240, 300, 300])
    }

    @Test func rateLimit_pausesFrom60sTo15min() throws {
        #expect(seconds(try pauses(8, times: 6)) == [60, 120, 240, 480, 900, 900])
    }

    @Test func wrongClock_isRetriedOnceSoon_thenSlowly() throws {
        let verdicts = try pauses(2, times: 6)
        #expect(seconds(verdicts) == [1, 30, 60, 120, 240, 300])
    }

    @Test func refusedActor_isRetriedOnce_thenHeld() throws {
        let held = Verdict.holdUpstream(.credentials, detail: "status 3 AUTHENTICATION_FAILED: M3")
        #expect(try pauses(3, times: 3) == [.retry(after: .seconds(1)), held, held])
    }

    /// A call that was answered at once has been signed again already.
    @Test func refusedActor_isHeldAtOnce_afterACallOutsideTheQueue() {
        for until in [now, now + .seconds(30)] {
            let pause = Pause(reason: .authentication, step: 1, until: until, credentials: "c0ffee")
            let outcome = outcome(StreamOneSamples.answer(3), pause: pause)
            #expect(
                outcome.judgement.verdict
                    == .holdUpstream(.credentials, detail: "status 3 AUTHENTICATION_FAILED: M3"))
        }
    }

    /// Several were under way when it began.
    @Test func pause_doesNotGrow_whileItLasts() {
        let pause = Pause(reason: .readOnly, step: 0, until: now + .seconds(20))
        let outcome = outcome(StreamOneSamples.answer(10), pause: pause)
        #expect(outcome.judgement.verdict == .retry(after: .seconds(20)))
        #expect(outcome.changes.isEmpty)
    }

    @Test(arguments: [(2, Pause.Reason.clock, 60), (8, .rateLimited, 240), (10, .readOnly, 120)])
    func pause_isNotPutOff_whenTheClockIsSetBack(number: Int, reason: Pause.Reason, length: Int) {
        let pause = Pause(reason: reason, step: 1, until: now + .seconds(7200))
        let outcome = outcome(StreamOneSamples.answer(number), pause: pause)
        #expect(outcome.judgement.verdict == .retry(after: .seconds(length)))
    }

    @Test func pause_isForgotten_afterAnyOtherAnswer() {
        let pause = Pause(reason: .readOnly, step: 3, until: now)
        for number in [0, 1, 6, 120] {
            #expect(outcome(StreamOneSamples.answer(number), pause: pause).changes == [.remove(key: "pause")])
        }
        #expect(outcome(StreamOneSamples.answer(0)).changes.isEmpty)
        // A response that says nothing about the platform does not end the pause.
        #expect(outcome("", status: 503, pause: pause).changes.isEmpty)
    }

    @Test func pause_survivesTheStore() throws {
        var state = DictionaryState()
        for pause in [
            Pause(reason: .clock, step: 2, until: now),
            Pause(reason: .authentication, step: 1, until: now, credentials: "c0ffee"),
        ] {
            state.apply([pause.change])
            #expect(Pause(in: state) == pause)
        }
        state.values["pause"] = Array("nonsense".utf8)
        #expect(Pause(in: state) == nil)
    }

    /// `now` is 12:01:04.
    @Test(arguments: [
        ("Thu, 24 Nov 2016 12:01:00 GMT", nil), ("Thu, 24 Nov 2016 11:59:00 GMT", "124 s ahead of"),
        ("Thu, 24 Nov 2016 12:10:04 GMT", "539 s behind"), ("yesterday", nil),
    ])
    func wrongClock_isReported_whenItIsOurs(date: String, words: String?) {
        let notice = judge(StreamOneSamples.answer(2), headers: [("Date", date)]).notice?.text
        #expect(notice == words.map { "the clock here is \($0) the platform's" })
    }
}
