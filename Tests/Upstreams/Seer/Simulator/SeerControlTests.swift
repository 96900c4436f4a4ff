import PosternConformance
import PosternSimulatorKit
import PosternTestKit
import Testing

@testable import SeerSimulator

private typealias V = SeerVectors

@Suite struct SeerControlTests {
    private let client = SeerClient()

    private func status(_ token: String) -> Int? { client.report("/tincan", V.t1, token: token).answer?.status }

    private func text(_ answer: SimulatedAnswer?) -> String { String(decoding: answer?.body ?? [], as: UTF8.self) }

    // MARK: The life of tokens

    @Test func token_isGood_untilItsDate() {
        client.control(#"{"tokenLifeSeconds":2.5}"#)
        let token = client.token()
        client.time.advance(by: .milliseconds(2500))
        #expect(status(token) == 200)
        client.time.advance(by: .milliseconds(1))
        let judged = client.report("/tincan", V.t1, token: token)
        #expect(judged.answer == Answer.badToken)
        #expect(judged.violations.isEmpty)
        #expect(client.shown["expiredTokenReports"].int == 1)
        #expect(client.shown["validTokens"].int == 0)
    }

    @Test func tokens_areAllGood_untilTheyAreRevoked() {
        let tokens = [client.token(), client.token()]
        #expect(Set(tokens).count == 2)
        #expect(tokens.map(status) == [200, 200])
        client.control(#"{"revokeNow":false}"#)
        #expect(client.shown["validTokens"].int == 2)
        client.control(#"{"revokeNow":true}"#)
        #expect(tokens.map(status) == [401, 401])
        #expect(client.shown["validTokens"].int == 0)
        #expect(status(client.token()) == 200)
    }

    @Test func token_ofAnEarlierRun_isRefused_andNoViolation() {
        let old = SeerClient()
        old.time.advance(by: .milliseconds(1))
        let judged = client.report("/tincan", V.t1, token: old.token())
        #expect(judged.answer == Answer.badToken)
        #expect(judged.violations.isEmpty)
    }

    @Test func token_thatWasRefused_isNotUsedAnyMore_seconds_later() {
        let token = client.token()
        client.control(#"{"revokeNow":true}"#)
        for (seconds, count) in [(0, 0), (5, 0), (1, 1)] {
            client.time.advance(by: .seconds(seconds))
            let judged = client.report("/tincan", V.t1, token: token)
            #expect(judged.answer?.status == 401)
            #expect(judged.violations.count == count)
        }
    }

    @Test func tokens_areForgotten_beyondAThousand() {
        let first = client.token()
        for _ in 0..<1000 { _ = client.token() }
        #expect(client.shown["validTokens"].int == 1000)
        #expect(client.report("/tincan", V.t1, token: first).violations.isEmpty)
        #expect(status(first) == 401)
    }

    // MARK: Answers to token requests

    static let forms: [(form: String, written: String?)] = [
        ("number", "1767229200000"), ("text", #""1767229200000""#), ("none", nil), ("null", "null"),
        ("seconds", "1767229200"), ("fraction", "1767229200000.75"), ("exponent", "1767229200000E+0"), ("short", "12"),
        ("negative", "-1"), ("huge", "99999999999999999999999999999999"), ("word", #""soon""#), ("empty", #""""#),
        ("flag", "true"), ("object", "{}"), ("array", "[1767229200000]"),
    ]

    @Test(arguments: forms) func expirationDate_isWritten_inTheFormThatIsSet(form: String, written: String?) {
        client.control(#"{"expirationForm":"\#(form)"}"#)
        let answer = text(client.askForToken().answer)
        #expect(answer.hasSuffix(written.map { #"==","expiration_date":\#($0)}"# } ?? #"=="}"#))
        #expect(status(client.token()) == 200)
    }

    @Test func expirationForms_areAllTested() {
        #expect(SeerSettings.ExpirationForm.allCases.map(\.rawValue) == Self.forms.map(\.form))
    }

    @Test func junk_isOKWithoutAToken_inManyForms() {
        client.control(#"{"tokenAnswer":"junk"}"#)
        let answers = (0..<20).map { _ in client.askForToken().answer }
        #expect(answers.allSatisfy { $0?.status == 200 })
        #expect(Set(answers.map(text)).count > 5)
        #expect(answers.allSatisfy { (JSON($0?.body ?? [])["access_token"].string ?? "").isEmpty })
        #expect(client.shown["tokensIssued"].int == 0)
    }

    @Test(arguments: [(200, true), (201, true), (204, nil), (304, nil), (401, false), (503, false)])
    func status_isAnswered_andItsTokenGoodOnlyWithSuccess(status: Int, isGood: Bool?) {
        client.control(#"{"tokenAnswer":"status:\#(status)"}"#)
        let judged = client.askForToken()
        #expect(judged.answer?.status == status)
        #expect(judged.violations.isEmpty)
        #expect(judged.json["access_token"].isThere == (isGood != nil))
        guard let isGood else { return }
        let report = client.report("/tincan", V.t1, token: judged.json["access_token"].string ?? "")
        #expect(report.answer?.status == (isGood ? 200 : 401))
        #expect(report.violations == (isGood ? [] : ["a token that was never issued"]))
    }

    @Test func slowAnswer_isDelayed_andOthersMeanwhileAreCounted() {
        client.control(#"{"tokenAnswer":"slow:300"}"#)
        #expect(client.askForToken().delay == .milliseconds(300))
        client.time.advance(by: .milliseconds(299))
        #expect(client.askForToken().answer?.status == 200)
        #expect(client.shown["overlappingTokenRequests"].int == 1)
        client.time.advance(by: .milliseconds(300))
        _ = client.askForToken()
        #expect(client.shown["overlappingTokenRequests"].int == 1)
        #expect(client.shown["tokenRequests"].int == 3)
    }

    // MARK: Random refusals

    @Test func refusals_areAsOftenAsSet_andRepeatWithTheSeed() {
        func refusals(_ seed: Int) -> [Bool] {
            let token = client.token()
            client.control(#"{"refuse401Rate":0.3,"seed":\#(seed)}"#)
            return (0..<500).map { _ in status(token) == 401 }
        }
        let first = refusals(7)
        #expect((100...200).contains(first.count { $0 }))
        #expect(refusals(7) == first)
        #expect(refusals(8) != first)
        #expect(client.shown["randomRefusals"].int ?? 0 >= 300)
    }

    @Test func refusal_leavesTheTokenGood_unlessItRevokes() {
        let token = client.token()
        for (revokes, after) in [(false, 200), (true, 401)] {
            client.control(#"{"refuse401Rate":1,"revoke":\#(revokes)}"#)
            let judged = client.report("/tincan", V.t1, token: token)
            #expect(judged.answer == Answer.badToken)
            #expect(judged.violations.isEmpty)
            client.control(#"{"refuse401Rate":0}"#)
            #expect(status(token) == after)
        }
    }

    // MARK: Sizes and paths

    @Test func body_beyondTheLimit_isTooLarge() {
        let token = client.token()
        client.control(#"{"bundleLimit":310}"#)
        #expect(status(token) == 200)
        let judged = client.report("/tincan/batch", V.batch([V.t1]), token: token)
        #expect(judged.answer?.status == 413)
        #expect(judged.violations.isEmpty)
    }

    @Test(arguments: [(1_048_576, 200), (1_048_577, 413)]) func body_ofMoreThanAnyBundle_isAViolation(
        bytes: Int, status: Int
    ) {
        client.control(#"{"customPaths":["c"]}"#)
        let body = #"{"x":"\#(String(repeating: "x", count: bytes - 8))"}"#
        let judged = client.report("/c", body, token: client.token())
        #expect(judged.answer?.status == status)
        #expect(judged.violations == (status == 200 ? [] : ["a body of more than 1048576 bytes"]))
    }

    @Test func reports_areCounted_byPath() {
        let token = client.token()
        _ = client.report("/tincan/batch", V.batch([V.t1, V.t1]), token: token)
        _ = client.report("/tincan/batch", V.batch([V.t1]), token: token)
        _ = client.report("/tincan/batch", V.batch([V.t1, V.t1, V.a1]), token: token)
        _ = client.report("/sactivity", V.a1, token: token, [("Authorization", "")])
        let reports = client.shown["reports"]
        #expect(
            reports["/tincan/batch"].description == #"{"accepted":2,"items":3,"largestBytes":638,"requests":3}"#)
        #expect(reports["/sactivity"].description == #"{"accepted":0,"items":0,"largestBytes":0,"requests":1}"#)
        #expect(client.shown["reportsWithoutAuthorization"].int == 1)
    }

    // MARK: The language

    @Test func settings_areShown_asTheyWereSet() {
        #expect(
            client.shown.description == """
                {"apiKey":"","bundleLimit":1048576,"clientId":"","clientSecret":"","customPaths":[],\
                "expirationForm":"number","expiredTokenReports":0,"overlappingTokenRequests":0,"randomRefusals":0,\
                "refuse401Rate":0,"reports":{},"reportsWithoutAuthorization":0,"revoke":false,"tokenAnswer":"normal",\
                "tokenLifeSeconds":3600,"tokenRequests":0,"tokensIssued":0,"validTokens":0}
                """)
        let answer = client.control(
            #"{"apiKey":"K","bundleLimit":5,"clientId":"i","clientSecret":"s","customPaths":["/a/","b//c?d=1"],"expirationForm":"word","refuse401Rate":0.5,"revoke":true,"tokenAnswer":"status:503","tokenLifeSeconds":0.5,"seed":3,"revokeNow":true}"#
        )
        #expect(answer?.status == 200)
        #expect(answer?.body.count == text(answer).utf8.count)
        #expect(answer?.json.description == client.shown.description)
        #expect(
            client.shown.description.hasPrefix(
                """
                {"apiKey":"K","bundleLimit":5,"clientId":"i","clientSecret":"s","customPaths":["\\/a","\\/b\\/\\/c?d=1"],\
                "expirationForm":"word",
                """))
        #expect(client.shown["tokenAnswer"].string == "status:503")
        #expect(client.shown["refuse401Rate"].double == 0.5)
        #expect(client.shown["revoke"].bool == true)
        #expect(client.shown["tokenLifeSeconds"].double == 0.5)
    }

    static let refused: [(body: String, problem: String)] = [
        ("", "the body is not a JSON object"), ("[]", "the body is not a JSON object"),
        ("{} x", "the body is not a JSON object"),
        (
            #"{"speed":1}"#,
            #"unknown member "speed"; known are apiKey, bundleLimit, clientId, clientSecret, customPaths, expirationForm, refuse401Rate, revoke, revokeNow, seed, tokenAnswer, tokenLifeSeconds"#
        ),
        (#"{"clientId":7}"#, "clientId: "), (#"{"clientSecret":null}"#, "clientSecret: "),
        (#"{"apiKey":["K"]}"#, "apiKey: "),
        (#"{"tokenLifeSeconds":-1}"#, "tokenLifeSeconds: must be from 0.0 to 1000000000.0"),
        (#"{"tokenLifeSeconds":"5"}"#, "tokenLifeSeconds: "),
        (
            #"{"expirationForm":"date"}"#,
            "expirationForm: must be one of number, text, none, null, seconds, fraction, exponent, short, negative, huge, word, empty, flag, object, array"
        ),
        (
            #"{"tokenAnswer":"slow:x"}"#,
            "tokenAnswer: must be normal, junk, slow:<milliseconds up to 3600000> or status:<200 to 599>"
        ),
        (#"{"tokenAnswer":"status:99"}"#, "tokenAnswer: must be normal, junk, slow:"),
        (#"{"refuse401Rate":1.1}"#, "refuse401Rate: must be from 0.0 to 1.0"),
        (#"{"revoke":1}"#, "revoke: "), (#"{"revokeNow":"yes"}"#, "revokeNow: "), (#"{"seed":1.5}"#, "seed: "),
        (#"{"seed":-1}"#, "seed: "), (#"{"bundleLimit":-5}"#, "bundleLimit: must be from 0 to 1099511627776"),
        (#"{"bundleLimit":99999999999999999999}"#, "bundleLimit: "),
        (#"{"customPaths":"a"}"#, "customPaths: "), (#"{"customPaths":[7]}"#, "customPaths[0]: "),
        (#"{"customPaths":["a","/a/"]}"#, "customPaths: must be at most 100 different paths"),
    ]

    static let refusedPaths: [(body: String, problem: String)] = [
        #"["/"]"#, #"["?x"]"#, #"["a b"]"#, #"["a#b"]"#, #"["tincan/"]"#, #"["a\"b"]"#,
    ].map { (#"{"customPaths":\#($0)}"#, "customPaths[0]: must be a path that is not a preset's") }

    @Test(arguments: refused + refusedPaths) func change_isRefusedWhole_whenSomethingIsWrongWithIt(
        body: String, problem: String
    ) {
        let before = client.shown.description
        let answer = client.control(body)
        #expect(answer?.status == 400)
        #expect(text(answer).hasPrefix(problem), "\(text(answer))")
        _ = client.control(#"{"clientId":"x",\#(body.dropFirst())"#)
        #expect(client.shown.description == before)
    }

    @Test(arguments: [("DELETE", "/control", 405), ("GET", "/control/tokens", nil)] as [(String, String, Int?)])
    func control_isAskedWithGETAndPOST_atOnePath(method: String, path: String, status: Int?) {
        let answer = client.simulator.control(SimulatedRequest(method: method, path: path, headers: [], body: []))
        #expect(answer?.status == status)
    }
}
