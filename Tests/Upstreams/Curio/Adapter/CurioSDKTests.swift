import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import CurioAdapter

/// What the vendor's SDKs post, read as the platform would read it.
@Suite struct CurioSDKTests {
    private static let iOS = "7B3A9001-51C3-4F0B-9A77-3E0D6C5B4A01"
    private static let android = "b1d2c3e4-0001-4a5b-8c6d-7e8f90a1b2c3"
    private static let session = CurioSample.session
    private static let issued = "0c0ffee0-0000-4000-8000-000000000001"
    private static let hit = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"
    private static let event = "7d444840-9dc0-41d1-b245-5ffdce74fad2"
    private static let pushToken = "9c1e5d0f7a2b4c6d8e9fa0b1c2d3e4f5061728394a5b6c7d8e9f0a1b2c3d4e5f"
    private static let received = Timestamp(milliseconds: 1_421_920_900_000)
    private static let t0: Int64 = 1_421_920_800_000

    private func request(_ file: String) throws -> CurioSDKRequest {
        let text = String(decoding: try Fixture.bytes("sdk/\(file).http"), as: UTF8.self)
        let parts = text.split(separator: "\n\n", maxSplits: 1)
        let path = try #require(parts[0].split(separator: " ").dropFirst().first).dropFirst("/sdk/curio".count)
        let call = try #require(SDKCall.all.first { $0.matches(path.dropFirst()) }, "\(path)")
        return CurioSDKRequest(call: call, form: try #require(SDKForm(Array(parts[1].utf8))))
    }

    private func parsed(_ text: String) -> SDKForm? { SDKForm(Array(text.utf8)) }

    private func batch(_ data: String, _ more: String = "&visitorCode=v&sessionCode=s") throws -> SDKBatch? {
        var form = CurioForm()
        form.add("data", data)
        let read = try #require(SDKForm(form.body + Array(more.utf8)))
        return SDKBatch(CurioSDKRequest(call: .batch, form: read))
    }

    // MARK: Calls

    @Test(arguments: [
        ("ios-visit-create", "visit_create"), ("ios-hit-create", "hit_create"), ("ios-hit-end", "hit_end"),
        ("ios-event-create", "event_create"), ("ios-event-end", "event_end"), ("ios-visit-end", "visit_end"),
        ("ios-batch-create", "batch"), ("ios-offline-create", "offline"), ("ios-push-token", "push"),
        ("ios-notification-read", "push"), ("ios-custom-id", "push"), ("ios-location", "location"),
        ("ios-user-tags", "tags_set"), ("ios-unregister", "unregister"), ("ios-tags", "tags_get"),
        ("ios-push-history", "push_history"), ("ios103-hit-create", "hit_create"),
        ("android-visit-create", "visit_create"), ("android-offline-create", "offline"), ("android-tags", "tags_get"),
    ])
    func request_isOfACall_withItsCredentials(file: String, name: String) throws {
        let request = try request(file)
        #expect(request.call.name == name)
        #expect(request.visitor == (file.hasPrefix("ios") ? Self.iOS : Self.android))
        #expect(request.session == (name == "offline" ? nil : Self.session))
        let key = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
        #expect(request.hasCredentials(apiKey: key, trackingCode: "GW7DEM01"))
        #expect(!request.hasCredentials(apiKey: key, trackingCode: "GW7DEM02"))
        #expect(!request.hasCredentials(apiKey: key, trackingCode: ""))
        let needsKey = ["visit_create", "offline"].contains(name)
        #expect(request.call.needsAPIKey == needsKey)
        #expect(request.hasCredentials(apiKey: String(key.dropLast()), trackingCode: "GW7DEM01") == !needsKey)
        #expect(request.call.needsLiveSession == !(needsKey || name == "visit_end"))
    }

    // MARK: Forms

    @Test func parameter_isDecodedOnce_andTheFourTextsTwice() throws {
        let form = try #require(
            parsed(
                "pageTitle=Ana%2Bsayfa%2B%25E2%2580%2593&path=100%25&eventKey=%e2%80%93+a&eventValue=&customId=a%2Bb+%25"
            ))
        #expect(form["pageTitle"] == "Ana sayfa –")
        // What is not encoded twice stays as it is.
        #expect(form["path"] == "100%" && form["eventKey"] == "– a")
        #expect(form["eventValue"] == "" && form.filled("eventValue") == nil)
        #expect(form["customId"] == "a+b %")
        #expect(form["lat"] == nil)
    }

