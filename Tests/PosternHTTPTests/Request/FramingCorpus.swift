import Foundation
import PosternTestKit
import Testing

/// What a server must do with the bytes of a connection (RFC 9112): serve these requests, then refuse or go on.
struct FramingCase: Decodable, Sendable, CustomTestStringConvertible {
    let name: String
    /// In ISO 8859-1: one byte for each scalar below U+0100.
    let text: String
    /// `METHOD path body`, of all requests that reach the handler.
    let served: [String]
    /// The status of the refusal with which the connection ends; nil if it stays open.
    let refusal: Int?

    var bytes: [UInt8] { text.unicodeScalars.map { UInt8($0.value) } }
    var testDescription: String { name }
}

/// `Tests/Fixtures/framing.json`, in which `<<ab*3>>` means `ababab`, and the characters that have no place.
enum FramingCorpus {
    static let all = cases + characters

    private static let cases: [FramingCase] = {
        struct Group: Decodable { let cases: [FramingCase] }
        let file = try! Fixture.bytes(inPackage: "Tests/Fixtures/framing.json")
        let text = String(decoding: file, as: UTF8.self).replacing(#/<<(.*?)\*(\d+)>>/#) {
            String(repeating: String($0.1), count: Int($0.2) ?? 0)
        }
        return try! JSONDecoder().decode([Group].self, from: Data(text.utf8)).flatMap(\.cases)
    }()

    /// Every character in every place.
    private static let characters: [FramingCase] = {
        let (get, smuggled) = ("GET /a HTTP/1.1\r\nHost: t\r\n", "GET /smuggled HTTP/1.1\r\nHost: t\r\n\r\n")
        let chunked = "POST /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
        let controls = (0...31).filter { ![9, 10, 13].contains($0) } + [127]
        func cases(_ location: String, _ codes: [Int], _ text: (String) -> String) -> [FramingCase] {
            codes.map { code in
                FramingCase(
                    name: "U+\(String(code, radix: 16)) in a \(location)",
                    text: text(String(Unicode.Scalar(UInt8(code)))) + smuggled, served: [], refusal: 400)
            }
        }
        let separators = Array("\"(),/;<=>?@[\\]{} ".utf8).map(Int.init)
        return cases("value", controls + [10, 13]) { get + "X: a\($0)b\r\n\r\n" }
            + cases("name", controls + separators + [9, 10, 13, 128, 255]) { get + "X\($0)Y: z\r\n\r\n" }
            + cases("method", controls + separators.filter { $0 != 32 } + [9, 10, 13, 128, 255]) {
                "GE\($0)T /a HTTP/1.1\r\nHost: t\r\n\r\n"
            }
            + cases("target", controls + [9, 10, 13, 32, 128, 255]) { "GET /a\($0)b HTTP/1.1\r\nHost: t\r\n\r\n" }
            + cases("trailer", controls + [10, 13]) { chunked + "0\r\nX: a\($0)b\r\n\r\n" }
    }()
}
