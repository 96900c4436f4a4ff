import Dispatch
import Foundation
import Glibc
import PosternCore
import PosternTestKit
import Synchronization
import Testing

@testable import PosternHTTP

/// Requests by their bytes: what is served and what is refused (RFC 9112; the design's section 3.6).
@Suite(.serialized) struct FramingTests {
    @Test func corpus_isLarge_andItsNamesAreDistinct() {
        #expect(FramingCorpus.all.count >= 200)
        #expect(Set(FramingCorpus.all.map(\.name)).count == FramingCorpus.all.count)
    }

    /// A request behind the case is answered, or the connection is closed; nothing else reaches the handler.
    @Test(arguments: FramingCorpus.all)
    func bytes_areServedOrRefused(framing: FramingCase) throws {
        let log = RequestLog()
        try withServer(log.handler) { _, port in
            let client = try HTTPClient(port: port)
            client.send(framing.bytes + Array("GET /after HTTP/1.1\r\nHost: t\r\n\r\n".utf8))
            for _ in framing.served { #expect(try client.answer().status == 200) }
            guard let refusal = framing.refusal else {
                #expect(try client.answer().status == 200)
                #expect(!client.hasMore)
                #expect(log.served == framing.served + ["GET /after "])
                return
            }
            try expectRefusal(refusal, client)
            #expect(log.served == framing.served)
        }
    }

    /// Exactly one response, a problem with its request id, and then the end.
    private func expectRefusal(_ status: Int, _ client: HTTPClient) throws {
        let answer = try client.answer()
        #expect(answer.status == status)
        #expect(answer.header("Connection") == "close")
        #expect(answer.header("Content-Type") == "application/problem+json")
        let id = try #require(answer.header("X-Request-Id"))
        #expect(answer.text.contains("\"requestId\":\"\(id)\""))
        #expect(answer.text.contains("\"status\":\(status)"))
        try client.waitForEnd()
        #expect(!client.hasMore)
    }

    @Test func requestID_losesTheBlanksAroundIt() throws {
        try withServer { _, port in
            let client = try HTTPClient(port: port)
            client.sendPost("/", "", headers: "X-Request-Id:  mine \t\r\n")
            #expect(try client.answer().header("X-Request-Id") == "mine")
            client.sendPost("/", "", headers: "X-Request-Id: a\r\nX-Request-Id: b\r\n")
            #expect(try client.answer().header("X-Request-Id")?.count == 13)
        }
    }

    @Test func repeatedList_isJoined() throws {
        let handler = TestHandler { request, responder in
            responder.respond(HTTPResponse(status: 200, body: Array((request.head.header("Prefer") ?? "").utf8)))
        }
        try withServer(handler) { _, port in
            let client = try HTTPClient(port: port)
            client.sendPost("/", "", headers: "Prefer: wait=1\r\nX: y\r\npREFER: handling=lenient\r\n")
            #expect(try client.answer().text == "wait=1, handling=lenient")
        }
    }

    /// A refusal that does not need the connection's end keeps it, whether the body is here already or not.
    @Test(arguments: ["Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"])
    func refusal_keepsTheConnection_whenTheBodyIsShort(rest: String) throws {
        try withServer(.refusing) { _, port in
            let client = try HTTPClient(port: port)
            for _ in 0..<3 {
                client.send("POST /x HTTP/1.1\r\nHost: t\r\n")
                client.send(rest)
                let answer = try client.answer()
                #expect(answer.status == 404)
                #expect(answer.header("Connection") == nil)
            }
        }
    }

    @Test(arguments: ["Content-Length: 100000\r\n\r\n", "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n"])
    func refusal_closes_whenTheBodyIsLongOrHeldBack(rest: String) throws {
        try withServer(.refusing) { _, port in
            let client = try HTTPClient(port: port)
            client.send("POST /x HTTP/1.1\r\nHost: t\r\n" + rest)
            let answer = try client.answer()
            #expect(answer.status == 404)
            #expect(answer.header("Connection") == "close")
            try client.waitForEnd()
        }
    }

    @Test func expectationWithoutBody_isAnswered_andSoIsWhatFollows() throws {
        try withServer { _, port in
            let client = try HTTPClient(port: port)
            client.send("POST /a HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n")
            #expect(try client.answer().status == 200)
            client.send("POST /a HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
            #expect(try client.answer().status == 100)
            client.send("2\r\nok\r\n0\r\n\r\n")
            #expect(try client.answer().text == "ok")
        }
    }

    /// The kernel reports such a segment once.
    @Test(arguments: ["GET / HTTP/1.1\r\nHost: t\r\n\r\n", "GET / HTTP/1.1\r\nHost: t\r\n\r\nGET /", "GET /"])
    func endOfStream_isNoticed_inTheSegmentOfARequest(text: String) throws {
        try withServer { _, port in
            let client = try HTTPClient(port: port)
            var isOn: Int32 = 1
            setsockopt(client.socket, Int32(IPPROTO_TCP), TCP_CORK, &isOn, 4)
            client.send(text)
            shutdown(client.socket, Int32(SHUT_WR))
            if text.contains("\r\n\r\n") { #expect(try client.answer().status == 200) }
            try client.waitForEnd()
        }
    }

    /// Several connections to a worker, so that libmicrohttpd serves some of them as the oldest and others as ready ones;
    /// answered at once, or by another thread.
    @Test(arguments: [false, true]) func pipelinedRequests_areAllAnswered_onManyConnections(later: Bool) throws {
        let queue = DispatchQueue(label: "answers")
        let handler = TestHandler { request, responder in
            let response = HTTPResponse(status: 200, body: request.body)
            if later { queue.async { responder.respond(response) } } else { responder.respond(response) }
        }
        try withServer(handler) { _, port in
            let clients = try (0..<8).map { _ in try HTTPClient(port: port) }
            let request = "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\n0123456789"
            for client in clients { client.send(String(repeating: request, count: 200)) }
            for client in clients {
                for _ in 0..<200 { #expect(try client.answer().text == "0123456789") }
            }
        }
    }

    @Test func manyPipelinedRequests_areAllAnswered() throws {
        try withServer { _, port in
            let client = try HTTPClient(port: port)
            let request =
                "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\n" + String(repeating: "x", count: 100)
            client.send(String(repeating: request, count: 1000))
            for _ in 0..<1000 { #expect(try client.answer().text.count == 100) }
        }
    }
}

/// The requests that reached the handler.
private final class RequestLog: Sendable {
    private let requests = Mutex<[String]>([])
    var served: [String] { requests.withLock { $0 } }

    var handler: TestHandler {
        TestHandler { [self] request, responder in
            let body = String(decoding: request.body, as: UTF8.self)
            requests.withLock { $0.append("\(request.head.method) \(request.head.path) \(body)") }
            responder.respond(HTTPResponse(status: 200))
        }
    }
}

extension TestHandler {
    fileprivate static var refusing: Self {
        var handler = TestHandler()
        handler.refusal = { Problem(slug: .notFound, status: 404, detail: "Nothing.").response(to: $0) }
        return handler
    }
}

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
