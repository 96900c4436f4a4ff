import Foundation
import PosternCompression
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI

/// `/console`: files of the operator's console, which need no key and may be kept by a browser.
@Suite struct ConsoleTests {
    private static let policy =
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'none'; "
        + "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

    @Test func everyFileOfTheFolder_isServedAsItIs_withThePolicy() throws {
        let folder = URL(fileURLWithPath: Fixture.top).appendingPathComponent("Sources/CConsole/files")
        let names = try FileManager.default.contentsOfDirectory(atPath: folder.path)
        #expect(Set(names).subtracting(["index.html"]).union([""]) == Set(ConsoleFile.all.keys))
        try withPausedGateway { gateway in
            for name in names {
                let path = name == "index.html" ? "/console" : "/console/\(name)"
                let answer = try gateway.client.get(path)
                #expect(answer.status == 200, "\(path)")
                #expect(answer.body == Array(try Data(contentsOf: folder.appendingPathComponent(name))), "\(path)")
                #expect(answer.header("Content-Type") == Self.mediaType(of: name))
                #expect(answer.header("Content-Security-Policy") == Self.policy)
                #expect(answer.header("X-Content-Type-Options") == "nosniff")
                #expect(answer.header("Referrer-Policy") == "no-referrer")
                #expect(answer.header("Cross-Origin-Opener-Policy") == "same-origin")
                #expect(answer.header("Vary") == "Accept-Encoding")
                #expect(answer.headers.filter { $0.name == "Cache-Control" }.map(\.value) == ["no-cache"])
            }
        }
    }

    private static func mediaType(of name: String) -> String {
        switch name.split(separator: ".").last {
        case "js": "text/javascript; charset=utf-8"
        case "css": "text/css; charset=utf-8"
        case "svg": "image/svg+xml"
        default: "text/html; charset=utf-8"
        }
    }

    @Test func file_isCompressed_forAClientThatTakesGzip_underATagOfItsOwn() throws {
        try withPausedGateway { gateway in
            let plain = try gateway.client.get("/console/main.js")
            let packed = try gateway.client.ask("GET", "/console/main.js", headers: [("Accept-Encoding", "br, gzip")])
            #expect(packed.header("Content-Encoding") == "gzip" && plain.header("Content-Encoding") == nil)
            #expect(try Gzip.decompress(packed.body, maxBytes: 1 << 20) == plain.body)
            #expect(packed.body.count * 2 < plain.body.count)
            let tags = (try #require(plain.header("ETag")), try #require(packed.header("ETag")))
            #expect(tags.0 != tags.1 && tags.0.hasPrefix("\"") && tags.1.hasPrefix("\""))
        }
    }

    @Test func knownFile_isNotSentAgain() throws {
        try withPausedGateway { gateway in
            for headers in [[], [("Accept-Encoding", "gzip")]] {
                let tag = try #require(try gateway.client.ask("GET", "/console", headers: headers).header("ETag"))
                gateway.client.sendRequest("GET", "/console", headers: headers + [("If-None-Match", tag)])
                let answer = try gateway.client.answer(hasBody: false)
                #expect(answer.status == 304 && answer.header("ETag") == tag)
                #expect(
                    try gateway.client.ask("GET", "/console", headers: headers + [("If-None-Match", "\"x\"")]).status
                        == 200)
            }
            #expect(try gateway.client.ask("HEAD", "/console").status == 200)
        }
    }

    @Test(arguments: [
        "/console/", "/console/index.html", "/console/none.js", "/console/..%2Fmain.js", "/console/../console.c",
        "/console/files/main.js", "/console/%2e%2e/main.js", "/console/main.js/",
    ])
    func otherPath_doesNotExist(path: String) throws {
        try withPausedGateway { try $0.client.get(path).problem(404, "not-found") }
    }

    @Test func otherMethod_isNotAllowed() throws {
        try withPausedGateway { gateway in
            try gateway.client.ask("POST", "/console").problem(405, "method-not-allowed")
        }
    }

    @Test func console_requiresNoKey_whereTheAPIDoes() throws {
        try withPausedGateway { gateway in
            let key = APIKey(name: "ops", sha256: KeyText.digest(of: "k"), scopes: [.read])
            gateway.handler.replaceKeys([key], opensMetrics: false)
            let statuses = try ["/console", "/console/main.js", "/v1/upstreams"].map { path in
                try gateway.client.get(path).status
            }
            #expect(statuses == [200, 200, 401])
        }
    }

    @Test func console_isNotServed_onceItIsSwitchedOff() throws {
        var setup = Setup()
        setup.servesConsole = false
        let gateway = try TestGateway(setup)
        defer { gateway.stop() }
        try gateway.client.get("/console").problem(404, "not-found")
        try gateway.client.get("/console/main.js").problem(404, "not-found")
    }
}
