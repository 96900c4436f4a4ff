import PosternConformance
import PosternCore
import PosternSimulatorKit
import PosternTestKit
import Synchronization
import Testing

@testable import StreamOneSimulator

private let outOfOrder = "parameters in another order than PHP's"
private let fresh = "api=3&format=json&authentication_type=user&timestamp=1450000000&user=Cmv8fnKfjF2l"

/// What is on the wire: paths, headers, parameters, encoding, signatures, timestamps, and the answers' form.
@Suite struct StreamOneSimulatorTests {
    private let client = StreamOneClient()

    /// A signed request of the default user.
    private func send(_ parameters: String = fresh, _ body: String = "", name: String = "item/view") -> SimulatedResult
    {
        client.signed(name, parameters, body, key: StreamOneClient.userKey)
    }

    // MARK: Vectors

    @Test(arguments: StreamOneVectors.php) func phpVector_isTaken(vector: StreamOneVectors.Signed) throws {
        let end = client.time.instant + .seconds(60)
        client.simulator.held.state.withLock { state in
            state.sessions.insert(
                "Hz1kPspd2Bk1",
                .init(
                    application: StreamOneClient.application, user: StreamOneClient.user,
                    key: "SQKEyak6R2BcwH3qnTakY50SKeABxXcg", endsAt: end))
            state.challenges.insert(
                "EwBdQcB5yq8sU05u4aADv6Abg3oBVhtp",
                .init(
                    application: StreamOneClient.application, user: StreamOneClient.user, address: "10.11.12.13",
                    needsV2Hash: true, endsAt: end))
        }
        func send(_ signature: String) -> SimulatedResult {
            client.send(vector.path, "\(vector.parameters)&signature=\(signature)", vector.body)
        }
        let forged = send(String(vector.signature.reversed()))
        #expect(forged.apiStatus == 3)
        #expect(forged.violations == ["a signature that does not match"])
        #expect(forged.items.ranges.isEmpty)
        let judged = send(vector.signature)
        #expect(judged.apiStatus == 0)
        #expect(judged.violations.isEmpty)
        #expect(judged.items.ranges.count == 1)
    }

