import PosternCore
import PosternJSON
import PosternTestKit
import Testing

@testable import PosternUpstreams

/// The specification's sections 3 and 4, and the encodings of 12.
@Suite struct StreamOneSigningTests {
    private static let user = StreamOneActor(kind: .user, id: "Cmv8fnKfjF2l")
    private static let application = StreamOneActor(kind: .application, id: "9yC-4pQxT_2a")
    private static let account = "A4pMV-sKDVEy"
    private static let moment = Timestamp(milliseconds: 1_450_000_000_999)

    private static func platform(
        _ actor: StreamOneActor, account: String? = nil, url: String = "http://api.test"
    ) throws -> StreamOnePlatform {
        StreamOnePlatform(
            base: try BaseURL(url), actor: actor,
            psk: actor.kind == .user ? "abcdefghijklmnopqrstuvwxyzABCDEF" : "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu",
            defaultAccount: account)
    }

    /// P1 to P10: who signs, the call as it is queued, and what goes over the wire.
    private struct Vector: CustomTestStringConvertible, Sendable {
        let name: String
        let actor: StreamOneActor
        var account: String?
        var isInSession = false
        let call: String
        let signed: String
        let signature: String
        var testDescription: String { name }
    }

    private static let vectors = [
        Vector(
            name: "P1", actor: user, call: #"{"command":"api","action":"info"}"#,
            signed: "/api/api/info?api=3&format=json&authentication_type=user&timestamp=1450000000&user=Cmv8fnKfjF2l&",
            signature: "ba6585e0ef67fb39acb2de0c43b4345db860bcf4"),
        Vector(
            name: "P2", actor: user,
            call: #"{"command":"item","action":"view","arguments":{"itemtype":"video","archived":false}}"#,
            signed:
                "/api/item/view?api=3&format=json&authentication_type=user&timestamp=1450000000&user=Cmv8fnKfjF2l&itemtype=video&archived=0",
            signature: "7465bf82083d7ada4c9511dd02bb02b67d493ac3"),
        Vector(
            name: "P3", actor: user, account: account,
            call:
                #"{"command":"item","action":"edit","arguments":{"item":"vMD_9k1SmkS5","title":"Caf\u00e9 & thé: 50% (a/b)~*!","keywords":["news","a b","x+y"],"description":null}}"#,
            signed:
                "/api/item/edit?api=3&format=json&account=A4pMV-sKDVEy&authentication_type=user&timestamp=1450000000&user=Cmv8fnKfjF2l&item=vMD_9k1SmkS5&title=Caf%C3%A9+%26+th%C3%A9%3A+50%25+%28a%2Fb%29%7E%2A%21&keywords=news%2Ca+b%2Cx%2By&description=",
            signature: "10b9e798d792a33519a00c9fa38c383edd335e5b"),
        Vector(
            name: "P4", actor: application,
            call:
                #"{"command":"item","action":"view","timezone":"Europe/Amsterdam","accounts":["A4pMV-sKDVEy","kYxEV4oaRQg2"],"arguments":{"limit":25,"offset":0}}"#,
            signed:
                "/api/item/view?api=3&format=json&authentication_type=application&timezone=Europe%2FAmsterdam&account=A4pMV-sKDVEy%2CkYxEV4oaRQg2&timestamp=1450000000&application=9yC-4pQxT_2a&limit=25&offset=0",
            signature: "e1b0f26e7cdff07a51488310b1ea7c2cc677dff3"),
        Vector(
            name: "P5", actor: application, account: account,
            call: #"{"command":"account","action":"view","customer":"CuSt-0m_eR12"}"#,
            signed:
                "/api/account/view?api=3&format=json&authentication_type=application&customer=CuSt-0m_eR12&timestamp=1450000000&application=9yC-4pQxT_2a&",
            signature: "516d405beb594fc03bc55e1b76d4ee5646a77acf"),
        Vector(
            name: "P6", actor: application,
            call:
                #"{"command":"session","action":"initialize","arguments":{"user":"jan@example.nl","userip":"10.11.12.13"}}"#,
            signed:
                "/api/session/initialize?api=3&format=json&authentication_type=application&timestamp=1450000000&application=9yC-4pQxT_2a&user=jan%40example.nl&userip=10.11.12.13",
            signature: "736070acaf850f7be9a437882c162704dd1a89b9"),
        Vector(
            name: "P7", actor: application,
            call:
                #"{"command":"session","action":"create","arguments":{"challenge":"EwBdQcB5yq8sU05u4aADv6Abg3oBVhtp","response":"RgFOFwNQQAVeXFtbElkfQRVLVVZUBwtdV1YDWkQoDUsYRC4PDAASUyt+PRoVW2ADYV5hDA4rF1hcUFUU","v2hash":"5f4dcc3b5aa765d61d8327deb882cf99"}}"#,
            signed:
                "/api/session/create?api=3&format=json&authentication_type=application&timestamp=1450000000&application=9yC-4pQxT_2a&challenge=EwBdQcB5yq8sU05u4aADv6Abg3oBVhtp&response=RgFOFwNQQAVeXFtbElkfQRVLVVZUBwtdV1YDWkQoDUsYRC4PDAASUyt%2BPRoVW2ADYV5hDA4rF1hcUFUU&v2hash=5f4dcc3b5aa765d61d8327deb882cf99",
            signature: "98b739318f90b3c49ac37a93102c0ecdd4a19345"),
        Vector(
            name: "P8", actor: application, account: account, isInSession: true,
            call: #"{"command":"item","action":"view","arguments":{"itemtype":"video"}}"#,
            signed:
                "/api/item/view?api=3&format=json&account=A4pMV-sKDVEy&authentication_type=application&timestamp=1450000000&application=9yC-4pQxT_2a&session=Hz1kPspd2Bk1&itemtype=video",
            signature: "54eda8dd22660925c196570a1f00da410282bcad"),
        Vector(
            name: "P9", actor: application, account: account, isInSession: true,
            call: #"{"command":"session","action":"delete"}"#,
            signed:
                "/api/session/delete?api=3&format=json&account=A4pMV-sKDVEy&authentication_type=application&timestamp=1450000000&application=9yC-4pQxT_2a&session=Hz1kPspd2Bk1&",
            signature: "66e50965ad47ce5e0e52135edb2e9c2dc4a375a3"),
        Vector(
            name: "P10", actor: application,
            call: #"{"command":"application","action":"view","arguments":{"application":"9yC-4pQxT_2a","limit":3}}"#,
            signed:
                "/api/application/view?api=3&format=json&authentication_type=application&timestamp=1450000000&application=9yC-4pQxT_2a&application=9yC-4pQxT_2a&limit=3",
            signature: "47fc5f27128a57af54f991100546c7f4f7114303"),
    ]

