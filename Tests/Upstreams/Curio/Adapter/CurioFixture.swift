import PosternConformance
import PosternCore
import PosternUpstream
import Testing

@testable import CurioAdapter

@Suite struct CurioConformance {
    @Test(arguments: Conformance.rules) func curio(keepsTo rule: Conformance) async throws {
        try await rule.check(.curio)
    }
}

extension UpstreamFixture {
    static let curio = UpstreamFixture(
        type: .curio,
        settings: [
            "serverURL": .text("https://curio.example.com/api/v2/"),
            "apiKey": .text("0f1e2d3c4b5a69788796a5b4c3d2e1f0"), "trackingCode": .text("GW7DEM01"),
            "sdk.prefix": .text("/sdk/wH2unguessable9"),
        ],
        secrets: ["0f1e2d3c4b5a69788796a5b4c3d2e1f0"],
        state: CurioSample.state,
        // The first one happened long ago, and so belongs into an offline batch: the answers below are such.
        good: [CurioSample.sessionStart(at: 1_421_920_800_000)] + CurioSample.good,
        bad: CurioSample.bad,
        golden: [
            GoldenRequest(file: "session-start.http", samples: [CurioSample.sessionStart()]),
            GoldenRequest(file: "screen-start.http", samples: [CurioSample.screenStart()]),
            GoldenRequest(file: "screen-end.http", samples: [CurioSample.make("screen_end", CurioSample.screenClass)]),
            GoldenRequest(file: "event.http", samples: [CurioSample.event()]),
            GoldenRequest(file: "session-end.http", samples: [CurioSample.make("session_end")]),
            GoldenRequest(
                file: "push-token.http", samples: [CurioSample.make("push_token", CurioSample.pushToken)]),
            GoldenRequest(
                file: "notification-read.http",
                samples: [
                    CurioSample.make(
                        "notification_read", #""pushId":"5542fe0ee4b0d5e3a1b2c3d4""#, CurioSample.pushToken)
                ]),
            GoldenRequest(
                file: "notification-read.http",
                samples: [
                    CurioSample.make(
                        "notification_read",
                        #""userInfo":{"aps":{"alert":"Hi","pId":"not this one"},"pId":"5542fe0ee4b0d5e3a1b2c3d4"}"#,
                        CurioSample.pushToken)
                ]),
            GoldenRequest(
                file: "custom-id.http",
                samples: [CurioSample.make("custom_id", CurioSample.pushToken, #""customId":"müşteri 42/ü+x""#)]),
            GoldenRequest(
                file: "location.http",
                samples: [CurioSample.make("location", #""lat":41.0082376,"long":"28.9783589""#)]),
            GoldenRequest(
                file: "location.http",
                samples: [CurioSample.make("location", #""lat":4.10082376e1,"long":289783589E-7"#)]),
            GoldenRequest(
                file: "user-tags.http",
                samples: [
                    CurioSample.make("user_tags", #""userTags": { "AGE": "27", "\u015eEH\u0130R" : "Kad\u0131köy" }"#)
                ]),
            GoldenRequest(
                file: "unregister.http",
                samples: [CurioSample.make("unregister", #""customId":"user-42","pushToken":"""#)]),
        ],
        answers: [
            Answer(200, .delivered()), Answer(200, "<html>", .delivered()), Answer(200, "{}", .delivered(), samples: 3),
            Answer(204, "", .delivered(), notice: "HTTP 204 instead of 200; treated as a success"),
            Answer(401, .suspect(after: nil)),
            Answer(403, .holdUpstream(.credentials, detail: "HTTP 403: the client was rejected")),
            Answer(
                412,
                .holdUpstream(
                    .credentials, detail: "HTTP 412: the api key or the tracking code is wrong")),
            Answer(407, .holdUpstream(.configuration, detail: "HTTP 407: a proxy requires credentials")),
        ]
            + [301, 302, 304, 307, 308, 404, 405].map {
                Answer(
                    $0, .holdUpstream(.configuration, detail: "HTTP \($0): there is no such endpoint at this URL"))
            }
            + Answer.ofAnyPayload
            + [400, 406, 409, 410, 413, 415, 422, 451].map {
                Answer($0, .split(reason: "HTTP \($0)"))
            }
            + [408, 425, 429, 500, 501, 502, 503, 504, 599].map { Answer($0, .retry(after: nil)) })
}

/// Payloads of the visitor and session of the specification's examples.
enum CurioSample {
    static let visitor = "7B3A9001-51C3-4F0B-9A77-3E0D6C5B4A01"
    static let session = "6d551000-a21d-11e4-8123-03ab5c7d9e1f"
    static let fresh: Int64 = UpstreamFixture.now.milliseconds - 4057
    static let pushToken = #""pushToken":"9c1e5d0f7a2b4c6d8e9fa0b1c2d3e4f5061728394a5b6c7d8e9f0a1b2c3d4e5f""#
    static let screenClass = #""screenClass":"Home""#

    static let device = [
        #""screenWidth":750,"screenHeight":1334,"lang":"tr-TR","simOperator":"TURKCELL","simOpCountry":"286""#,
        #""networkOpName":"TURKCELL","connType":"wifi","brand":"Apple","model":"iPhone","osType":"iOS""#,
        #""osVer":"9.2.1","curioSdkVer":"1.2.4","appVer":"2.4.0","batteryLevel":80,"bluetooth":"off","storage":10240"#,
    ].joined(separator: ",")

    static func make(
        _ kind: Kind, _ members: String..., at timestamp: Int64 = fresh, session: String = session,
        visitor: String = visitor
    ) -> UpstreamFixture.Sample {
        let common = #""visitorCode":"\#(visitor)","sessionCode":"\#(session)","timestamp":\#(timestamp)"#
        return UpstreamFixture.Sample(kind, "{" + ([common] + members).joined(separator: ",") + "}")
    }

    /// Its time only shows how old it is.
    static let locationWithoutTime = UpstreamFixture.Sample(
        "location", #"{"visitorCode":"\#(visitor)","sessionCode":"\#(session)","lat":1,"long":2}"#)

    static func sessionStart(
        at timestamp: Int64 = fresh, session: String = session, visitor: String = visitor, device: String = device
    ) -> UpstreamFixture.Sample {
        make("session_start", device, at: timestamp, session: session, visitor: visitor)
    }

    static func screenStart(
        _ title: String = "Ana sayfa – Şarkılar", _ path: String = "/müzik?x=1+1&y=%20", at timestamp: Int64 = fresh
    ) -> UpstreamFixture.Sample {
        make("screen_start", screenClass, #""pageTitle":"\#(title)","path":"\#(path)""#, at: timestamp)
    }

    static let eventTexts = #""eventKey":"Buton>Giriş","eventValue":"100% A+B""#

    static func event(at timestamp: Int64 = fresh) -> UpstreamFixture.Sample {
        make("event", eventTexts, at: timestamp)
    }

    static func eventEnd(_ duration: Int64 = 35045, at timestamp: Int64 = fresh) -> UpstreamFixture.Sample {
        make("event_end", eventTexts, #""eventDuration":\#(duration)"#, at: timestamp)
    }

    /// The session is known and alive, and the first message of all ends a screen whose code the server gave.
    static let state: [String: [UInt8]] = {
        let first = MessageID(sequence: 1, upstream: UpstreamNumber(rawValue: 1))
        let opener = MessageID(rawValue: 1)
        let open = OpenInterval(
            id: opener, timestamp: fresh,
            texts: Texts(subject: .screen, first: "Ana sayfa – Şarkılar", second: "/müzik?x=1+1&y=%20"))
        let code = IntervalCode.server("e3b0c44298fc4c149afbf4c8996fb924")
        let known = Session(
            visitor: visitor, startedAt: fresh, device: deviceBlock, touchedAt: UpstreamFixture.now)
        return [
            Key.session(session): known.bytes,
            Key.remote(of: session): RemoteSession(isStarted: true).bytes,
            Key.closing(first, of: session): open.bytes,
            Key.code(of: opener, in: session): code.bytes,
        ]
    }()

    static let deviceBlock = Device(values: [
        "750", "1334", "tr-TR", "TURKCELL", "286", "TURKCELL", "wifi", "Apple", "iPhone", "iOS", "9.2.1", "1.2.4",
        "2.4.0", "80", "off", "10240", nil, nil,
    ])

    static let good = [
        sessionStart(
            device: #""screenWidth":0,"screenHeight":-0,"lang":"t","simOperator":"","simOpCountry":"","#
                + #""networkOpName":"","connType":"","brand":"b","model":"m","osType":"o","osVer":"v","#
                + #""curioSdkVer":"c","appVer":"a""#),
        sessionStart(device: device.replacing("80", with: #""unknown""#) + #","activityWidth":1,"activityHeight":2"#),
        sessionStart(device: device.replacing("80", with: #""0""#).replacing("wifi", with: "Offline")),
        make("session_end"), make("session_end", at: Rule.earliest),
        make("session_end", at: UpstreamFixture.now.milliseconds + 86_400_000), screenStart(),
        screenStart(String(repeating: "ş", count: 2000), " "), make("screen_end", screenClass), event(),
        make("event", #""eventKey":"k","eventValue":"""#), eventEnd(), eventEnd(0),
        sessionStart(device: device + #","sessionTimeout":1"#),
        sessionStart(device: device + #","sessionTimeout":1440"#),
        make("screen_start", #""hitCode":"h","pageTitle":"t","path":"p""#),
        make("screen_start", screenClass, #""hitCode":"h","pageTitle":"t","path":"p""#),
        make("screen_end", #""hitCode":"h""#), make("screen_end", screenClass, #""hitCode":"h""#),
        make("event", eventTexts, #""eventCode":"e""#), make("event_end", #""eventCode":"e","eventDuration":0"#),
        make("event_end", eventTexts, #""eventCode":"e","eventDuration":0"#),
        make("push_token", pushToken),
        make("push_token", pushToken, #""customId":"""#),
        make("notification_read", pushToken, #""pushId":"p","customId":"c""#),
        make("notification_read", pushToken, #""userInfo":{"pId":"p","aps":{"alert":{"body":"\u0000"}}}"#),
        make("custom_id", pushToken, #""customId":"c""#), make("location", #""lat":-90,"long":"180.000""#),
        locationWithoutTime,
        make("location", #""lat":"89.9999999999999999999","long":-179.5"#),
        make("location", #""lat":9.000e1,"long":-1.5E-7"#), make("location", #""lat":0e5,"long":12345e-2"#),
        make("user_tags", #""userTags":{"AGE":""}"#), make("unregister"),
        make("unregister", #""customId":"c""#, pushToken),
        UpstreamFixture.Sample(
            "session_end",
            #"{"visitorCode":"\u0061","sessionCode":"\u0036d551000-a21d-11e4-8123-03ab5c7d9e1f","timestamp":\#(fresh)}"#
        ),
    ]
}

extension CurioSample {
    private static func bad(_ sample: UpstreamFixture.Sample, _ pointers: String...) -> UpstreamFixture.BadSample {
        UpstreamFixture.BadSample(sample: sample, pointers: pointers)
    }

    /// Among them those of the specification's section 11.5.
    static let bad: [UpstreamFixture.BadSample] =
        [
            bad(UpstreamFixture.Sample("event", "[]"), ""), bad(UpstreamFixture.Sample("event", #""private""#), ""),
            bad(
                UpstreamFixture.Sample("screen_start", "{}"), "/visitorCode", "/sessionCode", "/timestamp",
                "/screenClass", "/pageTitle", "/path"),
            bad(
                UpstreamFixture.Sample("session_start", #"{"screenWidth":-1,"connType":"private","storage":"1"}"#),
                "/visitorCode", "/sessionCode", "/timestamp", "/screenWidth", "/screenHeight", "/lang", "/simOperator",
                "/simOpCountry", "/networkOpName", "/connType", "/brand", "/model", "/osType", "/osVer", "/curioSdkVer",
                "/appVer", "/storage"),
            bad(
                UpstreamFixture.Sample(
                    "event_end",
                    #"{"visitorCode":"","sessionCode":5,"timestamp":"private","eventKey":"","eventValue":null,"eventDuration":-5,"hitCode":1,"a/b":2}"#
                ), "/visitorCode", "/sessionCode", "/timestamp", "/eventKey", "/eventValue", "/eventDuration",
                "/hitCode", "/a~1b"),
            bad(make("session_end", at: 1_421_920_800), "/timestamp"),
            bad(make("session_end", at: Rule.earliest - 1), "/timestamp"),
            bad(make("session_end", at: UpstreamFixture.now.milliseconds + 86_400_001), "/timestamp"),
            bad(make("session_end", session: "6D551000-A21D-11E4-8123-03AB5C7D9E1F"), "/sessionCode"),
            bad(make("session_end", session: "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"), "/sessionCode"),
            bad(make("session_end", session: "6d551000-a21d-11e4-c123-03ab5c7d9e1f"), "/sessionCode"),
            bad(make("session_end", session: "6d551000-a21d-11e4-8123-03ab5c7d9e1"), "/sessionCode"),
            bad(make("screen_start", screenClass, #""pageTitle":"t""#), "/path"), bad(screenStart(""), "/pageTitle"),
            bad(screenStart(#"a\u0000b"#), "/pageTitle"), bad(make("screen_end"), "/screenClass"),
            bad(make("screen_start", #""pageTitle":"t","path":"p""#), "/screenClass"),
            bad(make("screen_end", #""eventCode":"e""#), "/screenClass", "/eventCode"),
            bad(make("screen_end", #""hitCode":"""#), "/hitCode"),
            bad(make("screen_end", #""hitCode":7"#), "/hitCode"),
            bad(make("screen_end", screenClass, #""hitCode":"a\u0000""#), "/hitCode"),
            bad(make("screen_end", #""hitCode":"UNKNOWN""#), "/hitCode"),
            bad(make("event", eventTexts, #""eventCode":"NULL""#), "/eventCode"),
            bad(make("event", #""eventCode":"e""#), "/eventKey", "/eventValue"),
            bad(make("event_end", #""eventDuration":0"#), "/eventKey", "/eventValue"),
            bad(make("event_end", #""eventCode":"e""#), "/eventDuration"),
            bad(sessionStart(device: device + #","sessionTimeout":0"#), "/sessionTimeout"),
            bad(sessionStart(device: device + #","sessionTimeout":1441"#), "/sessionTimeout"),
            bad(sessionStart(device: device + #","sessionTimeout":"30""#), "/sessionTimeout"),
            bad(make("session_end", #""sessionTimeout":30"#), "/sessionTimeout"),
            bad(eventEnd(-5), "/eventDuration"),
            bad(make("event_end", eventTexts, #""eventDuration":1.5"#), "/eventDuration"),
            bad(make("location", #""lat":91.2,"long":0"#), "/lat"),
            bad(make("location", #""lat":90.0001,"long":"180.0000000000000000001""#), "/lat", "/long"),
            bad(make("location", #""lat":"+1","long":"1e1""#), "/lat", "/long"),
            bad(make("location", #""lat":9.01e1,"long":1e401"#), "/lat", "/long"),
            bad(make("location", #""lat":".5","long":"5.""#), "/lat", "/long"),
            bad(make("location", #""lat":"1,5","long":true"#), "/lat", "/long"),
            bad(make("location", #""lat":1,"long":1"#, at: fresh - 600_000), "/timestamp"),
            bad(sessionStart(device: device.replacing("wifi", with: "5G")), "/connType"),
            bad(sessionStart(device: device.replacing("80", with: "101")), "/batteryLevel"),
            bad(sessionStart(device: device.replacing("80", with: "-100")), "/batteryLevel"),
            bad(sessionStart(device: device.replacing("80", with: #""80%""#)), "/batteryLevel"),
            bad(sessionStart(device: device.replacing(#""off""#, with: #""OFF""#)), "/bluetooth"),
            bad(sessionStart(device: device.replacing(#""osType":"iOS","#, with: "")), "/osType"),
            bad(make("user_tags", #""userTags":{}"#), "/userTags"),
            bad(make("user_tags", #""userTags":[]"#), "/userTags"),
            bad(make("user_tags", #""userTags":{"AGE":27}"#), "/userTags/AGE"),
            bad(
                make("user_tags", #""userTags":{"":"private","a~b":null,"c":"\u0000","ok":""}"#), "/userTags/",
                "/userTags/a~0b", "/userTags/c"),
            bad(make("custom_id", #""customId":"c""#), "/pushToken"),
            bad(make("notification_read", pushToken, #""pushId":"""#), "/pushId"),
            bad(make("notification_read", pushToken), "/pushId"),
            bad(make("notification_read", pushToken, #""userInfo":"private""#), "/userInfo"),
            bad(make("notification_read", pushToken, #""userInfo":{"aps":{"pId":"private"}}"#), "/userInfo/pId"),
            bad(make("notification_read", pushToken, #""userInfo":{"pId":""}"#), "/userInfo/pId"),
            bad(make("notification_read", pushToken, #""userInfo":{"pId":7}"#), "/userInfo/pId"),
            bad(make("notification_read", pushToken, #""userInfo":{"pId":"\u0000"}"#), "/userInfo/pId"),
            bad(make("notification_read", pushToken, #""pushId":"p","userInfo":{"pId":"p"}"#), "/userInfo"),
            bad(make("push_token", pushToken, #""userInfo":{"pId":"p"}"#), "/userInfo"),
            bad(make("unregister", #""customId":null"#, #""pushId":"p""#), "/customId", "/pushId"),
            bad(make("screen_end", screenClass, #""pageTitle":"t""#), "/pageTitle"),
        ]
}
