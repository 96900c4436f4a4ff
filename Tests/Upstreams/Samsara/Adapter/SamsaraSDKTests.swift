import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import SamsaraAdapter

/// What the platform's clients are answered, and what becomes of what they send.
@Suite struct SamsaraSDKTests {
    private static let now = Timestamp(milliseconds: 1_479_988_865_000)

    private static func endpoints(_ set: (inout SamsaraSettings) -> Void = { _ in }) -> SDKEndpoints {
        var settings = SamsaraSettings()
        settings.sdk.isEnabled = true
        set(&settings)
        return SamsaraUpstream(UpstreamName("samsara")!, settings).sdk!
    }

    private struct Outcome {
        var payloads: [String] = []
        var failures: [String?] = []
        var lanes: [Lane?] = []
        var answer: SDKAnswer
        var text: String { String(decoding: answer.body, as: UTF8.self) }
        var type: String? { answer.headers.first { $0.name == "Content-Type" }?.value }
    }

    private static func post(
        _ body: String, type: String? = "application/json", at published: String? = "1479988864057",
        _ set: (inout SamsaraSettings) -> Void = { _ in }
    ) throws -> Outcome {
        let route = try #require(endpoints(set).routes.first { $0.call == "events" })
        guard case .store(let read) = route.response else { throw CancellationError() }
        let request = SDKRequest(
            headers: { name in
                switch name {
                case "Content-Type": type
                case "X-Samsara-publishedTimestamp": published
                default: nil
                }
            }, body: Array(body.utf8), receivedAt: now)
        do throws(SDKAnswer) {
            let submission = try read(request)
            var outcome = Outcome(answer: submission.answer(SDKReceipt(ids: [])))
            for item in submission.items {
                outcome.payloads.append(String(decoding: submission.bytes[item.range], as: UTF8.self))
                switch item.validation {
                case .success(let valid):
                    outcome.failures.append(nil)
                    outcome.lanes.append(valid.lane)
                case .failure(let invalid):
                    outcome.failures.append(invalid.faults.text)
                    outcome.lanes.append(nil)
                }
            }
            return outcome
        } catch {
            return Outcome(answer: error)
        }
    }

    @Test func events_areStoredAsTheyCame_withTheTimesOfTheirReceipt() throws {
        let one = #"{"timestamp":1433004485870,"sourceId":"3aw4sedrtcyvgbuhjkn","eventName":"session.started"}"#
        let two = #"{ "eventName":"","sourceId":"","timestamp":-1, "x":[1.10,1e400,"\ud800","\/"] }"#
        let found = try Self.post("[\(one), \(two)]")
        let stamps = #","receivedAt":1479988865000,"publishedAt":1479988864057}"#
        #expect(found.payloads == [one.dropLast() + stamps, two.dropLast() + stamps])
        #expect(found.failures == [nil, nil])
        #expect(found.lanes == [.digest(of: "3aw4sedrtcyvgbuhjkn".utf8), .digest(of: "".utf8)])
        #expect(found.answer == SDKAnswer(202, .accepted))
    }