    /// What is signed is what is sent: the query before the signature, and the body.
    @Test(arguments: vectors)
    private func call_isSignedOverTheBytesSent(vector: Vector) throws {
        let call = try JSONParser().parse(Array(vector.call.utf8)) { payload throws(InvalidPayload) in
            try StreamOneCall(payload, defaultAccount: vector.account)
        }.get()
        let session =
            vector.isInSession ? (id: "Hz1kPspd2Bk1", key: "SQKEyak6R2BcwH3qnTakY50SKeABxXcg") : nil
        let request = try Self.platform(vector.actor, account: vector.account).request(
            for: call, in: session, at: Self.moment)
        let (url, body) = (request.url, String(decoding: request.body, as: UTF8.self))
        let marker = "&signature=" + vector.signature
        #expect(url.hasPrefix("http://api.test/api/") && url.hasSuffix(marker), "\(url)")
        #expect(url.dropFirst("http://api.test".count).dropLast(marker.count) + "&" + body == vector.signed)
        #expect(request.method == .post)
        #expect(request.headers.map(\.name) == ["Content-Type"])
        #expect(request.headers.map(\.value) == ["application/x-www-form-urlencoded"])
    }

    /// I1 to I8: what iOS signs, in its own order.
    @Test(arguments: [
        (
            "/api/item/view?api=3&authentication_type=user&format=json&timestamp=1234&user=user&", "psk",
            "a3a030d15fd3faef49fd1340cb474113645628dc"
        ),
        (
            "/api/item/view?api=3&authentication_type=user&format=json&timestamp=5678&user=user&", "psk",
            "6e553a65157cadab99a32b9a893e4b87c3c6de4d"
        ),
        (
            "/api/item/view?api=3&application=application&authentication_type=application&format=json&timestamp=1234&",
            "apppsk", "588b4aaa105678d5de14b9f87e431c9cc7fe458c"
        ),
        (
            "/api/user/create?api=3&authentication_type=user&format=json&timestamp=1234&user=user&", "psk",
            "965e9d965aeda81d3aa9a3e0eda4793b0b3412c7"
        ),
        (
            "/api/item/view?api=3&authentication_type=user&format=json&timestamp=1234&user=user&x=ABxu233", "psk",
            "02b3c66918d4d1cce6f1558ee2470c341dfe40db"
        ),
        (
            "/api/item/view?account=account1%2Caccount2&api=3&authentication_type=user&format=json&timestamp=1234&user=user&",
            "psk", "a35a4d37e8102113ac34ba1986d34370d59737a1"
        ),
        (
            "/api/item/view?api=3&authentication_type=user&customer=customer1&format=json&timestamp=1234&user=user&",
            "psk", "741337e9c6811836762d9116b76b56849e11791c"
        ),
        (
            "/api/item/view?api=3&authentication_type=user&format=json&timestamp=1234&user=user&archived=0&searchtitle=test",
            "psk", "a9bd2d16054ea481b2004627ee3d6748b8fe3d88"
        ),
    ])
    func signature_isTheSDKs(text: String, key: String, signature: String) {
        #expect(StreamOnePlatform.signature(of: Array(text.utf8), key: key) == signature)
    }

