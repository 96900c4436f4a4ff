import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import StreamOneClient

/// Only calls that an SDK has signed are accepted (the specification's section 10).
@Suite struct StreamOneSDKCallTests {
    private static let now = Timestamp(milliseconds: 1_450_000_000_000)

    private static func request(
        _ path: String, _ query: String, _ body: String = "", type: String? = "application/x-www-form-urlencoded",
        now: Timestamp = now
    ) -> UpstreamRouteRequest {
        let names = path.split(separator: "/").suffix(2).map(String.init)
        return UpstreamRouteRequest(
            parameters: ["command": names[0], "action": names[1]], queryText: query,
            headers: type.map { [("content-type", $0)] } ?? [], body: Array(body.utf8), receivedAt: now)
    }

    // MARK: Vectors

    @Test(arguments: StreamOneVectors.php)
    func callOfPHP_isReadAndBelieved(vector: StreamOneVectors.Vector) throws {
        let signed = vector.signed
        let sent = try SDKCall(
            Self.request(signed.path, "\(signed.parameters)&signature=\(signed.signature)", signed.body),
            by: vector.actor)
        #expect(sent.isSigned(with: vector.key))
        #expect(!sent.isSigned(with: vector.key + "x"))
        #expect(sent.session == (vector.isInSession ? StreamOneVectors.session.id : nil))
        let call = try JSONParser().parse(Array(vector.call.utf8)) { payload throws(InvalidPayload) in
            try StreamOneCall(payload, defaultAccount: vector.account)
        }.get()
        #expect(try sent.whole() == call)
    }

    /// The signature is one of the sorted parameters.
    @Test(arguments: StreamOneVectors.ios)
    func callOfIOS_isBelieved(signed: StreamOneVectors.Signed) throws {
        let isApplication = signed.parameters.contains("application=")
        let actor = StreamOneActor(
            kind: isApplication ? .application : .user, id: isApplication ? "application" : "user")
        let pairs = signed.parameters.split(separator: "&").map(String.init) + ["signature=\(signed.signature)"]
        let now = Timestamp(milliseconds: signed.parameters.contains("5678") ? 5_678_000 : 1_234_000)
        let sent = try SDKCall(
            Self.request(
                signed.path, pairs.sorted().joined(separator: "&"), signed.body,
                type: "application/x-www-form-urlencoded; charset=utf-8", now: now), by: actor)
        #expect(sent.isSigned(with: isApplication ? "apppsk" : "psk"))
    }

    /// iOS signs nine characters bare that PHP escapes; its body is escaped in a third way.
    @Test(arguments: [
        "f8c85374ea02d47f7d46730f933feb552ff8e799", "7e72f094c853171c298e9abf0cb7107a70d83224",
    ])
    func characterThatIOSLeavesBare_isSignedEitherWay(signature: String) throws {
        for body in ["user=jan%40example.nl&userip=10.11.12.13", "user=jan@example.nl&userip=10.11.12.13"] {
            let sent = try SDKCall(
                Self.request(
                    "/api/session/initialize",
                    "api=3&application=9yC-4pQxT_2a&authentication_type=application&format=json&signature=\(signature)&timestamp=1450000000",
                    body), by: StreamOneVectors.application)
            #expect(sent.isSigned(with: StreamOneVectors.psk(of: StreamOneVectors.application)))
        }
    }