    @Test(arguments: StreamOneVectors.ios) func iosVector_isTaken_thoughAGatewaySendsAnotherOrder(
        vector: StreamOneVectors.Signed
    ) throws {
        let client = StreamOneClient(
            """
            {"users":[{"id":"user","psk":"psk"}],"applications":[{"id":"application","psk":"apppsk"}],
             "clockOffsetSeconds":-\(1_450_000_000 - (vector.name == "I2" ? 5678 : 1234))}
            """)
        var parameters = vector.parameters.split(separator: "&").map(String.init)
        parameters.append("signature=\(vector.signature)")
        let judged = client.send(
            vector.path, parameters.sorted().joined(separator: "&"), vector.body,
            type: "application/x-www-form-urlencoded; charset=utf-8")
        #expect(judged.apiStatus == 0)
        #expect(
            judged.violations == ["a Content-Type other than application/x-www-form-urlencoded", outOfOrder])
    }

    @Test func encoding_isPHPs_inEveryByte() {
        let printable = (0x20...0x7e).map { UInt8($0) }
        let encoded =
            "+%21%22%23%24%25%26%27%28%29%2A%2B%2C-.%2F0123456789%3A%3B%3C%3D%3E%3F%40ABCDEFGHIJKLMNOPQRSTUVWXYZ"
            + "%5B%5C%5D%5E_%60abcdefghijklmnopqrstuvwxyz%7B%7C%7D%7E"
        #expect(StreamOneForm.encoded(printable) == Array(encoded.utf8))
        let form = StreamOneForm("p=\(encoded)&u=%C3%A9%E2%82%AC%F0%9F%98%80%0A%09%0D%00x&a+b=x&c%5Bd%5D=y&e=".utf8)
        #expect(form.isExact && form.isUTF8)
        #expect(form.pairs.map(\.name) == ["p", "u", "a b", "c[d]", "e"])
        #expect(form["p"] == String(decoding: printable, as: UTF8.self))
        #expect(form["u"] == "é€😀\n\t\r\0x")
        #expect(form["e"] == "")
        #expect(form["f"] == nil)
    }

    static let foreign = [
        "x=%20", "x=a/b", "x=~", "x=%2a", "x=*", "x=%41", "x=jan@example.nl", "x", "x=1&", "&x=1", "x=1=2", "x=%",
        "x=%4",
        "x=%zz", "x=é", "a%20b=1", "x=%2D", "x=a\r\n",
    ]

    @Test(arguments: foreign) func encoding_otherThanPHPs_isRefusedWithTheRightSignature(body: String) {
        #expect(!StreamOneForm(body.utf8).isExact)
        let judged = send(fresh, body)
        #expect(judged.apiStatus == (body == "x=1&" || body == "&x=1" ? 6 : 3))
        #expect(!judged.violations.isEmpty)
        #expect(judged.items.ranges.isEmpty)
    }

    @Test func encoding_ofTheQuery_isPHPsToo() {
        let judged = send(fresh.replacing("user=user", with: "user=user").replacing("Cmv8", with: "%43mv8"))
        #expect(judged.apiStatus == 3)
        #expect(judged.violations == ["a query in another encoding than the platform's"])
    }

    // MARK: Path, method, headers

    @Test(arguments: [
        "/", "/api", "/api/item", "/api/item/", "/api/item/view/", "//api/item/view", "/prefix/api/item/view",
        "/API/item/view",
        "/apis/item/view",
    ]) func otherPaths_areNotFound_orNoAction(path: String) {
        let judged = client.send(path, fresh)
        if path == "/api/item/" {
            #expect(judged.apiStatus == 5)
        } else {
            #expect(judged.answer?.status == 404)
            #expect(judged.violations == ["POST \(path): there is no such endpoint"])
        }
    }

    @Test func prefix_isPartOfThePath_andNotSigned() {
        client.control(#"{"prefix":"/long/path"}"#)
        let signature = StreamOneClient.signature(
            of: "/api/item/view?\(fresh)&", key: StreamOneClient.userKey)
        #expect(client.send("/long/path/api/item/view", "\(fresh)&signature=\(signature)").apiStatus == 0)
        #expect(client.send("/api/item/view", "\(fresh)&signature=\(signature)").answer?.status == 404)
    }

    @Test(arguments: ["GET", "PUT", "DELETE", "HEAD"]) func otherMethods_areNotAllowed(method: String) {
        let judged = client.send("/api/item/view", fresh, method: method)
        #expect(judged.answer?.status == 405)
        #expect(judged.answer?.headers.contains { $0 == ("Allow", "POST") } == true)
        #expect(judged.violations == ["\(method) /api/item/view: every call is a POST"])
    }

    @Test(arguments: ["Item/view", "item/View", "1tem/view", "item/vi-ew", "it%65m/view"])
    func names_otherThanLowerCaseLettersAndDigits_areNoAction(name: String) {
        let judged = send(name: name)
        #expect(judged.apiStatus == 5)
        #expect(judged.violations == ["a command or action other than lower-case letters and digits"])
    }

    @Test func headers_thatAGatewayDoesNotSend_areViolations() {
        func send(type: String?, _ headers: [(name: String, value: String)]) -> SimulatedResult {
            let signature = StreamOneClient.signature(
                of: "/api/item/view?\(fresh)&x=1", key: StreamOneClient.userKey)
            return client.send(
                "/api/item/view", "\(fresh)&signature=\(signature)", "x=1", type: type, headers: headers)
        }
        let form = "application/x-www-form-urlencoded"
        #expect(send(type: form, [("User-Agent", "x"), ("Accept", "*/*")]).violations.isEmpty)
        #expect(send(type: form, [("No-Length", "")]).violations == ["no Content-Length"])
        for name in ["Authorization", "Cookie", "Content-Encoding", "postern-session", "Proxy-Authorization"] {
            #expect(send(type: form, [(name, "x")]).violations.count == 1)
            #expect(send(type: form, [(name, "x")]).apiStatus == 0)
        }
        #expect(send(type: form + ";charset=UTF-8", []).apiStatus == 0)
        for type in [nil, "application/json", "application/x-www-form-urlencodedx"] {
            let judged = send(type: type, [])
            #expect(judged.violations.first == "a Content-Type other than application/x-www-form-urlencoded")
            // The body was not read, so it had no effect; its signature is valid.
            #expect(judged.call?.contains(#""arguments":{}"#) != false)
        }
    }

    // MARK: Parameters

    static let parameters: [(parameters: String, status: Int, violation: String)] = [
        (fresh + "&x=1", 7, "a parameter that the platform does not know"),
        (fresh.replacing("api=3", with: "API=3"), 7, "a parameter that the platform does not know"),
        (fresh + "&", 7, "a parameter that the platform does not know"),
        (fresh + "&user=Cmv8fnKfjF2l", 7, "a parameter twice"),
        (fresh.replacing("api=3&", with: ""), 6, "an api other than 3"),
        (fresh.replacing("api=3&", with: "api=2&"), 6, "an api other than 3"),
        (fresh.replacing("json", with: "xml"), 6, "a format other than json"),
        (fresh.replacing("&time", with: "&account=a&customer=c&time"), 6, "an account and a customer"),
        (fresh.replacing("&time", with: "&account=a%2C&time"), 6, "an empty ID among the accounts"),
        (fresh.replacing("&time", with: "&timezone=%FF&time"), 6, "names or values that are not UTF-8"),
        (fresh.replacing("&time", with: "&account=&time"), 0, "an empty account: leave it out"),
        (fresh.replacing("&time", with: "&customer=&time"), 0, "an empty customer: leave it out"),
        (fresh.replacing("=user&", with: "=root&"), 3, "an authentication_type other than user and application"),
        (fresh.replacing("&user=Cmv8fnKfjF2l", with: ""), 3, "no user"),
        (fresh.replacing("&user=Cmv8fnKfjF2l", with: "&user="), 3, "no user"),
        (
            fresh.replacing("&user=", with: "&application="), 7,
            "a parameter application with the other authentication_type"
        ),
        (fresh + "&session=s", 7, "a parameter session with the other authentication_type"),
        (
            fresh.replacing("type=user", with: "type=application"), 7,
            "a parameter user with the other authentication_type"
        ),
        (
            fresh.replacing("timestamp=1450000000", with: "timestamp=1450000000000"), 2, ""
        ),
        (
            fresh.replacing("timestamp=1450000000", with: "timestamp=1450000000.5"), 2,
            "a timestamp that is not a number of whole seconds"
        ),
        (
            fresh.replacing("timestamp=1450000000", with: "timestamp=%2B1450000000"), 2,
            "a timestamp that is not a number of whole seconds"
        ),
        (fresh.replacing("&timestamp=1450000000", with: ""), 2, "a timestamp that is not a number of whole seconds"),
    ]

    @Test(arguments: parameters) func parameters_areJudged(parameters: String, status: Int, violation: String) {
        let judged = send(parameters)
        #expect(judged.apiStatus == status)
        #expect(judged.violations == (violation.isEmpty ? [] : [violation]))
        #expect(judged.items.ranges.isEmpty == (status != 0))
    }

    @Test func authenticationType_mayBeLeftOut_byUsers() {
        let judged = send(fresh.replacing("authentication_type=user&", with: ""))
        #expect(judged.apiStatus == 0)
        #expect(judged.violations.isEmpty)
    }

    static let orders: [(parameters: String, isPHPs: Bool)] = [
        (fresh.replacing("json&", with: "json&account=A&"), true),
        (fresh.replacing("&time", with: "&account=A&timezone=UTC&time"), true),
        (fresh.replacing("&time", with: "&timezone=UTC&customer=A&time"), true),
        (fresh.replacing("json&", with: "json&customer=A&"), false),
        (fresh.replacing("json&", with: "json&timezone=UTC&"), false),
        (fresh + "&account=A", false),
        ("account=A&" + fresh, false),
        ("format=json&" + fresh.replacing("format=json&", with: ""), false),
    ]

    @Test(arguments: orders) func order_isPHPs_orNoted(parameters: String, isPHPs: Bool) {
        let judged = send(parameters)
        #expect(judged.apiStatus == 0)
        #expect(judged.violations == (isPHPs ? [] : [outOfOrder]))
    }

    @Test func timezone_mustBeKnown() {
        for name in ["Europe%2FBerlin", "America%2FArgentina%2FBuenos_Aires", "UTC", "Etc%2FGMT%2B1"] {
            #expect(send(fresh.replacing("&time", with: "&timezone=\(name)&time")).apiStatus == 0)
        }
        for name in [
            "Europe", "Mars%2FBase", "", "..%2F..%2F..%2Fetc%2Fpasswd", "%2Fetc%2Flocaltime", "zone.tab", "leapseconds",
            "%00",
        ] {
            let judged = send(fresh.replacing("&time", with: "&timezone=\(name)&time"))
            #expect(judged.apiStatus == 9)
            #expect(judged.json["header"]["timezone"].string == "Europe/Amsterdam")
        }
    }

    // MARK: Signatures and timestamps

    @Test func signature_isOverPathQueryAndBody() {
        let signature = StreamOneClient.signature(
            of: "/api/item/edit?\(fresh)&x=1", key: StreamOneClient.userKey)
        let query = "\(fresh)&signature=\(signature)"
        #expect(client.send("/api/item/edit", query, "x=1").apiStatus == 0)
        #expect(client.send("/api/item/view", query, "x=1").apiStatus == 3)
        #expect(client.send("/api/item/edit", query, "x=2").apiStatus == 3)
        #expect(client.send("/api/item/edit", query, "").apiStatus == 3)
        #expect(
            client.send("/api/item/edit", query.replacing("json&", with: "json&account=a&"), "x=1").apiStatus == 3)
        let upper = "\(fresh)&signature=\(signature.uppercased())"
        #expect(client.send("/api/item/edit", upper, "x=1").apiStatus == 3)
    }

    @Test func signature_thatIsMissing_orOfAnotherKey_isRefused() {
        #expect(client.send("/api/item/view", fresh).violations == ["no signature"])
        let judged = client.signed("item/view", fresh, "", key: "other")
        #expect(judged.apiStatus == 3)
        #expect(judged.violations == ["a signature that does not match"])
    }

    @Test func unknownActor_isRefused_andIsNoViolation() {
        let judged = send(fresh.replacing("Cmv8fnKfjF2l", with: "absent"))
        #expect(judged.apiStatus == 3)
        #expect(judged.violations.isEmpty)
    }

    @Test func signature_isJudgedByWhenItWasSent_onASlowNetwork() {
        var client = client
        func send() -> [String] {
            client.signed("item/view", fresh, "x=1", key: StreamOneClient.userKey).violations
        }
        #expect(send().isEmpty)
        client.time.advance(by: .seconds(20))
        client.delay = .milliseconds(17_001)
        #expect(send().isEmpty)
        client.delay = .seconds(17)
        #expect(send() == ["a signature sent again: each attempt has to be signed again"])
    }

    @Test func signature_isTakenTwice_andIsAViolationLater() {
        for _ in 0..<2 { #expect(send(fresh, "x=1").violations.isEmpty) }
        client.time.advance(by: .milliseconds(2999))
        #expect(send(fresh, "x=1").violations.isEmpty)
        client.time.advance(by: .milliseconds(1))
        let judged = send(fresh, "x=1")
        #expect(judged.apiStatus == 0)
        #expect(judged.violations == ["a signature sent again: each attempt has to be signed again"])
        #expect(send(fresh, "x=2").violations.isEmpty)
    }

    @Test func timestamp_isTaken_withinTheTolerance() {
        func send(_ offset: Int) -> Int? {
            self.send(fresh.replacing("1450000000", with: "\(1_450_000_000 + offset)")).apiStatus
        }
        #expect([-301, -300, 0, 300, 301].map(send) == [2, 0, 0, 0, 2])
        client.control(#"{"clockSkewToleranceSeconds":5}"#)
        #expect([-6, -5, 5, 6].map(send) == [2, 0, 0, 2])
        client.control(#"{"clockOffsetSeconds":100}"#)
        #expect([94, 95, 105, 106].map(send) == [2, 0, 0, 2])
    }

    @Test func timestamp_isOfTheMomentOfSending() {
        let minute = fresh.replacing("1450000000", with: "1449999940")
        #expect(send(minute).violations.isEmpty)
        client.time.advance(by: .seconds(1))
        #expect(
            send(minute, "x=1").violations
                == ["a timestamp more than 60 seconds old: calls are to be signed when they are sent"])
    }

    @Test func date_isThePlatforms_whenItsClockIsOff() {
        #expect(send().answer?.headers.contains { $0.name == "Date" } == false)
        client.control(#"{"clockOffsetSeconds":100}"#)
        #expect(
            send().answer?.headers.last.map { $0 == ("Date", "Sun, 13 Dec 2015 09:48:20 GMT") } == true)
    }

    // MARK: Arguments

    static let arguments: [(body: String, violation: String)] = [
        ("x=1&x=2", "an argument twice"), ("=1", "an argument without a name"),
        ("x=%FF", "names or values that are not UTF-8"), ("%C3=1", "names or values that are not UTF-8"),
        ("x=%ED%A0%80", "names or values that are not UTF-8"),
    ]

    @Test(arguments: arguments) func arguments_thatNoGatewaySends_areRefused(body: String, violation: String) {
        let judged = send(fresh, body)
        #expect(judged.apiStatus == 6)
        #expect(judged.violations == [violation])
    }

    // MARK: Answers and items

    @Test func answer_isWhatPHPWrites() {
        let judged = send(
            fresh.replacing("&time", with: "&timezone=UTC&time"), "title=Caf%C3%A9+%F0%9F%98%80+a%2Fb%22%00%7F&x=")
        #expect(
            judged.text == #"""
                {"header":{"status":0,"statusmessage":"OK","apiversion":3,"cacheable":true,"timezone":"UTC"},\#
                "body":{"title":"Caf\u00e9 \ud83d\ude00 a\/b\"\u0000\#u{7f}","x":""}}
                """#)
        #expect(
            client.signed("item/view", fresh, "", key: "other").text == #"""
                {"header":{"status":3,"statusmessage":"Authentication failed","apiversion":3,"cacheable":false,\#
                "timezone":"Europe\/Amsterdam"},"body":null}
                """#)
    }

    @Test(arguments: [
        ("item/view", true), ("api/info", true), ("user/getroles", true), ("item/listall", true), ("item/edit", false),
        ("user/create", false), ("item/information", false),
    ]) func reads_areCacheable(name: String, isRead: Bool) {
        #expect(send(name: name).json["header"]["cacheable"].bool == isRead)
        client.control(#"{"readOnly":true}"#)
        #expect(send(name: name).apiStatus == (isRead ? 0 : 10))
    }

    @Test func item_showsTheCall() {
        let scope = "&timezone=Europe%2FAmsterdam&account=A1%2CA2&time"
        #expect(
            send(fresh.replacing("&time", with: scope), "b=1&a=%22x%22", name: "item/edit").call == """
                {"account":"A1,A2","command":"item","action":"edit","arguments":{"b":"1","a":"\\"x\\""},\
                "timezone":"Europe/Amsterdam"}
                """)
        let ofCustomer = send(fresh.replacing("&time", with: "&customer=C1&time"))
        #expect(ofCustomer.call == #"{"customer":"C1","command":"item","action":"view","arguments":{}}"#)
        #expect(ofCustomer.items.orderKey == "C1")
    }

    @Test func items_areTheSame_whenTheyAskTheSame() {
        let first = send(fresh, "x=1").items.identities
        client.time.advance(by: .seconds(1))
        #expect(client.callAsUser("item/view", "x=1").items.identities == first)
        #expect(send(fresh, "x=2").items.identities != first)
        #expect(client.challenge().judged.items.identities != client.challenge().judged.items.identities)
    }

    @Test func poison_reachesIntoTheArguments() {
        func status(_ field: String, _ answer: Faults.Poison.Answer) -> (http: Int?, api: Int?) {
            let judged = client.call("item/edit", "seq=7", poisons: [.init(field: field, value: "7", answer: answer)])
            #expect(judged.items.ranges.isEmpty == (field != "seq"))
            return (judged.answer?.status, judged.apiStatus)
        }
        #expect(status("seq", .failure) == (200, 0))
        #expect(status("/arguments/seq", .failure) == (500, nil))
        #expect(status("/arguments/seq", .tooLarge) == (413, nil))
        #expect(status("/arguments/seq", .refusal) == (200, 6))
        #expect(status("/arguments/seq", .naming) == (200, 6))
    }

    @Test func rubbish_neverBreaksIt() {
        var random = SplitMix64(state: 5)
        let seeds = [
            fresh + "&signature=ba6585e0ef67fb39acb2de0c43b4345db860bcf4", "x=%&=&&==%C3%28+%00",
            "challenge=&response=",
        ]
        for _ in 0..<3000 {
            func rubbish() -> String {
                var bytes = Array(seeds.randomElement(using: &random)!.utf8)
                for _ in 0..<Int.random(in: 0...4, using: &random) {
                    let index = Int.random(in: 0..<bytes.count, using: &random)
                    bytes[index] =
                        Bool.random(using: &random) ? UInt8.random(in: 0...255, using: &random) : UInt8(ascii: "&")
                }
                return String(decoding: bytes.prefix(Int.random(in: 0...200, using: &random)), as: UTF8.self)
            }
            let path = ["/api/item/view", "/api/session/create", "/api//", "/api/\(rubbish())"].randomElement(
                using: &random)!
            #expect(client.send(path, rubbish(), rubbish()).answer != nil)
            #expect(client.control(rubbish())?.status == 400)
        }
    }
}

/// The vectors of the specification's section 4.1: what is signed, and its signature.
enum StreamOneVectors {
    struct Signed: Decodable, Sendable, CustomTestStringConvertible {
        let name: String
        let path: String
        let parameters: String
        let body: String
        let signature: String
        var testDescription: String { name }
    }

    /// Made by PHP at 1450000000: parameters in the order that it sends them, `signature` last.
    static let php = vectors.php.map(\.signed)
    /// From the tests of the SDK for iOS: parameters sorted, `signature` among them.
    static let ios = vectors.ios

    private struct Vectors: Decodable {
        struct PHP: Decodable { let signed: Signed }
        let php: [PHP]
        let ios: [Signed]
    }
    private static let vectors: Vectors = try! Fixture.value("vectors.json")
}