    /// As the server does: a value other than `null` and `false` is kept.
    @Test(arguments: [
        (#""receivedAt":null,"publishedAt":false"#, #""receivedAt":1479988865000,"publishedAt":5"#),
        (#""publishedAt":null,"receivedAt":0"#, #""publishedAt":5,"receivedAt":0"#),
        (#""receivedAt":"","publishedAt":true"#, #""receivedAt":"","publishedAt":true"#),
    ])
    func times_areSet_unlessTheyAreThere(given: String, stored: String) throws {
        let found = try Self.post(#"[{"timestamp":1,"sourceId":"a",\#(given),"eventName":"b"}]"#, at: "+0005")
        #expect(found.payloads == [#"{"timestamp":1,"sourceId":"a",\#(stored),"eventName":"b"}"#])
        let plain = try Self.post(#"[{"timestamp":1,"sourceId":"a","eventName":"b"}]"#) { $0.stampsEvents = false }
        #expect(plain.payloads == [#"{"timestamp":1,"sourceId":"a","eventName":"b"}"#])
    }

    @Test func missingTimestampHeader_isWarnedAbout() throws {
        let event = #"{"timestamp":1,"sourceId":"a","eventName":"b"}"#
        let found = try Self.post("[\(event)]", at: nil)
        #expect(found.payloads == [event.dropLast() + #","receivedAt":1479988865000}"#])
        #expect(found.answer.status == 202 && found.type == "application/json; charset=utf-8")
        #expect(
            found.text
                == #"{"status":"OK","warning":"For completeness, please provide the 'X-Samsara-publishedTimestamp' header."}"#
        )
        #expect(try Self.post("[]").answer == SDKAnswer(202, .accepted))
        #expect(try Self.post("[]", at: nil).text == found.text)
    }

    @Test(arguments: [
        "application/json", "Application/JSON; charset=utf-8", "application/json ;x=y", "application/x+json",
    ])
    func anyJSONType_isTaken(type: String) throws { #expect(try Self.post("[]", type: type).answer.status == 202) }

    @Test(arguments: [nil, "text/json", "application/+json", "application/jsonx", "json", ""] as [String?])
    func otherTypes_areRefused(type: String?) throws {
        let found = try Self.post("[]", type: type)
        #expect(found.answer.status == 400 && found.type == "application/json; charset=utf-8")
        #expect(found.text == #"{"status":"ERROR","message":"Invalid format, content-type must be application/json"}"#)
    }

    @Test(arguments: ["", " ", "{", "[", "[{]", "nul", #"["a"#, "null", "{}", "1", #""a""#, "[1] x", "[\"\u{1}\"]"])
    func textThatIsNotAnArray_isMalformed(body: String) throws {
        let found = try Self.post(body)
        #expect(found.answer.status == 400 && found.type == "text/plain", "\(body)")
        #expect(found.text == "Malformed JSON in request body.")
    }

    @Test(arguments: ["", "1.5", "9223372036854775808", "abc", "1,2"])
    func invalidTimestampHeader_isRefused(header: String) throws {
        let found = try Self.post("[]", at: header)
        #expect(found.answer.status == 400)
        #expect(
            found.text == #"{"status":"ERROR","message":"X-Samsara-publishedTimestamp must be a valid timestamp."}"#)
    }

    private static let valid = #"{"timestamp":1,"sourceId":"a","eventName":"b"}"#

    /// The specification's "Event schema".
    @Test(arguments: [
        (#"{"timestamp":1,"sourceId":"a"}"#, "{:eventName missing-required-key}"),
        (
            "{}",
            "{:timestamp missing-required-key, :sourceId missing-required-key, :eventName missing-required-key}"
        ),
        (#"{"timestamp":"5","sourceId":"a","eventName":"b"}"#, #"{:timestamp (not (integer? "5"))}"#),
        (#"{"timestamp":null,"sourceId":"a","eventName":"b"}"#, "{:timestamp (not (integer? nil))}"),
        (#"{"timestamp":1.0,"sourceId":"a","eventName":"b"}"#, "{:timestamp (not (integer? 1.0))}"),
        (#"{"timestamp":1e3,"sourceId":"a","eventName":"b"}"#, "{:timestamp (not (integer? 1000.0))}"),
        (
            #"{"timestamp":1433004490171.5,"sourceId":"a","eventName":"b"}"#,
            "{:timestamp (not (integer? 1.4330044901715E12))}"
        ),
        (#"{"timestamp":1e7,"sourceId":"a","eventName":"b"}"#, "{:timestamp (not (integer? 1.0E7))}"),
        (#"{"timestamp":-12345678.9,"sourceId":"a","eventName":"b"}"#, "{:timestamp (not (integer? -1.23456789E7))}"),
        (#"{"timestamp":0.00099,"sourceId":"a","eventName":"b"}"#, "{:timestamp (not (integer? 9.9E-4))}"),
        (#"{"timestamp":1e400,"sourceId":"a","eventName":"b"}"#, "{:timestamp (not (integer? Infinity))}"),
        (#"{"timestamp":-1e400,"sourceId":"a","eventName":"b"}"#, "{:timestamp (not (integer? -Infinity))}"),
        (#"{"timestamp":1,"sourceId":5,"eventName":"b"}"#, "{:sourceId (not (instance? java.lang.String 5))}"),
        (
            #"{"timestamp":"12345678901234567890","sourceId":"a","eventName":"b"}"#,
            "{:timestamp (not (integer? a-java.lang.String))}"
        ),
        (
            #"{"timestamp":"a\"\\\n","sourceId":"a","eventName":[]}"#,
            #"{:timestamp (not (integer? "a\"\\\n")), :eventName (not (instance? java.lang.String a-clojure.lang.PersistentVector))}"#
        ),
        ("5", "(not (map? a-java.lang.Long))"), ("null", "(not (map? nil))"),
    ])
    func fault_isNamedInThePlatformsWords(element: String, text: String) throws {
        let found = try Self.post("[\(Self.valid),\(element)]")
        #expect(found.answer.status == 400 && found.type == "application/json; charset=utf-8")
        #expect(found.text == "[\"OK\",\(JSONEscapes.quoted(text))]")
        #expect(found.payloads.isEmpty)
        // Or it becomes a dead letter, and its neighbors do not suffer.
        let kept = try Self.post("[\(element),\(Self.valid)]") { $0.sdk.whenInvalid = .deadLetter }
        #expect(kept.answer == SDKAnswer(202, .accepted))
        #expect(kept.failures == [text, nil])
    }

    @Test func eventAboveItsLimit_isADeadLetter_whateverIsConfigured() throws {
        let large = #"{"timestamp":1,"sourceId":"a","eventName":"\#(String(repeating: "b", count: 1000))"}"#
        let found = try Self.post("[\(large),\(Self.valid)]") { $0.eventMaxBytes = large.utf8.count - 1 }
        #expect(found.answer.status == 202)
        #expect(found.failures == ["must not have more than 1044 bytes; it has 1045", nil])
        let fitting = try Self.post("[\(large)]") { $0.eventMaxBytes = large.utf8.count }
        #expect(fitting.failures == [nil])
    }

    @Test func endpoints_areWhereTheSettingsSay() {
        #expect(SamsaraUpstream(UpstreamName("s")!, SamsaraSettings()).sdk == nil)
        #expect(Self.endpoints().prefix == "/sdk/samsara")
        let moved = Self.endpoints { ($0.sdk.prefix, $0.sdkServesRoot) = ("/x/y", true) }
        #expect(moved.prefix == "/x/y" && moved.routes.allSatisfy { $0.isAtRoot })
        #expect(!Self.endpoints().routes.contains { $0.isAtRoot })
    }
}