    @Test func encodings_areThoseOfTheSpecification() {
        #expect(
            String(
                decoding: StreamOneEncoding.encode(
                    [.init("a", String(decoding: 0x20...0x7E, as: UTF8.self))], as: .ios), as: UTF8.self)
                == "a=+!%22%23$%25%26'()*%2B%2C-.%2F0123456789%3A;%3C%3D%3E%3F@ABCDEFGHIJKLMNOPQRSTUVWXYZ%5B%5C%5D%5E_%60abcdefghijklmnopqrstuvwxyz%7B%7C%7D~"
        )
        let printable =
            "a="
            + "%20%21%22%23%24%25%26%27%28%29%2A%2B%2C-./0123456789%3A%3B%3C%3D%3E?%40ABCDEFGHIJKLMNOPQRSTUVWXYZ%5B%5C%5D%5E_%60abcdefghijklmnopqrstuvwxyz%7B%7C%7D~"
        #expect(
            StreamOneEncoding.pairs(of: Array(printable.utf8)) == [
                .init("a", String(decoding: 0x20...0x7E, as: UTF8.self))
            ])
        #expect(
            StreamOneEncoding.pairs(of: Array("c%5bd%5D=%C3%A9%E2%82%AC%f0%9F%98%80%0A%00x&a+b=&c[d]==".utf8)) == [
                .init("c[d]", "é€😀\n\0x"), .init("a b", ""), .init("c[d]", "="),
            ])
        #expect(StreamOneEncoding.pairs(of: []) == [])
    }

    /// What is hashed for a signature is what the pairs would be encoded as, without pairs.
    @Test(arguments: StreamOneEncoding.Dialect.allCases)
    func form_isEncodedAgainInPieces_asItsPairsAre(dialect: StreamOneEncoding.Dialect) {
        var random = SplitMix64(state: 41)
        let parts = [
            "a", "%41", "%2b", "+", "~", "%7e", "=", "%3D", "é".utf8.map { "%" + String($0, radix: 16) }.joined(),
        ]
        for size in [0, 1, 2, 50, 3_000, 90_000] {
            var form = ""
            for number in 0..<size {
                if number % 7 == 0 { form += number > 0 ? "&n=" : "n=" }
                form += parts[Int(random.next() % UInt64(parts.count))]
            }
            var (again, pieces) = ([UInt8](), 0)
            let result = StreamOneEncoding.recode(Array(form.utf8), as: dialect) { piece in
                again += piece
                pieces += 1
                return true
            }
            let pairs = StreamOneEncoding.pairs(of: Array(form.utf8))
            #expect(size > 3_000 || pairs.map { StreamOneEncoding.encode($0, as: dialect) } == again)
            #expect(size < 3_000 || result == .disputed)
            #expect(pieces == (form.utf8.count + 65_535) / 65_536)
        }
        #expect(StreamOneEncoding.recode(Array("a=1&b=%20".utf8), as: dialect) { _ in true } == .same)
    }

    @Test(arguments: ["a", "=", "=a", "a=b&", "&a=b", "a=b&&c=d", "a=%", "a=%4", "a=%4g", "a=é", "a= b"])
    func form_isNotHashed_whereItCannotBeReadInOneWay(form: String) throws {
        #expect(StreamOneEncoding.recode(Array(form.utf8), as: .php) { _ in true } == .ambiguous)
        let sent = sdk.sent("item/edit", at: Self.now)
        let call = try SDKCall(Self.request("item/edit", sent.query, form), by: sdk.actor)
        #expect(call.proof(with: sdk.psk) == .isNoForm)
    }

    /// Its texts would take many times the memory of the form.
    @Test func form_isRefused_withMorePairsThanAnyCallHas() {
        let form = (0..<10_001).map { "n\($0)=" }.joined(separator: "&")
        #expect(StreamOneEncoding.pairs(of: Array(form.utf8)) == nil)
        #expect(StreamOneEncoding.pairs(of: Array(form.dropLast("&n10000=".count).utf8))?.count == 10_000)
    }

    /// A client that hangs up is not worth the rest.
    @Test func check_endsWithinAPiece_onceItIsCancelled() throws {
        let body = "a=" + String(repeating: "x", count: 1 << 20)
        let sent = sdk.sent("item/edit", at: Self.now)
        let call = try SDKCall(Self.request("item/edit", sent.query, body), by: sdk.actor)
        var asked = 0
        let proof = call.proof(with: sdk.psk) {
            asked += 1
            return asked == 3
        }
        #expect(proof == .abandoned && asked == 3)
        #expect(call.proof(with: sdk.psk) == .unsigned)
    }

    @Test(arguments: [
        "a", "=", "=a", "a=b&", "&a=b", "a=b&&c=d", "a=%", "a=%4", "a=%4g", "a=%C3", "a=%ED%A0%80", "a=é", "a= b",
    ])
    func form_isRefused_whereItCannotBeReadInOneWay(form: String) {
        #expect(StreamOneEncoding.pairs(of: Array(form.utf8)) == nil)
    }

    // MARK: Signatures

    private let sdk = StreamOneSDK()
    private let arguments = [("title", "Café & (thé)~"), ("b", "2")]

    private func isBelieved(
        _ sent: StreamOneSDK.Sent, _ path: String = "item/edit", key: String? = nil
    ) throws -> Bool {
        try SDKCall(Self.request(path, sent.query, sent.body), by: sdk.actor).isSigned(with: key ?? sdk.psk)
    }

    @Test func alteredCall_isNotBelieved() throws {
        let good = sdk.sent("item/edit", arguments, at: Self.now)
        #expect(try isBelieved(good))
        #expect(try !isBelieved(good, key: "wrong"))
        #expect(try !isBelieved(good, "item/view"))
        #expect(try !isBelieved(good, "player/edit"))
        let alterations: [(String, String)] = [
            ("b=2", "b=3"), ("b=2", "b=2&c="), ("&b=2", ""), ("title", "Title"), ("Caf%C3%A9", "Cafe"),
            ("api=3&format=json", "format=json&api=3"), ("&signature", "&timezone=UTC&signature"),
            ("timestamp=1450000000", "timestamp=1450000001"), ("timestamp=1450000000", "timestamp=1449999998"),
            ("timestamp=1450000000", "timestamp=01450000000"),
        ]
        for (text, other) in alterations {
            var bad = good
            bad.query = bad.query.replacing(text, with: other)
            bad.body = bad.body.replacing(text, with: other)
            #expect(bad.query != good.query || bad.body != good.body, "\(text)")
            #expect(try !isBelieved(bad), "\(other)")
        }
        var swapped = good
        swapped.body = swapped.body.split(separator: "&").reversed().joined(separator: "&")
        #expect(try !isBelieved(swapped))
    }

    @Test func alteredSignature_isNotBelieved() throws {
        let good = sdk.sent("item/edit", arguments, at: Self.now)
        let (unsigned, signature) = (String(good.query.dropLast(51)), String(good.query.suffix(40)))
        #expect(unsigned + "&signature=" + signature == good.query)
        let others = [
            "", String(signature.dropLast()), String(signature.dropLast(2)), signature + "00", signature.uppercased(),
            String(repeating: "0", count: 40), String(repeating: "z", count: 40), String(signature.reversed()),
        ]
        for other in others where other != signature {
            #expect(try !isBelieved(.init(query: unsigned + "&signature=" + other, body: good.body)), "\(other)")
        }
        #expect(try !isBelieved(.init(query: unsigned, body: good.body)))
        #expect(
            try isBelieved(.init(query: "signature=\(signature)&" + unsigned, body: good.body)), "it may be anywhere"
        )
    }

    /// Both SDKs read the clock for the parameter first, and again for the signature.
    @Test(arguments: [(0, true), (1, true), (2, false), (-1, false)])
    func signature_mayBeTheNextSeconds(later: Int64, isBelieved: Bool) throws {
        let sent = sdk.sent("item/edit", arguments, at: Self.now, signedLater: later)
        #expect(try self.isBelieved(sent) == isBelieved)
    }

    // MARK: Refusals

    @Test(arguments: [(-301, false), (-300, true), (-299, true), (0, true), (299, true), (300, true), (301, false)])
    func timestamp_mayBeOffByFiveMinutes(seconds: Int, isTaken: Bool) throws {
        let sent = sdk.sent("item/edit", at: Self.now + .seconds(seconds))
        do throws(RefusedCall) {
            _ = try SDKCall(Self.request("item/edit", sent.query), by: sdk.actor)
            #expect(isTaken)
        } catch {
            #expect(!isTaken)
            #expect(error.status.number == 2)
            #expect(error.detail == "the timestamp is 301 s \(seconds < 0 ? "behind" : "ahead of") the gateway's clock")
        }
    }

    private static let good =
        "api=3&format=json&authentication_type=application&timestamp=1450000000&application=9yC-4pQxT_2a"

    @Test(arguments: [
        (good.replacing("api=3", with: "api=2"), 6), (good.replacing("api=3&", with: ""), 6),
        (good.replacing("json", with: "xml"), 6), ("", 6), ("%", 6), (good + "&timezone", 6), (good + "&&", 6),
        (good + "&account=A&customer=C", 6), (good + "&account=A,,B", 6), (good + "&account=,", 6),
        (good + "&limit=3", 7), (good + "&Account=A", 7), (good + "&a%C3%A9=", 7), (good + "&api=3", 7),
        (good + "&timestamp=1450000000", 7), (good + "&signature=&signature=", 7), (good + "&user=u", 7),
        (good.replacing("timestamp=1450000000&", with: ""), 2), (good.replacing("=1450000000", with: "="), 2),
        (good.replacing("=1450000000", with: "=%2B1450000000"), 2),
        (good.replacing("=1450000000", with: "=-9223372036854775808"), 2),
        (good.replacing("=1450000000", with: "=9223372036854775807"), 2),
        (good.replacing("=1450000000", with: "=1450000000.5"), 2),
        (good.replacing("=application&", with: "=session&"), 3), (good.replacing("2a", with: "2b"), 3),
        (good.replacing("&application=9yC-4pQxT_2a", with: ""), 3),
        ("api=3&format=json&authentication_type=user&timestamp=1450000000&user=Cmv8fnKfjF2l", 3),
        ("api=3&format=json&timestamp=1450000000&user=9yC-4pQxT_2a", 3),
        ("api=3&format=json&timestamp=1450000000&user=u&session=s", 7),
    ])
    func query_isRefused_inThePlatformsWords(query: String, status: Int) {
        let refusal = #expect(throws: RefusedCall.self) {
            try SDKCall(Self.request("item/view", query), by: StreamOneVectors.application)
        }
        #expect(refusal?.status.number == status, "\(refusal?.detail ?? "")")
    }

    @Test(
        arguments: [
            ("a=1&a=1", "application/x-www-form-urlencoded", 6), ("a=1&%61=2", "application/x-www-form-urlencoded", 6),
            ("a", "application/x-www-form-urlencoded", 6), (#"{"a":1}"#, "application/json", 6),
            ("a=1", "multipart/form-data; boundary=x", 6), ("a=1", "application/x-www-form-urlencoded", nil),
            ("a=1", "Application/X-WWW-Form-URLencoded ;charset=UTF-8", nil), ("a=1", nil, nil), ("", nil, nil),
            ("", "text/plain", nil),
        ] as [(String, String?, Int?)])
    func body_isAForm(body: String, type: String?, status: Int?) {
        do throws(RefusedCall) {
            let call = try SDKCall(
                Self.request("item/view", Self.good, body, type: type), by: StreamOneVectors.application
            ).whole()
            #expect(status == nil)
            #expect(call.arguments == (body.isEmpty ? [] : [.init("a", "1")]))
        } catch {
            #expect(error.status.number == status)
        }
    }

    @Test(arguments: ["Item/view", "item/vi-ew", "item/9", "item/é"])
    func name_isRefused_thatNoActionHas(path: String) {
        let refusal = #expect(throws: RefusedCall.self) {
            try SDKCall(Self.request(path, Self.good), by: StreamOneVectors.application)
        }
        #expect(refusal?.status.number == 5)
    }

    /// Without `authentication_type` it is a user's.
    @Test func user_needsNoType() throws {
        let call = try SDKCall(
            Self.request("item/view", "api=3&format=json&timestamp=1450000000&user=Cmv8fnKfjF2l&account=&customer="),
            by: StreamOneVectors.user)
        #expect(try call.whole() == StreamOneCall(command: "item", action: "view"))
    }
}

extension SDKCall {
    func isSigned(with key: String) -> Bool { proof(with: key) == .signed }
}