    /// 3.1; a scheme has to be there, and slashes at the end are not doubled.
    @Test(arguments: [
        ("http://api.test", "http://api.test/api/api/info?"),
        ("http://api.test/long/path", "http://api.test/long/path/api/api/info?"),
        ("https://h:8443/p", "https://h:8443/p/api/api/info?"), ("http://h/", "http://h/api/api/info?"),
    ])
    func url_isJoined_withoutItsPrefixInWhatIsSigned(url: String, start: String) throws {
        let call = StreamOneCall(command: "api", action: "info")
        let request = try Self.platform(Self.user, url: url).request(for: call, at: Self.moment)
        #expect(request.url.hasPrefix(start))
        #expect(request.url.hasSuffix("signature=ba6585e0ef67fb39acb2de0c43b4345db860bcf4"))
        #expect(request.body.isEmpty)
    }

    @Test(arguments: ["api.streamonecloud.net/prefix", "127.0.0.1:8080", "", "ftp://h"])
    func url_isRefused_withoutAScheme(url: String) {
        #expect(throws: SettingProblems.self) { try StreamOneSamples.upstream(["apiUrl": .text(url)]) }
    }

    // MARK: Encoding

    @Test(arguments: [
        (
            String(decoding: 0x20...0x7E, as: UTF8.self),
            "+%21%22%23%24%25%26%27%28%29%2A%2B%2C-.%2F0123456789%3A%3B%3C%3D%3E%3F%40ABCDEFGHIJKLMNOPQRSTUVWXYZ%5B%5C%5D%5E_%60abcdefghijklmnopqrstuvwxyz%7B%7C%7D%7E"
        ), ("é€😀\n\t\r\0x", "%C3%A9%E2%82%AC%F0%9F%98%80%0A%09%0D%00x"), ("", ""),
    ])
    func text_isEncodedAsPHPDoes(text: String, encoded: String) {
        #expect(StreamOneEncoding.encode(text) == encoded)
    }

    @Test func pairs_areEncodedOnTheirOwn_inTheirOrder() {
        let pairs = [StreamOneCall.Argument("a b", "x"), .init("c[d]", "y"), .init("e", "")]
        #expect(String(decoding: StreamOneEncoding.encode(pairs), as: UTF8.self) == "a+b=x&c%5Bd%5D=y&e=")
    }

    // MARK: Arguments

    /// 3.4.
    @Test(arguments: [
        (#""text, é""#, "text, é"), ("null", ""), ("true", "1"), ("false", "0"), ("0", "0"), ("-17", "-17"),
        ("9223372036854775807", "9223372036854775807"), ("3.14", "3.14"), ("1.0", "1"), ("-2.50", "-2.5"),
        ("0.3333333333333333", "0.3333333333333333"), ("1e15", "1000000000000000"), ("1e0", "1"), ("100e-3", "0.1"),
        ("9.007199254740992e15", "9007199254740992"), ("1e-7", "0.0000001"), ("1.5e-7", "0.00000015"),
        ("12345.678e-2", "123.45678"), ("0.0", "0"),
        (#"["news","a b",3,1.0,null,true,false]"#, "news,a b,3,1,,1,0"), ("[]", ""), (#"["a,b"]"#, "a,b"),
    ])
    func argument_becomesText(json: String, text: String) throws {
        let read = try JSONParser().parse(Array(json.utf8)) { StreamOneArgument.text(of: $0) }.get()
        #expect(try read.get() == text)
    }

    @Test(arguments: [
        ("1e20", ""), ("9.1e15", ""), ("1e400", ""), ("-1e400", ""), ("9223372036854775808", ""), ("{}", ""),
        ("[1,[2]]", "/1"), ("[{}]", "/0"), ("[1,2,1e20]", "/2"),
    ])
    func argument_isRefused_whereThereIsNoForm(json: String, place: String) throws {
        let read = try JSONParser().parse(Array(json.utf8)) { StreamOneArgument.text(of: $0) }.get()
        guard case .failure(let fault) = read else {
            Issue.record("\(json) became text")
            return
        }
        #expect(fault.place == place)
    }
}
