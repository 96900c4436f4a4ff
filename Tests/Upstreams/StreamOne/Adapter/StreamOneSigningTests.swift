import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import StreamOneClient

/// The specification's sections 3 and 4, and the encodings of 12.
@Suite struct StreamOneSigningTests {
    private static let moment = Timestamp(milliseconds: 1_450_000_000_999)

    private static func platform(
        _ actor: StreamOneActor, account: String? = nil, url: String = "http://api.test"
    ) throws -> StreamOnePlatform {
        StreamOnePlatform(
            base: try BaseURL(url), actor: actor, psk: StreamOneVectors.psk(of: actor), defaultAccount: account)
    }

    /// What is signed is what is sent: the query before the signature, and the body.
    @Test(arguments: StreamOneVectors.php)
    func call_isSignedOverTheBytesSent(vector: StreamOneVectors.Vector) throws {
        let call = try JSONParser().parse(Array(vector.call.utf8)) { payload throws(InvalidPayload) in
            try StreamOneCall(payload, defaultAccount: vector.account)
        }.get()
        let request = try Self.platform(vector.actor, account: vector.account).request(
            for: call, in: vector.isInSession ? StreamOneVectors.session : nil, at: Self.moment)
        let (url, body) = (request.url, String(decoding: request.body, as: UTF8.self))
        let marker = "&signature=" + vector.signed.signature
        #expect(url.hasPrefix("http://api.test/api/") && url.hasSuffix(marker), "\(url)")
        #expect(url.dropFirst("http://api.test".count).dropLast(marker.count) + "&" + body == vector.signed.text)
        #expect(request.method == .post)
        #expect(request.headers.map(\.name) == ["Content-Type"])
        #expect(request.headers.map(\.value) == ["application/x-www-form-urlencoded"])
    }

    @Test(arguments: StreamOneVectors.ios)
    func signature_isTheSDKs(signed: StreamOneVectors.Signed) {
        let key = signed.parameters.contains("application=") ? "apppsk" : "psk"
        #expect(StreamOnePlatform.signature(of: Array(signed.text.utf8), key: key) == signed.signature)
    }

    /// 3.1; a scheme has to be there, and slashes at the end are not doubled.
    @Test(arguments: [
        ("http://api.test", "http://api.test/api/api/info?"),
        ("http://api.test/long/path", "http://api.test/long/path/api/api/info?"),
        ("https://h:8443/p", "https://h:8443/p/api/api/info?"), ("http://h/", "http://h/api/api/info?"),
    ])
    func url_isJoined_withoutItsPrefixInWhatIsSigned(url: String, start: String) throws {
        let call = StreamOneCall(command: "api", action: "info")
        let request = try Self.platform(StreamOneVectors.user, url: url).request(for: call, at: Self.moment)
        #expect(request.url.hasPrefix(start))
        #expect(request.url.hasSuffix("signature=ba6585e0ef67fb39acb2de0c43b4345db860bcf4"))
        #expect(request.body.isEmpty)
    }

    @Test(arguments: ["api.streamonecloud.net/prefix", "127.0.0.1:8080", "", "ftp://h"])
    func url_isRefused_withoutAScheme(url: String) {
        #expect(throws: Setting.Problems.self) { try StreamOneSamples.upstream(["apiUrl": .text(url)]) }
    }

    // MARK: Encoding