    @Test func value_isLatin1_ifItIsNotUTF8() throws {
        let form = try #require(parsed("a=%FC%3F&b=%C3%BC&c=%C3%BC%FC&pageTitle=%25FC"))
        #expect(form["a"] == "ü?" && form["b"] == "ü" && form["c"] == "Ã¼ü")
        // The inner encoding is UTF-8.
        #expect(form["pageTitle"] == "%FC")
    }

    @Test func lastValueCounts_ofANameThatIsRepeated() throws {
        let form = try #require(parsed("a=1&b=2&a=3&&=&c"))
        #expect(form["a"] == "3" && form["b"] == "2" && form["c"] == nil)
    }

    @Test func placeholder_isNothing() throws {
        for word in ["NULL", "%28null%29", "%3Cnull%3E"] {
            for name in ["customId", "pageTitle", "sessionCode", "hitCode"] {
                #expect(try #require(parsed("\(name)=\(word)"))[name] == nil, "\(name)=\(word)")
            }
        }
        #expect(parsed("pageTitle=%2528null%2529")?["pageTitle"] == nil)
        #expect(parsed("hitCode=UNKNOWN")?["hitCode"] == nil && parsed("eventCode=UNKNOWN")?["eventCode"] == nil)
        #expect(parsed("simOperator=UNKNOWN")?["simOperator"] == "UNKNOWN")
        #expect(parsed("sessionTimeout=0")?["sessionTimeout"] == nil && parsed("storage=0")?["storage"] == "0")
        #expect(parsed("a=null")?["a"] == "null" && parsed("a=Null")?["a"] == "Null")
    }

