import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

/// The turn in which a message waits.
@Suite struct FairnessTests {
    private let caller = Fairness.turn(ofCaller: "backend")

    private func turn(
        by text: String, ofCaller caller: Int64?, key: String? = nil, _ payload: String = "{}"
    ) throws -> Int64 {
        let fairness = Fairness(by: try #require(FairBy(text)))
        return try JSONParser().parse(Array(payload.utf8)) { value throws(InvalidPayload) in
            fairness.turn(ofCaller: caller, key: key, payload: value)
        }.get()
    }

    @Test(arguments: ["none", "caller", "key", "/tenant", "/a~1b/0"]) func setting_isShownAsItIsWritten(text: String) {
        #expect(FairBy(text)?.text == text)
    }

    @Test(arguments: ["", "tenant", "/a~2", "Caller"]) func otherText_isNotASetting(text: String) {
        #expect(FairBy(text) == nil)
    }

    @Test func callers_haveTurnsOfTheirOwn() throws {
        #expect(caller != Fairness.turn(ofCaller: "jobs"))
        #expect(try turn(by: "caller", ofCaller: caller, key: "7", #"{"tenant":"7"}"#) == caller)
        #expect(try turn(by: "caller", ofCaller: nil) != 0, "0 is the turn of what was stored without turns")
    }

    @Test func values_areStringsAndNumbers_howeverTheyAreEscaped() throws {
        let seven = try turn(by: "/tenant", ofCaller: caller, #"{"tenant":"7"}"#)
        #expect(try turn(by: "/tenant", ofCaller: nil, #"{"tenant":"\u0037"}"#) == seven)
        #expect(try turn(by: "/tenant", ofCaller: caller, #"{"tenant":7}"#) == seven)
        #expect(try turn(by: "/tenant", ofCaller: caller, #"{"tenant":"8"}"#) != seven)
        #expect(try turn(by: "key", ofCaller: caller, key: "7") != turn(by: "key", ofCaller: caller, key: "8"))
    }

    @Test(arguments: ["{}", #"{"tenant":null}"#, #"{"tenant":{"id":7}}"#, #"{"tenant":true}"#])
    func messageWithoutTheValue_waitsInTheTurnOfItsCaller(payload: String) throws {
        #expect(try turn(by: "/tenant", ofCaller: caller, payload) == caller)
        #expect(try turn(by: "key", ofCaller: caller, payload) == caller)
    }

    @Test func value_isNotTakenForTheCallerOfThatName() throws {
        #expect(try turn(by: "/tenant", ofCaller: nil, #"{"tenant":"backend"}"#) != caller)
    }
}
