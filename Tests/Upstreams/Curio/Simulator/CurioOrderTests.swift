import PosternConformance
import PosternCore
import PosternSimulatorKit
import PosternTestKit
import Testing

@testable import CurioSimulator

private typealias V = CurioVectors
private typealias C = CurioClient

private let once = C.codes[0]
private let twice = C.codes[1]

/// Rules about the order of requests.
@Suite struct CurioOrderTests {
    private let client = CurioClient()

    // MARK: Life of a session

    @Test func session_isRefused_untilItIsStarted_andAfterItsEnd() {
        #expect(client.screenStart().summary == "401 | a request of a session that was never started")
        #expect(client.start().summary == "200")
        #expect(client.screenStart().summary == "200")
        #expect(client.end().summary == "200")
        #expect(client.screenStart().summary == "401 | a request of a session that has ended")
        #expect(client.pdr([C.open(once)]).summary == "401 | a request of a session that has ended")
    }

    @Test func session_dies_whenIdleForItsTimeout() {
        _ = client.start(timeout: "30")
        client.time.advance(by: .seconds(1799))
        #expect(client.screenStart().summary == "200")
        client.time.advance(by: .seconds(1799))
        #expect(client.send("/location/set", C.three() + [("lat", "1"), ("long", "2")]).summary == "200")
        client.time.advance(by: .seconds(1800))
        #expect(client.screenStart().summary == "401")
        #expect(client.shown["sessions"]["timedOut"].int == 1)
    }

    @Test func session_isRenewed_byBatches_withTheTimeoutTheyName() {
        _ = client.start(timeout: "30")
        client.time.advance(by: .seconds(1000))
        #expect(client.ocr([C.open(once)], timeout: "60").summary == "200")
        client.time.advance(by: .seconds(3599))
        #expect(client.pdr([C.close(once)]).summary == "200")
        client.time.advance(by: .seconds(1800))
        #expect(client.pdr([C.open(twice)]).summary == "401")
    }

    @Test func session_isRenewed_byABatchUnderIt_thatHoldsRecordsOfAnother() {
        _ = client.start()
        _ = client.start(C.other)
        client.time.advance(by: .seconds(1799))
        #expect(client.pdr([C.open(once)], C.other).summary == "200")
        client.time.advance(by: .seconds(1799))
        #expect(client.screenStart(C.other).summary == "200")
    }

    @Test func session_isLive_afterABatchThatStartsIt() {
        #expect(client.ocr([C.record(0)]).summary == "200")
        #expect(client.screenStart().summary == "200")
    }

    @Test func start_mayBeRepeated_whileTheSessionLives() {
        #expect(client.start().summary == "200")
        #expect(client.start().summary == "200")
        #expect(client.screenStart().summary == "200")
        #expect(client.start().summary == "200")
        #expect(client.shown["repeats"].int == 2)
        #expect(client.shown["actions"]["session_start"].int == 1)
    }

    @Test func start_isAViolation_withAnotherDeviceBlock() {
        let violation = "a session started again with another device block"
        _ = client.start()
        #expect(client.start(model: "iPad").summary == "200 | \(violation)")
        #expect(client.ocr([C.record(0)], model: "iPad").summary == "200 | \(violation)")
        _ = client.screenStart()
        #expect(client.start(model: "iPad").summary == "200 | \(violation)")
    }

