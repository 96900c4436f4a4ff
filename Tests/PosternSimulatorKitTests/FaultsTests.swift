import PosternCore
import Testing

@testable import PosternSimulatorKit

@Suite struct FaultsTests {
    private typealias Rule = Faults.Rule

    @Test func rules_areRead_withTheirPathsAndConditions() throws {
        let faults = try Faults(parsing: " status=503:0.1 , reset-after@/oauth/token:x2,delay=20ms:0.5,,hang@/a%2Cb%3A")
        #expect(
            faults.rules == [
                Rule(fault: .status(503, retryAfter: nil), path: "", when: .probability(0.1)),
                Rule(fault: .resetAfter, path: "/oauth/token", when: .next(2)),
                Rule(fault: .delay(.milliseconds(20)), path: "", when: .probability(0.5)),
                Rule(fault: .hang, path: "/a,b:", when: .always),
            ])
        #expect(faults.poisons.isEmpty && !faults.isEmpty)
        #expect(faults.text == "status=503:0.1,reset-after@/oauth/token:x2,delay=20ms:0.5,hang@/a%2Cb%3A")
        #expect(try Faults(parsing: "").isEmpty)
    }

    static let faults: [(text: String, fault: Faults.Fault)] = [
        ("status=429/30", .status(429, retryAfter: .init(seconds: 30))),
        ("status=503/2imf", .status(503, retryAfter: .init(seconds: 2, form: .imf))),
        ("status=503/2rfc850", .status(503, retryAfter: .init(seconds: 2, form: .rfc850))),
        ("status=503/0asctime", .status(503, retryAfter: .init(seconds: 0, form: .asctime))),
        ("cut=200", .cut(200, retryAfter: nil)), ("cut=429/30", .cut(429, retryAfter: .init(seconds: 30))),
        ("reset-before", .resetBefore), ("reset-after", .resetAfter), ("hang", .hang), ("hang-after", .hangAfter),
        ("mute", .mute), ("garbage", .garbage), ("truncate", .truncate), ("pass", .pass),
        ("delay=1s", .delay(.seconds(1))), ("drip=2s", .drip(.seconds(2))), ("drip=5ms", .drip(.milliseconds(5))),
    ]

    @Test(arguments: faults) func fault_isReadByItsName(text: String, fault: Faults.Fault) throws {
        #expect(try Faults(parsing: text).rules == [Rule(fault: fault, path: "", when: .always)])
    }

    @Test func poisons_areReadApartFromTheRules() throws {
        let faults = try Faults(
            parsing: "poison=a%3Ab:c%2Cd:array,status=500:x1,poison=seq:7:413,poison=/object/id:bad")
        #expect(
            faults.poisons == [
                .init(field: "a:b", value: "c,d", answer: .naming), .init(field: "seq", value: "7", answer: .tooLarge),
                .init(field: "/object/id", value: "bad", answer: .failure),
            ])
        #expect(faults.rules == [Rule(fault: .status(500, retryAfter: nil), path: "", when: .next(1))])
    }

    static let problems: [(text: String, problem: String)] = [
        (
            "boom",
            "fault \"boom\": unknown; there are status, cut, delay, drip, poison, garbage, hang, hang-after, mute, pass, reset-after, reset-before, truncate"
        ),
        ("status", "fault \"status\": status needs a value, e.g. status=503, delay=20ms"),
        ("cut", "fault \"cut\": cut needs a value, e.g. status=503, delay=20ms"),
        ("status=99", "fault \"status=99\": a status is a number from 200 to 599"),
        (
            "status=503/x",
            "fault \"status=503/x\": Retry-After is written as seconds, 30, or 30imf, 30rfc850, 30asctime"
        ),
        ("hang=3", "fault \"hang=3\": hang takes no value"),
        ("hang:2", "fault \"hang:2\": after the colon, write a probability from 0 to 1, or x3 for three requests"),
        ("hang:x0", "fault \"hang:x0\": after the colon, write a probability from 0 to 1, or x3 for three requests"),
        ("delay=20", "fault \"delay=20\": a time is written 20ms or 2s"),
        ("poison=bad", "fault \"poison=bad\": a poison is written member:value or member:value:answer"),
        ("poison=a:b:418", "fault \"poison=a:b:418\": the answer to poison is 500, 413, 400, 401, 403, 404 or array"),
        ("hang@/a%2", "fault \"hang@/a%2\": % is followed by two hexadecimal digits"),
    ]

    @Test(arguments: problems) func text_isRefusedWithTheReason_whenItIsWrong(text: String, problem: String) {
        #expect(throws: FaultsProblem.self) { try Faults(parsing: text) }
        do { _ = try Faults(parsing: text) } catch { #expect("\(error)" == problem) }
    }

    private func actions(_ text: String, seed: UInt64 = 1, paths: [String]) throws -> [Faults.Fault] {
        var player = FaultPlayer(try Faults(parsing: text), seed: seed)
        return paths.map { player.decide(path: $0).action }
    }

    @Test func numberedRules_makeAScript() throws {
        let played = try actions("status=503:x2,pass:x1,reset-before:x1", paths: [String](repeating: "/", count: 6))
        #expect(
            played == [
                .status(503, retryAfter: nil), .status(503, retryAfter: nil), .pass, .resetBefore, .pass,
                .pass,
            ])
    }

    @Test func pathRules_meanOnlyPathsThatBeginSo() throws {
        let played = try actions("hang@/token", paths: ["/v1", "/token", "/token/x", "/", "/TOKEN"])
        #expect(played == [.pass, .hang, .hang, .pass, .pass])
    }

    @Test func mute_meansOnlyConnectionsThatAreOlder() throws {
        var player = FaultPlayer(try Faults(parsing: "mute:x2,status=500:x1"), seed: 1)
        let played = [false, true, false, true, true].map { player.decide(path: "/", isOnOld: $0).action }
        #expect(played == [.status(500, retryAfter: nil), .hang, .pass, .hang, .pass])
    }

    @Test func delays_addUp_onTheWayToAnotherFault() throws {
        var player = FaultPlayer(try Faults(parsing: "delay=20ms,delay=5ms:x1,status=500,delay=1s"), seed: 0)
        #expect(
            player.decide(path: "/") == FaultDecision(delay: .milliseconds(25), action: .status(500, retryAfter: nil)))
        #expect(player.decide(path: "/").delay == .milliseconds(20))
    }

    @Test func probabilities_areTheSame_withTheSameSeed() throws {
        let paths = [String](repeating: "/", count: 1000)
        let first = try actions("status=503:0.3,reset-after:0.5", seed: 7, paths: paths)
        #expect(try actions("status=503:0.3,reset-after:0.5", seed: 7, paths: paths) == first)
        #expect(try actions("status=503:0.3,reset-after:0.5", seed: 8, paths: paths) != first)
        #expect((250...350).contains(first.count { $0 == .status(503, retryAfter: nil) }))
        #expect((300...400).contains(first.count { $0 == .resetAfter }))  // half of the rest
    }

    @Test(arguments: [
        (0, [Faults.Fault.pass]), (1, [.hang]),
    ]) func probability_isCertain_atTheEnds(chance: Int, expected: [Faults.Fault]) throws {
        #expect(
            Set(try actions("hang:\(chance)", paths: [String](repeating: "/", count: 500)).map { "\($0)" })
                == Set(expected.map { "\($0)" }))
    }

    @Test(arguments: [
        (Faults.RetryAfter.Form.seconds, "37"), (.imf, "Sun, 06 Nov 1994 08:49:37 GMT"),
        (.rfc850, "Sunday, 06-Nov-94 08:49:37 GMT"), (.asctime, "Sun Nov  6 08:49:37 1994"),
    ]) func retryAfter_isWritten_inEveryForm(form: Faults.RetryAfter.Form, expected: String) {
        let now = Timestamp(milliseconds: 784_111_740_500)
        #expect(Faults.RetryAfter(seconds: 37, form: form).value(at: now) == expected)
    }
}