    @Test(arguments: [
        (
            String(decoding: 0x20...0x7E, as: UTF8.self),
            "+%21%22%23%24%25%26%27%28%29%2A%2B%2C-.%2F0123456789%3A%3B%3C%3D%3E%3F%40ABCDEFGHIJKLMNOPQRSTUVWXYZ%5B%5C%5D%5E_%60abcdefghijklmnopqrstuvwxyz%7B%7C%7D%7E"
        ), ("é€😀\n\t\r\0x", "%C3%A9%E2%82%AC%F0%9F%98%80%0A%09%0D%00x"), ("", ""),
    ])
    func text_isEncodedAsPHPDoes(text: String, encoded: String) {
        #expect(String(decoding: StreamOneEncoding.encode([.init("a", text)]), as: UTF8.self) == "a=" + encoded)
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
        ("9.007199254740992e15", "9007199254740992"),
        ("-9007199254740992.0", "-9007199254740992"), ("9223372036854775808", "9223372036854775808"), ("-0", "0"),
        ("-123456789012345678901234567890", "-123456789012345678901234567890"), ("1e-7", "0.0000001"),
        ("1.5e-7", "0.00000015"),
        ("12345.678e-2", "123.45678"), ("0.0", "0"),
        (#"["news","a b",3,1.0,null,true,false]"#, "news,a b,3,1,,1,0"), ("[]", ""), (#"["a,b"]"#, "a,b"),
    ])
    func argument_becomesText(json: String, text: String) throws {
        let (texts, faults) = try Self.arguments(#"{"a":\#(json)}"#)
        #expect(texts == [text])
        #expect(faults.isEmpty)
    }

    @Test(arguments: [
        ("1e20", ""), ("9.1e15", ""), ("1e400", ""), ("-1e400", ""), ("9007199254740993.0", ""),
        ("90071992547409930e-1", ""),
        ("-9007199254740992.5", ""), ("{}", ""),
        ("[1,[2]]", "/1"), ("[{}]", "/0"), ("[1,2,1e20]", "/2"),
    ])
    func argument_isRefused_whereThereIsNoForm(json: String, pointer: String) throws {
        let fault = try JSONParser().parse(Array(json.utf8)) { Self.fault(of: $0) }.get()
        #expect(fault?.pointer == pointer)
    }

    private static func fault(of value: JSONValue) -> StreamOneArgument.Fault? {
        var growth = 0
        return StreamOneArgument.fault(of: value, growth: &growth)
    }

    private static func arguments(_ json: String) throws -> (texts: [String], faults: [PayloadError]) {
        try JSONParser().parse(Array(json.utf8)) { value in
            var faults = PayloadErrors()
            let arguments = StreamOneCall.arguments(value, at: "", &faults)
            return (arguments.map(\.value), faults.kept)
        }.get()
    }

    /// `1e-300` has 6 characters, and 302 without its exponent: 221 of them are 64 KiB longer.
    @Test func numbersOfACall_growByALimitedNumberOfCharacters() throws {
        func list(_ count: Int) -> String {
            "[" + Array(repeating: "1e-300", count: count).joined(separator: ",") + "]"
        }
        let most = StreamOneArgument.maxGrowth / 296
        let good = try Self.arguments(#"{"a":\#(list(most - 1)),"b":1e-300}"#)
        #expect(good.faults.isEmpty)
        #expect(good.texts.map(\.utf8.count) == [303 * (most - 1) - 1, 302])
        let bad = try Self.arguments(#"{"a":\#(list(most)),"b":1e-300}"#)
        #expect(bad.faults.map(\.pointer) == ["/b"])
        #expect(try Self.arguments(#"{"a":\#(list(10_000))}"#).faults.map(\.pointer) == ["/a/\(most)"])
    }

    /// More take many times the memory of the body when the call is sent, and no platform reads them.
    @Test func call_hasALimitedNumberOfArguments() throws {
        func object(_ count: Int) -> String {
            "{" + (0..<count).map { "\"a\($0)\":1" }.joined(separator: ",") + "}"
        }
        let most = StreamOneEncoding.maxPairs
        #expect(try Self.arguments(object(most)).texts.count == most)
        #expect(try Self.arguments(object(most + 1)).faults.map(\.detail) == ["must have at most 10000 members"])
    }

    /// They are parts of the URL. A call that no server takes would be retried without end.
    @Test(arguments: [
        (#""account":"#, "\"", "\"", "/account"), (#""accounts":"#, "[\"", "\"]", "/accounts"),
        (#""customer":"#, "\"", "\"", "/customer"), (#""timezone":"#, "\"", "\"", "/timezone"),
    ])
    func textOfTheURL_isLimited(name: String, start: String, end: String, pointer: String) throws {
        func check(_ payload: JSONValue) -> [String] {
            do throws(InvalidPayload) {
                _ = try StreamOneCall(payload, defaultAccount: nil, .checked)
                return []
            } catch {
                return error.faults.kept.map { "\($0.pointer) \($0.detail)" }
            }
        }
        func faults(_ bytes: Int) throws -> [String] {
            let value = start + String(repeating: "x", count: bytes - start.count - end.count) + end
            let payload = #"{"command":"item","action":"edit",\#(name)\#(value)}"#
            return try JSONParser().parse(Array(payload.utf8)) { check($0) }.get()
        }
        #expect(try faults(65_536) == [])
        #expect(try faults(65_537) == ["\(pointer) must have at most 65536 characters"])
    }

    @Test(arguments: ["1e-65600", "1e-999999999", "1e-99999999999999999999999", "-0.5E-00099999999999"])
    func number_isRefusedByItsLength_beforeItIsWrittenOut(number: String) throws {
        #expect(try Self.arguments(#"{"a":\#(number)}"#).faults.map(\.pointer) == ["/a"])
    }

    /// However long the literal is, it is read once.
    @Test(arguments: [
        ("9007199254740992." + String(repeating: "0", count: 4 << 20), "9007199254740992"),
        ("0." + String(repeating: "0", count: 4 << 20), "0"), ("0e999999999999999999999", "0"),
        ("1" + String(repeating: "0", count: 1 << 20) + "e-\(1 << 20)", "1"),
        ("0." + String(repeating: "0", count: (1 << 20) - 1) + "1e\(1 << 20)", "1"),
    ])
    func longLiteral_becomesItsShortText(literal: String, text: String) throws {
        #expect(try Self.arguments(#"{"a":[\#(literal)]}"#).texts == [text])
    }

    /// A text that grew with its bytes would take twice its size, and its former memory meanwhile.
    @Test func body_isWrittenIntoMemoryOfItsSize() throws {
        let count = 1 << 20
        let arguments = [StreamOneCall.Argument("a", String(repeating: ",", count: count))]
        let body = StreamOneEncoding.encode(arguments)
        #expect(body.count == 2 + 3 * count)
        #expect(body.capacity <= body.count + 8192)
    }
}

/// The vectors of the specification's section 4.1: what is signed, and its signature.
enum StreamOneVectors {
    static let user = StreamOneActor(kind: .user, id: "Cmv8fnKfjF2l")
    static let application = StreamOneActor(kind: .application, id: "9yC-4pQxT_2a")
    static let session = (id: "Hz1kPspd2Bk1", key: "SQKEyak6R2BcwH3qnTakY50SKeABxXcg")

    static func psk(of actor: StreamOneActor) -> String {
        actor.kind == .user ? "abcdefghijklmnopqrstuvwxyzABCDEF" : "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu"
    }

    struct Signed: Decodable, Sendable, CustomTestStringConvertible {
        let name: String
        let path: String
        let parameters: String
        let body: String
        let signature: String
        var text: String { "\(path)?\(parameters)&\(body)" }
        var testDescription: String { name }
    }

    /// Who signs, the call as it is queued, and what goes over the wire.
    struct Vector: Decodable, Sendable, CustomTestStringConvertible {
        private let signer: String
        let account: String?
        let isInSession: Bool
        let call: String
        let signed: Signed
        var testDescription: String { signed.name }
        var actor: StreamOneActor { signer == "user" ? user : application }
        var key: String { psk(of: actor) + (isInSession ? session.key : "") }
    }

    /// P1 to P10, made by PHP at 1450000000.
    static let php = vectors.php
    /// I1 to I8, of the SDK for iOS: parameters sorted; the user `user` with the key `psk`, the application `application`
    /// with `apppsk`.
    static let ios = vectors.ios

    private struct Vectors: Decodable {
        let php: [Vector]
        let ios: [Signed]
    }
    private static let vectors: Vectors = try! Fixture.value("vectors.json")
}