    @Test func start_isRefused_forACodeThatIsDead() {
        _ = client.start()
        _ = client.screenStart()
        client.control(#"{"killSessions":"all"}"#)
        #expect(client.start().summary == "401 | a session code used again after the session was over")
    }

    @Test func start_isRefusedWithoutAComment_whenOnlyItsAnswerWasLost() {
        _ = client.start()
        client.control(#"{"killSessions":"all"}"#)
        #expect(client.start().summary == "401")
    }

    /// A gateway that was killed has not noted the answer, although it was sent.
    @Test func start_mayBeRepeated_afterABatch_untilTheSessionIsUsed() {
        #expect(client.start(C.other).summary == "200")
        #expect(client.ocr([C.record(0)]).summary == "200")
        client.time.advance(by: .seconds(1800))
        #expect(client.start(C.other).summary == "401")
        #expect(client.screenStart(C.other).summary == "401")
        #expect(client.start(C.other).summary == "401 | a session code used again after the session was over")
    }

    @Test func start_isAViolation_forACodeThatWasRefusedAndReplaced() {
        _ = client.start()
        client.control(#"{"killSessions":"all"}"#)
        #expect(client.start().summary == "401")
        #expect(client.start(C.other).summary == "200")
        #expect(client.start().summary == "401 | a session code used again after the session was over")
        #expect(client.shown["recreations"].int == 1)
    }

    @Test func sessionStart_isAViolation_ifItRepeatsADeadCode() {
        _ = client.start()
        client.control(#"{"killSessions":"all"}"#)
        for _ in 0..<5 { #expect(client.start().summary == "401") }
        #expect(client.start().summary == "401 | a refused session code quoted repeatedly")
    }

    @Test func session_belongsToOneVisitor() {
        _ = client.start()
        let violation = "a session code of another visitor"
        #expect(client.start(visitor: C.stranger).summary == "401 | \(violation)")
        #expect(client.screenStart(visitor: C.stranger).summary == "401 | \(violation)")
        #expect(client.ocr([C.record(0)], visitor: C.stranger).summary == "200 | \(violation)")
        #expect(
            client.ocr([C.open(once)], visitor: C.stranger).summary == "200 | a record of another visitor's session")
        #expect(client.ocr([C.record(1)], visitor: C.stranger).summary == "200 | a record of another visitor's session")
        #expect(client.screenStart().summary == "200")
    }

    // MARK: Traces of section 11.4

    @Test func expiredSession_isReplaced_andItsScreenClosed() {
        _ = client.start()
        let code = client.screenStart().code ?? ""
        client.time.advance(by: .seconds(1800))
        #expect(client.screenEnd(code).summary == "401")
        #expect(client.start(C.other).summary == "200")
        #expect(client.screenEnd(code, C.other).summary == "200")
        #expect(client.shown["recreations"].int == 1)
        #expect(
            client.screenStart().summary == "401 | a refused session code quoted after another one took its place")
    }

    @Test func expiredBatch_isTaken_underTheNewCode_withTheOldInItsRecords() {
        _ = client.start()
        client.time.advance(by: .seconds(1800))
        #expect(client.pdr([C.open(once), C.close(once)]).summary == "401")
        _ = client.start(C.other)
        #expect(client.pdr([C.open(once), C.close(once)], C.other).summary == "200")
    }

    @Test func batch_whoseAnswerWasLost_mayBeSentAgainUnderANewCode() {
        _ = client.start()
        #expect(client.pdr([C.open(once), C.close(once)]).summary == "200")
        client.control(#"{"killSessions":"\#(V.visitor)"}"#)
        #expect(client.pdr([C.open(once), C.close(once)]).summary == "401")
        _ = client.start(C.other)
        #expect(client.pdr([C.open(once), C.close(once)], C.other).summary == "200")
        #expect(client.shown["repeats"].int == 2)
    }

    @Test func end_ofAnExpiredSession_isItsEnd() {
        _ = client.start()
        client.time.advance(by: .seconds(1800))
        #expect(client.screenStart().summary == "401")
        #expect(client.end().summary == "401")
        #expect(client.end().summary == "401")
        #expect(client.ocr([C.record(1)]).summary == "200")
        #expect(client.ocr([C.open(once)]).summary == "200 | a record after the end of its session")
        #expect(client.shown["recreations"].int == 0)
        #expect(client.start(C.other).summary == "200")
        #expect(client.shown["recreations"].int == 0)
    }

    @Test func answerWithoutCode_isMadeGood_byOpenAndCloseInOneBatch() {
        client.control(#"{"codeForm":"html"}"#)
        _ = client.start()
        let opened = client.screenStart()
        #expect(opened.text == "<html>")
        #expect(opened.code == nil)
        #expect(client.ocr([C.open(once), C.close(once)]).summary == "200")
        _ = client.end()
        #expect(client.shown["orphanScreens"].int == 1)
    }

    @Test func refusedCode_isAViolation_ifQuotedRepeatedly() {
        _ = client.start()
        client.control(#"{"killSessions":"all"}"#)
        for _ in 0..<20 { #expect(client.screenStart(isLost: true).summary == "401") }
        for _ in 0..<5 { #expect(client.screenStart().summary == "401") }
        #expect(client.screenStart().summary == "401 | a refused session code quoted repeatedly")
        #expect(client.shown["refusedSessions"].int == 26)
    }

    // MARK: Codes

    @Test func end_isAViolation_withoutItsStart() {
        _ = client.start()
        #expect(
            client.screenEnd("e3b0c44298fc4c149afbf4c8996fb924").summary == "200 | an end that quotes an unknown code")
        #expect(client.pdr([C.close(once), C.open(once)]).summary == "200 | an end that quotes an unknown code")
        let code = client.screenStart().code ?? ""
        #expect(client.screenEnd(code + "0").summary == "200 | an end that quotes an unknown code")
        let event = C.event() + [("eventDuration", "1"), ("eventCode", code)]
        #expect(
            client.send("/event/end", C.common() + event).summary == "200 | an end that quotes a code of another kind")
        #expect(
            client.screenEnd(code, title: "Other").summary == "200 | an end with other texts than its start")
    }

    @Test func end_mayLeaveItsTextsEmpty() {
        _ = client.start()
        let code = client.screenStart().code ?? ""
        let empty = [("pageTitle", ""), ("path", ""), ("hitCode", code)]
        #expect(client.send("/hit/end", C.common() + empty).summary == "200")
    }

    @Test func end_isAViolation_forAnotherVisitorsCode() {
        _ = client.start()
        _ = client.start(C.other, visitor: C.stranger)
        let code = client.screenStart().code ?? ""
        #expect(
            client.screenEnd(code, C.other, visitor: C.stranger).summary
                == "200 | an end that quotes another visitor's code")
    }

    @Test func secondEnd_isAViolation_unlessItIsARepeat() {
        _ = client.start()
        let code = client.screenStart().code ?? ""
        #expect(client.screenEnd(code).summary == "200")
        #expect(client.ocr([C.close(code)]).summary == "200")
        #expect(client.shown["repeats"].int == 1)
        _ = client.screenStart()
        #expect(client.screenEnd(code).summary == "200 | a second end for one start")
    }

    @Test func end_isAViolation_inAnEarlierSessionThanItsStart() {
        _ = client.start()
        _ = client.start(C.other)
        let code = client.screenStart(C.other).code ?? ""
        #expect(client.screenEnd(code).summary == "200 | an end in an earlier session than its start")
        let recorded = client.screenStart(C.other).code ?? ""
        #expect(client.ocr([C.close(recorded)]).summary == "200")
    }

    @Test func code_isAViolation_forTwoStarts() {
        _ = client.start()
        #expect(client.pdr([C.open(once), C.open(once, at: 5)]).summary == "200 | a code used for two starts")
        #expect(client.pdr([C.open(twice)]).summary == "200")
        #expect(client.pdr([C.open(once)]).summary == "200 | a code used for two starts")
        #expect(client.pdr([C.open(twice)]).summary == "200 | a code used for two starts")
    }

    // MARK: Records

    @Test func record_isAViolation_beforeItsSessionsStart() {
        func violation(_ session: String) -> String { "200 | a record before the start of session \(session)" }
        #expect(client.ocr([C.open(once), C.record(0)]).summary == violation(V.session))
        _ = client.end()
        #expect(client.ocr([C.record(1, C.other)]).summary == violation(C.other))
    }

    @Test func record_isAViolation_afterItsSessionsEnd() {
        #expect(
            client.ocr([C.record(0), C.record(1), C.open(once)]).summary
                == "200 | a record after the end of its session")
    }

    @Test func record_mayHaveAnyTimestamp() {
        #expect(client.ocr([C.record(0, at: 9), C.open(once, at: 3), C.close(once, at: 1)]).summary == "200")
    }

    @Test func record_mayNameAnEarlierSessionOfTheVisitor() {
        _ = client.start()
        _ = client.start(C.other)
        #expect(client.pdr([C.open(once)], C.other).summary == "200")
    }

    @Test func pdr_isAViolation_withStartOrEndOfASession() {
        _ = client.start()
        #expect(client.pdr([C.record(1)]).summary == "200 | a session's start or end in /batch/create")
    }

    @Test func ocr_isAViolation_forSessionsWithDifferentDeviceBlocks() {
        _ = client.start()
        #expect(client.ocr([C.open(once)]).summary == "200")
        #expect(
            client.ocr([C.open(twice)], model: "iPad").summary
                == "200 | a record with another device block than session \(V.session)")
    }

    @Test func session_isAViolation_startedTwiceByBatches() {
        _ = client.ocr([C.record(0), C.open(once)])
        _ = client.pdr([C.close(once)])
        #expect(client.ocr([C.record(0)]).summary == "200 | a session started twice")
    }

    // MARK: Repeats

    @Test func batch_mayBeSentAgain_wholeOrInHalves() {
        let records = [C.record(0), C.open(once), C.close(once), C.record(1)]
        for part in [records, records, Array(records[..<2]), Array(records[2...])] {
            #expect(client.ocr(part).summary == "200")
        }
        #expect(client.ocr(records + [C.record(0, C.other, at: 9)]).summary == "200")
        #expect(client.shown["repeats"].int == 12)
        #expect(client.shown["sessions"]["ended"].int == 1)
    }

    @Test func repeat_isAViolation_afterSomethingNew() {
        _ = client.ocr([C.record(0), C.open(once)])
        #expect(client.ocr([C.open(twice), C.open(once)]).summary == "200 | a repeat after something new")
        _ = client.screenStart()
        #expect(client.ocr([C.open(twice)]).summary == "200 | a code used for two starts")
    }

    @Test func online_mayBeRepeatedByABatch() {
        _ = client.start()
        #expect(client.ocr([C.record(0), C.open(once)]).summary == "200")
        _ = client.pdr([C.close(once)])
        _ = client.end()
        #expect(client.ocr([C.record(1), C.record(0, C.other)]).summary == "200")
        #expect(client.shown["repeats"].int == 2)
    }

    @Test func duplicates_areReported_byWhatTheServerCanTell() {
        func identities(_ judged: SimulatedResult) -> [UInt64] { judged.items.identities }
        #expect(identities(client.start()) == identities(client.ocr([C.record(0)])))
        #expect(identities(client.screenStart()) != identities(client.screenStart()))
        let open = identities(client.pdr([C.open(once)]))
        #expect(open == identities(client.ocr([C.open(once)])))
        #expect(identities(client.pdr([C.close(once)])) == identities(client.screenEnd(once)))
        #expect(identities(client.post(V.golden("push-token"))) == identities(client.post(V.golden("push-token"))))
        #expect(identities(client.post(V.golden("push-token"))) != identities(client.post(V.golden("custom-id"))))
    }

    // MARK: Poison

    @Test func poison_refuses_andLeavesNothing() throws {
        let faults = try Faults(parsing: "poison=pageTitle:Ana sayfa:400")
        _ = client.start()
        let body = C.form(C.common() + [("data", C.data([C.open(once)]))])
        let refused = client.post("/batch/create", body, poisons: faults.poisons)
        #expect(refused.summary == "400")
        #expect(refused.items.ranges.isEmpty)
        #expect(client.post("/batch/create", body).summary == "200")
        #expect(client.shown["repeats"].int == 0)
    }
}