    @Test(arguments: ["", "&", "a", "a&b", #"{"a":1}"#, "a=%", "a=%1", "a=%G0", "a=1&b=%4", "%=1", "a=1&%zz"])
    func body_isNotAForm(body: String) { #expect(parsed(body) == nil) }

    @Test(arguments: [
        ("30", 30), ("1", 1), ("1440", 1440), ("0", nil), ("1441", nil), ("-1", nil), ("x", nil), ("", nil),
    ])
    func timeout_isThatOfTheSettings_ifItIsNone(text: String, minutes: Int?) throws {
        let request = CurioSDKRequest(
            call: .report(.sessionStart), form: try #require(parsed("sessionTimeout=\(text)")))
        #expect(request.timeoutMinutes == minutes)
    }

    // MARK: Reports

    private static let reports: [(file: String, kind: CurioKind, members: String)] = [
        (
            "ios-hit-create", .screenStart,
            #""pageTitle":"Ana sayfa – Şarkılar","path":"/müzik?x=1+1&y=%20","hitCode":"I""#
        ),
        ("ios-hit-end", .screenEnd, #""hitCode":"H""#),
        ("ios-event-create", .event, #""eventKey":"Buton>Giriş","eventValue":"100% A+B","eventCode":"I""#),
        ("ios-event-end", .eventEnd, #""eventDuration":35045,"eventCode":"E""#), ("ios-visit-end", .sessionEnd, ""),
        ("ios-push-token", .pushToken, #""pushToken":"P""#),
        ("ios-notification-read", .notificationRead, #""pushToken":"P","pushId":"5542fe0ee4b0d5e3a1b2c3d4""#),
        ("ios-custom-id", .customID, #""pushToken":"P","customId":"müşteri 42/ü+x""#),
        ("ios-location", .location, #""lat":"41.0082376","long":"28.9783589""#),
        ("ios-user-tags", .userTags, #""userTags":{"ŞEHİR":"Kadıköy\/Moda","AGE":"27"}"#),
        ("ios-unregister", .unregister, ""),
        ("ios103-hit-create", .screenStart, #""pageTitle":"Tom ","path":"a b=c","hitCode":"I""#),
        (
            "android-hit-create", .screenStart,
            #""pageTitle":"Ana sayfa – Şarkılar","path":"/müzik?x=1+1&y=%20","hitCode":"I""#
        ),
        ("android-hit-end", .screenEnd, #""pageTitle":"Ana sayfa – Şarkılar","path":"/müzik?x=1+1&y=%20""#),
        ("android-event-create", .event, #""eventKey":"Buton>Giriş","eventValue":"100% A+B","eventCode":"I""#),
        (
            "android-event-end", .eventEnd,
            #""eventKey":"Buton>Giriş","eventValue":"100% A+B","eventDuration":35045,"eventCode":"E""#
        ), ("android-visit-end", .sessionEnd, ""), ("android-push-token", .pushToken, #""pushToken":"APA91b:x_-y""#),
        (
            "android-notification-read", .notificationRead,
            #""pushToken":"APA91b:x_-y","pushId":"5542fe0ee4b0d5e3a1b2c3d4""#
        ),
        ("android-custom-id", .customID, #""pushToken":"APA91b:x_-y","customId":"müteri 42/ü+x""#),
        ("android-user-tags", .userTags, #""userTags":{"AGE":"27","?EH?R":"Kad?köy"}"#),
        ("android-unregister", .unregister, #""customId":"user-42","pushToken":"APA91b:x_-y""#),
    ]

    @Test(arguments: reports)
    func report_becomesAMessage(file: String, kind: CurioKind, members: String) throws {
        let request = try request(file)
        guard case .report(let report) = request.call else {
            Issue.record("\(file) is not a report")
            return
        }
        let item = request.item(report, code: Self.issued, at: Self.received)
        let visitor = file.hasPrefix("ios") ? Self.iOS : Self.android
        let common =
            #""visitorCode":"\#(visitor)","sessionCode":"\#(Self.session)","timestamp":\#(Self.received.milliseconds)"#
        let spelledOut = members.replacing(#":"I""#, with: #":"\#(Self.issued)""#)
            .replacing(#":"H""#, with: #":"\#(Self.hit)""#).replacing(#":"E""#, with: #":"\#(Self.event)""#)
            .replacing(#":"P""#, with: #":"\#(Self.pushToken)""#)
        let expected = CurioSDKItem(kind: kind, payload: "{\(common)\(members.isEmpty ? "" : ",")\(spelledOut)}")
        #expect(item == expected)
    }

    @Test func deviceBlock_isStoredAsItIs() throws {
        let request = try request("ios-visit-create")
        #expect(request.device == CurioSample.deviceBlock)
        let item = request.item(.sessionStart, code: Self.issued, at: Self.received)
        #expect(item.kind == .sessionStart)
        #expect(item.payload.contains(#""screenWidth":"750","screenHeight":"1334","lang":"tr-TR""#))
        #expect(item.payload.hasSuffix(#""storage":"10240","sessionTimeout":30}"#))
        guard case .sessionStart(let device, 30)? = Action(Array(item.payload.utf8), of: .sessionStart)?.content else {
            Issue.record("\(item.payload)")
            return
        }
        #expect(device == request.device)
        // What is missing stays so, and so does what is empty.
        let odd = CurioSDKRequest(call: request.call, form: try #require(parsed("lang=&brand=NULL&osVer=9")))
        #expect(odd.device.values.compactMap(\.self) == ["", "9"])
        #expect(try self.request("android-visit-create").device.values[5] == "Türk Telekom ? ?")
    }

    @Test func tagsThatAreNotJSON_stayAText() throws {
        let request = CurioSDKRequest(
            call: .report(.userTags), form: try #require(parsed("userTags=%7Bx&visitorCode=v")))
        let item = request.item(.userTags, code: "", at: Self.received)
        #expect(item.payload == #"{"visitorCode":"v","timestamp":1421920900000,"userTags":"{x"}"#)
    }

    // MARK: Records

    private func payload(
        _ seconds: Double, _ members: String = "", of visitor: String = iOS, session: String = session,
        in form: String = "batch"
    ) -> String {
        let moment = Self.t0 + Int64(seconds * 1000)
        return
            #"{"visitorCode":"\#(visitor)","sessionCode":"\#(session)","timestamp":\#(moment)\#(members),"sentIn":"\#(form)"}"#
    }

    @Test func iOSBatch_isPutInOrder() throws {
        let request = try request("ios-batch-create")
        let items = try #require(SDKBatch(request)).records.map { $0.item(in: request) }
        #expect(items.map(\.item.kind) == [.screenStart, .event, .eventEnd, .screenEnd])
        #expect(items.allSatisfy { $0.reason == nil })
        #expect(
            items.map(\.item.payload) == [
                payload(1, #","pageTitle":"Ana sayfa","path":"/home","hitCode":"\#(Self.hit)""#),
                payload(2.5, #","eventKey":"Buton>Giriş","eventValue":"100% A+B","eventCode":"\#(Self.event)""#),
                payload(37.545, #","eventDuration":35045,"eventCode":"\#(Self.event)""#),
                payload(40, #","hitCode":"\#(Self.hit)""#),
            ])
    }

    @Test func androidBatch_hasNumbersAndTexts() throws {
        let request = try request("android-batch-create")
        let items = try #require(SDKBatch(request)).records.map { $0.item(in: request).item }
        #expect(items.map(\.kind) == [.screenStart, .event, .eventEnd, .screenEnd])
        let texts = #","eventKey":"Buton>Giriş","eventValue":"100% A+B""#
        let end = payload(37.545, #"\#(texts),"eventDuration":35045,"eventCode":"\#(Self.event)""#, of: Self.android)
        #expect(items[2].payload == end)
    }

    @Test func offlineBatch_hasSessions_andOddRecords() throws {
        let request = try request("ios-offline-create")
        let items = try #require(SDKBatch(request)).records.map { $0.item(in: request) }
        #expect(
            items.map(\.item.kind) == [.sessionStart, .screenStart, .event, .screenEnd, .unregister, .sessionEnd])
        #expect(items.map { $0.reason == nil } == [true, true, true, true, false, true])
        #expect(items[0].item.payload.hasSuffix(#""storage":"10240","sessionTimeout":30,"sentIn":"offline"}"#))
        #expect(items[4].item.payload == #"{"type":999,"timestamp":"1421920841000","sessionCode":"\#(Self.session)"}"#)
    }

    /// Failed requests contain all their parameters.
    @Test func androidsOfflineCache_hasFailedRequests() throws {
        let request = try request("android-offline-create")
        let records = try #require(SDKBatch(request)).records
        let items = records.map { $0.item(in: request) }
        #expect(items.map(\.item.kind) == [.sessionStart, .screenStart, .userTags, .event, .sessionEnd])
        let code = try #require(records[1].code(of: Self.android))
        let start = payload(
            1, #","pageTitle":"Ana sayfa","path":"/home","hitCode":"\#(code)""#, of: Self.android, in: "offline")
        #expect(items[1].item.payload == start)
        #expect(items[2].item.payload == payload(1.5, #","userTags":{"AGE":"27"}"#, of: Self.android, in: "offline"))
        #expect(items[3].reason == "the record has a type that cannot be delivered")
    }

    @Test func data_hasToBeAnArray() throws {
        for data in ["", "{}", "null", "[", #"[{"type":0}"#, "x", #""[]""#] {
            #expect(try batch(data) == nil, "\(data)")
        }
        #expect(try batch("[]")?.records.isEmpty == true)
        #expect(SDKBatch(CurioSDKRequest(call: .batch, form: try #require(parsed("a=1")))) == nil)
    }

    @Test(arguments: [
        (#"7"#, CurioKind.event, "the record is not an object"), ("null", .event, "the record is not an object"),
        (#"[{"type":2}]"#, .event, "the record is not an object"),
        (#"{"type":2,"hitCode":"h"}"#, .screenStart, "the record has no readable timestamp"),
        (#"{"type":3,"timestamp":-1}"#, .screenEnd, "the record has no readable timestamp"),
        (#"{"type":1,"timestamp":"1.5"}"#, .sessionEnd, "the record has no readable timestamp"),
        (#"{"type":1,"timestamp":"99999999999999999999"}"#, .sessionEnd, "the record has no readable timestamp"),
        (#"{"type":5,"timestamp":1}"#, .event, "the record has a type that cannot be delivered"),
        (#"{"type":-1,"timestamp":1}"#, .event, "the record has a type that cannot be delivered"),
        (#"{"type":999,"timestamp":1}"#, .unregister, "the record has a type that cannot be delivered"),
        (#"{"timestamp":1}"#, .event, "the record has a type that cannot be delivered"),
    ])
    func oddRecord_keepsItsText_andTakesNoNeighborAlong(record: String, kind: CurioKind, reason: String) throws {
        let good = #"{"type":1,"timestamp":5,"sessionCode":"s"}"#
        let batch = try #require(try batch("[\(good),\(record),\(good)]"))
        #expect(batch.records.count == 3)
        let odd = try #require(batch.records.first { if case .odd = $0.content { true } else { false } })
        #expect(odd.content == .odd(kind, json: record, reason: reason))
        #expect(odd.identity(of: "v") != batch.records.first { $0 != odd }?.identity(of: "v"))
    }

    @Test func timestamps_areNumbersOrTexts_ofAnyClock() throws {
        let times = ["0", #""1""#, #""0002""#, "4102444800000", #""4102444800001""#]
        let data = "[" + times.map { #"{"type":0,"timestamp":\#($0),"sessionCode":"s"}"# }.joined(separator: ",") + "]"
        #expect(try batch(data)?.records.map(\.timestamp) == [0, 1, 2, 4_102_444_800_000, 4_102_444_800_001])
    }

    @Test func recordWithoutASession_isOfTheRequests() throws {
        let data = #"[{"type":2,"timestamp":1},{"type":3,"timestamp":1,"sessionCode":"r"}]"#
        #expect(try batch(data)?.records.map(\.session) == ["r", "s"])
    }

    @Test func placeholdersInRecords_areNothing() throws {
        let data =
            #"[{"type":7,"timestamp":1,"eventKey":"%28null%29","eventValue":null,"eventCode":"UNKNOWN","eventDuration":"NULL"}]"#
        let record = try #require(try batch(data)?.records.first)
        #expect(record.content == .action(.eventEnd, .init(texts: [nil, nil])))
        #expect(record.code(of: "v") == nil)
    }

    // MARK: Order

    /// Records by their session, type, time and code, such as `A2@5x`.
    private func order(_ names: String) throws -> String {
        let records = names.split(separator: " ").map { name -> String in
            let parts = name.dropFirst(2).split(separator: "@")
            let (type, rest) = (name.dropFirst().prefix(1), parts[0])
            let time = rest.prefix { $0.isNumber }
            let (code, member) = (rest.drop { $0.isNumber }, "23".contains(type) ? "hitCode" : "eventCode")
            return
                #"{"type":\#(type),"timestamp":\#(time),"sessionCode":"\#(name.first!)","\#(member)":"\#(code)","n":"\#(name)"}"#
        }
        let shuffled = "[" + records.joined(separator: ",") + "]"
        let read = JSONParser.ofThisThread.parse(Array(shuffled.utf8)) { json in
            json.elements.map { (SDKRecord($0, session: nil), $0["n"]?.string ?? "") }
        }
        let known = try read.get()
        var left = known
        return SDKBatch.inOrder(known.map(\.0)).map { record in
            let index = left.firstIndex { $0.0 == record }!
            return left.remove(at: index).1
        }.joined(separator: " ")
    }

    @Test(arguments: [
        // Never rises: newest first.
        ("A1@9 A3@5x A2@3x A0@1", "A0@1 A2@3x A3@5x A1@9"), ("A4@2b A4@2a A4@1c", "A4@1c A4@2a A4@2b"),
        ("A4@2b A4@2a", "A4@2a A4@2b"),
        // Never falls.
        ("A0@1 A2@3x A3@5x A1@9", "A0@1 A2@3x A3@5x A1@9"), ("A4@1a A4@2b A4@2c", "A4@1a A4@2b A4@2c"),
        // Neither: by time, from the end if that is earlier.
        ("A4@3a A4@1b A4@2c A4@2d", "A4@1b A4@2d A4@2c A4@3a"), ("A4@1a A4@3b A4@2c A4@3d", "A4@1a A4@2c A4@3b A4@3d"),
        // One moment: starts precede what belongs to them.
        ("A4@1a A1@1 A3@1x A2@1x A0@1", "A0@1 A2@1x A3@1x A4@1a A1@1"),
        ("A0@1 A1@1 A2@1x A3@1x", "A0@1 A2@1x A3@1x A1@1"),
        ("A0@0 A1@1 A4@1b B2@1 B0@1", "A0@0 A4@1b A1@1 B0@1 B2@1"),
        ("A0@0 A3@1y A2@1x A3@1x A3@1z A2@1z", "A0@0 A3@1y A2@1x A3@1x A2@1z A3@1z"),
    ])
    func records_areInTheOrderInWhichTheyHappened(sent: String, expected: String) throws {
        #expect(try order(sent) == expected)
    }

    @Test func recordsOfOneMoment_costNoMoreThanOthers() throws {
        let records = (0..<50_000).map { #"{"type":\#($0 % 2 == 0 ? 2 : 3),"timestamp":7,"hitCode":"\#($0 / 2)"}"# }
        let batch = try #require(try batch("[" + records.joined(separator: ",") + "]"))
        #expect(batch.records.count == 50_000)
        #expect(batch.records.first?.code(of: "v") == "24999")
    }

    // MARK: Repeats

    @Test func repeat_isKnownByItsCode_orByItsTimeAndTexts() throws {
        func identities(_ data: String) throws -> [String] {
            try #require(try batch("[\(data)]")).records.map { $0.identity(of: "v") }
        }
        func identity(_ members: String) throws -> String { try #require(try identities("{\(members)}").first) }
        let start = #""type":2,"timestamp":1,"sessionCode":"s""#
        #expect(try identity(start + #","hitCode":"h""#) == identity(#""type":2,"timestamp":"9","hitCode":"h""#))
        let all = [
            start + #","hitCode":"h""#, start + #","hitCode":"i""#, start, start + #","pageTitle":"h""#,
            start + #","path":"h""#, start + #","pageTitle":"h","path":"h""#, #""type":2,"timestamp":2"#,
            #""type":3,"timestamp":1,"hitCode":"h""#, #""type":3,"timestamp":1"#, #""type":4,"timestamp":1"#,
            #""type":7,"timestamp":1,"eventDuration":1"#, #""type":7,"timestamp":1,"eventDuration":2"#,
            #""type":0,"timestamp":1"#, #""type":1,"timestamp":1"#, #""type":0,"timestamp":1,"sessionCode":"t""#,
            #""type":-1,"timestamp":1,"userTags":{"a":"1"}"#, #""type":-1,"timestamp":1,"userTags":"{}""#,
            #""type":5,"timestamp":1"#, #""type":5,"timestamp":2"#,
        ]
        let known = try all.map(identity)
        #expect(Set(known).count == all.count)
        #expect(try all.map(identity) == known)
        // The start and the end of a session happen once.
        #expect(try identity(#""type":0,"timestamp":8"#) == known[12])
        let other = try #require(try batch("[{\(start)}]")).records[0]
        #expect(other.identity(of: "w") != other.identity(of: "v"))
    }

    @Test func startWithoutACode_getsTheSameOneEachTime() throws {
        let data = #"[{"type":2,"timestamp":1,"pageTitle":"a"},{"type":4,"timestamp":1,"eventKey":"a","eventCode":""}]"#
        let first = try #require(try batch(data)).records.map { $0.code(of: "v") }
        #expect(try batch(data)?.records.map { $0.code(of: "v") } == first)
        #expect(Set(first).count == 2)
        for code in first.compactMap(\.self) {
            #expect(code.split(separator: "-").map(\.count) == [8, 4, 4, 4, 12])
            #expect(code.split(separator: "-")[2].first == "4" && code == code.lowercased())
        }
        #expect(try batch(data)?.records[0].code(of: "w") != first[0])
    }
}

extension SDKCall {
    fileprivate func matches(_ path: Substring) -> Bool {
        let template = UpstreamRoute.PathTemplate(template)
        return template.parameters(matching: path.split(separator: "/")) != nil
    }
}
