import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import CurioAdapter

/// Texts, codes, bodies and settings of Curio; the rest is in `ConformanceTests`.
@Suite struct CurioTests {
    private let fixture = UpstreamFixture.curio

    // MARK: Encoding

    /// Section 11.1: a text, after `enc` once, after `enc` twice.
    @Test(arguments: try Fixture.value("texts.json") as [[String]]) func text_isEncoded_onceOrTwice(texts: [String]) {
        let (text, once, twice) = (texts[0], texts[1], texts[2])
        #expect(String(decoding: CurioEncoding.encoded(text), as: UTF8.self) == once)
        var form = CurioForm()
        form.addTwice("x", text)
        #expect(String(decoding: form.body, as: UTF8.self) == "x=" + twice)
        #expect(formDecoded(formDecoded(twice)) == text)
    }

    // MARK: Codes

    @Test func sessionCode_isTheSpecifications() {
        let moment = Timestamp(milliseconds: 1_421_920_800_000)
        let code = Code.session(at: moment, clockSequence: 0x0123, node: 0x03AB_5C7D_9E1F)
        #expect(code == "6d551000-a21d-11e4-8123-03ab5c7d9e1f")
        #expect(
            Code.session(at: moment, ticks: 9999, clockSequence: .max, node: .max)
                == "6d55370f-a21d-11e4-bfff-ffffffffffff")
    }

    @Test func replacement_isASessionCode_thatDependsOnEveryInput() {
        func code(
            _ refused: String = "a", _ session: String = "b", _ visitor: String = "c", _ round: Int = 1,
            at now: Int64 = 0
        ) -> String {
            Code.session(
                insteadOf: refused, of: session, visitor: visitor, round: round,
                at: Timestamp(milliseconds: CurioSample.fresh + now))
        }
        #expect(code() == code())
        let all = [code(), code("x"), code("a", "x"), code("a", "b", "x"), code("a", "b", "c", 2), code(at: 1)]
        #expect(Set(all).count == all.count)
        for code in all {
            #expect(Code.isSession(Array(code.utf8)))
            // The lowest bit of the node's first byte: multicast.
            #expect(UInt8(code.suffix(12).prefix(2), radix: 16).map { $0 & 1 } == 1)
        }
    }

    @Test func openCode_isAVersion4UUID_theSameForTheSameOpen() {
        func code(_ id: Int64, _ session: String = "s", _ visitor: String = "v") -> String {
            Code.open(MessageID(rawValue: id), session: session, visitor: visitor)
        }
        #expect(code(1) == code(1))
        #expect(Set([code(1), code(2), code(1, "t"), code(1, "s", "w")]).count == 4)
        for code in (0..<50).map({ code($0) }) {
            let parts = code.split(separator: "-")
            #expect(parts.map(\.count) == [8, 4, 4, 4, 12])
            #expect(parts[2].first == "4" && parts[3].first.map { "89ab".contains($0) } == true)
            #expect(code == code.lowercased())
        }
    }

    // MARK: Bodies

    private static let reference = Requests.SessionReference(visitor: CurioSample.visitor, session: CurioSample.session)
    private static let screen = Texts(subject: .screen, first: "Ana sayfa", second: "/home")
    private static let event = Texts(subject: .event, first: "Buton>Giriş", second: "100% A+B")
    private static let codes = (
        screen: "6f9619ff-8b86-4d01-b42d-00cf4fc964ff", event: "7d444840-9dc0-41d1-b245-5ffdce74fad2"
    )

    private func requests() throws -> Requests {
        try #require(try fixture.make().base as? CurioUpstream).settings.requests
    }

    private func record(_ step: Record.Step, after milliseconds: Int64) -> Record {
        Record(step: step, timestamp: 1_421_920_800_000 + milliseconds, session: CurioSample.session)
    }

    @Test func eventEnd_isTheGoldenOne() throws {
        let request = try requests().close(
            Self.event, duration: 35045, code: "d7a8fbb307d7809469ca9abcb0082e4f", at: Self.reference)
        #expect(try request.spelledOut == Fixture.bytes("event-end.http"))
    }

    @Test func periodicBatch_isTheGoldenOne() throws {
        let records = [
            record(.open(Self.screen, code: Self.codes.screen), after: 1000),
            record(.open(Self.event, code: Self.codes.event), after: 2500),
            record(.close(Self.event, duration: 35045, code: Self.codes.event), after: 37545),
            record(.close(Self.screen, duration: nil, code: Self.codes.screen), after: 40000),
        ]
        let request = try requests().periodic(records, at: Self.reference)
        #expect(try request.spelledOut == Fixture.bytes("periodic-batch.http"))
    }

    @Test func offlineBatch_isTheGoldenOne() throws {
        let records = [
            record(.sessionStart, after: 0), record(.open(Self.screen, code: Self.codes.screen), after: 1000),
            record(.close(Self.screen, duration: nil, code: Self.codes.screen), after: 40000),
            record(.sessionEnd, after: 41000),
        ]
        let request = try requests().offline(records, of: CurioSample.visitor, CurioSample.deviceBlock)
        #expect(try request.spelledOut == Fixture.bytes("offline-batch.http"))
    }

    @Test func batch_saysWhatTheGoldenOneSays_exceptForItsOwnCodes() throws {
        var harness = try CurioHarness()
        let start: Int64 = 1_421_920_800_000
        harness.now = Timestamp(milliseconds: start + 3_600_000)
        try harness.post(CurioSample.sessionStart(at: start))
        let opener = try harness.post(CurioSample.screenStart("Ana sayfa", "/home", at: start + 1000)).id
        try harness.post(CurioSample.make("screen_end", CurioSample.screenClass, at: start + 40000))
        try harness.post(CurioSample.make("session_end", at: start + 41000))
        try harness.turn { _ in UpstreamResponse(status: 200) }
        #expect(harness.queue.isEmpty)
        let code = Code.open(opener, session: CurioSample.session, visitor: CurioSample.visitor)
        let text = String(decoding: harness.sent[0].spelledOut, as: UTF8.self)
        #expect(text.contains(code))
        #expect(
            try Array(text.replacing(code, with: Self.codes.screen).utf8) == Fixture.bytes("offline-batch.http"))
    }

    @Test func serverCode_needsNoPlainText() throws {
        let odd = #"a"b\&=ş"#
        let records = [record(.close(Self.screen, duration: nil, code: odd), after: 0)]
        let data = try #require(try requests().periodic(records, at: Self.reference).form["data"])
        #expect(data.hasSuffix(#""hitCode":"a\"b\\&=ş"}]"#))
    }

    // MARK: Settings

    @Test func settings_areRefused_withEveryProblem() {
        #expect(
            throws: Setting.Problems([
                ("serverURL", "must begin with http:// or https://"), ("trackingCode", "must not hold U+0000"),
                ("userAgentVersion", "must be ASCII without white space, and not empty"),
            ])
        ) {
            try fixture.make([
                "serverURL": .text("curio"), "trackingCode": .text("a\0"), "userAgentVersion": .text("1 2"),
            ])
        }
        #expect(
            throws: Setting.Problems([
                ("dispatchPeriodMinutes", "must not exceed sessionTimeoutMinutes, which is 5")
            ])
        ) {
            try fixture.make([
                "sessionTimeoutMinutes": .integer(5), "dispatchPeriodMinutes": .integer(6),
                "periodicDispatchEnabled": .bool(true),
            ])
        }
    }

    @Test func dispatchPeriod_mayBeTheTimeout_orAnythingWhileItIsOff() throws {
        for settings: [String: SettingValue] in [
            ["dispatchPeriodMinutes": .integer(30), "periodicDispatchEnabled": .bool(true)],
            ["dispatchPeriodMinutes": .integer(1440)],
        ] {
            #expect(throws: Never.self) { try fixture.make(settings) }
        }
    }

    @Test func missingCredentials_areNamed() throws {
        #expect(try fixture.make().missingSettings.isEmpty)
        let bare = try fixture.make(["apiKey": .text(""), "trackingCode": .text("")])
        #expect(bare.missingSettings == ["apiKey", "trackingCode"])
    }

    @Test func serverURL_endsWithoutSlashes_andUserAgentHasTheConfiguredVersion() throws {
        let upstream = try fixture.make([
            "serverURL": .text("http://h/api/v2//"), "userAgentVersion": .text("9.9"),
            "onlineMaxAgeSeconds": .integer(5),
        ])
        let request = try fixture.request(
            for: fixture.messages(of: [CurioSample.make("session_end")], to: upstream), to: upstream)
        #expect(request.url == "http://h/api/v2/visit/end")
        #expect(request.headers.first { $0.name == "User-Agent" }?.value == "IOS CurioSDK v9.9")
    }

    @Test func limits_endAtTheSDKsBatch() throws {
        let configured = BatchLimits(maxMessages: 500, maxBytes: 1000)
        #expect(try fixture.make().limits(configured) == BatchLimits(maxMessages: 250, maxBytes: 1000))
        #expect(try fixture.make().limits(.init(maxMessages: 7, maxBytes: 1)).maxMessages == 7)
    }

    @Test func locations_areRefused_whenSwitchedOff() throws {
        let upstream = try fixture.make(["fetchLocationEnabled": .bool(false)])
        let refusal = #expect(throws: InvalidPayload.self) {
            try fixture.validate(CurioSample.make("location", #""lat":1,"long":1"#), to: upstream)
        }
        #expect(refusal?.faults.kept.map(\.pointer) == [""])
    }

    // MARK: Records of the state

    @Test func records_areReadAsTheyWereWritten() {
        let session = Session(
            visitor: "ş", startedAt: -1, device: CurioSample.deviceBlock, touchedAt: UpstreamFixture.now, isEnded: true)
        #expect(Session(session.bytes) == session)
        #expect(session.bytes.first == 1)
        for (timeout, hasCodes) in [(1440, false), (nil, true), (1, true)] {
            var extended = session
            (extended.timeoutMinutes, extended.hasCodes) = (timeout, hasCodes)
            #expect(Session(extended.bytes) == extended)
        }
        for text in [nil, "m"] {
            for subject in [Texts.Subject.screen, .event] {
                let open = OpenInterval(
                    id: MessageID(rawValue: 1), timestamp: 3, texts: Texts(subject: subject, first: "a", second: ""),
                    code: "c", markHash: text, closedBy: text.map { _ in MessageID(rawValue: 2) }, session: text)
                #expect(OpenInterval(open.bytes) == open)
            }
        }
        for texts in [nil, Texts(subject: .screen, first: "a", second: "")] {
            for covers in [nil, MessageID(rawValue: 7)] {
                let open = OpenInterval(id: MessageID(rawValue: .max), timestamp: 3, texts: texts, covers: covers)
                #expect(OpenInterval(open.bytes) == open)
            }
        }
        let remote = RemoteSession(
            isStarted: true, replacement: "r", pending: "p", rounds: 3, refusedStarts: 1, refusal: "no",
            earlier: .init(code: "e", through: MessageID(rawValue: 5)))
        for remote in [remote, RemoteSession()] { #expect(RemoteSession(remote.bytes) == remote) }
        for code in [IntervalCode.server("x"), .server(""), .own, .missing, .refused] {
            #expect(IntervalCode(code.bytes) == code)
        }
    }

    @Test func record_thatIsCutOrOfAnotherVersion_isNone() {
        let bytes = Session(
            visitor: "v", startedAt: 1, device: CurioSample.deviceBlock, touchedAt: UpstreamFixture.now
        ).bytes
        for count in 0..<bytes.count { #expect(Session(Array(bytes.prefix(count))) == nil) }
        #expect(Session([2] + bytes.dropFirst()) == nil)
    }
}
