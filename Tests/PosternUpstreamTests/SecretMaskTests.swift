import Foundation
import PosternCore
import PosternUpstream
import Testing

@Suite struct SecretMaskTests {
    private let mask = SecretMask(["p+q/r \"s\" ö", "Bearer abc-token-1", "Basic dXNlcjpodW50ZXIyLXh5"])

    @Test(arguments: [
        #"said p+q/r "s" ö."#, #"{"said":"p+q/r \"s\" ö"}"#, #"{"said":"p+q\/r \"s\" ö"}"#,
        "key=p%2Bq%2Fr%20%22s%22%20%C3%B6", "key=p%2bq%2fr+%22s%22+%c3%b6",
        "Authorization: Bearer abc-token-1", "the token abc-token-1 is stale", "hunter2-xy is wrong",
        "user:hunter2-xy", "Basic dXNlcjpodW50ZXIyLXh5", "abc%2Dtoken-1 abc-token-1",
    ])
    func secret_isMasked_inEverySpelling(text: String) {
        let masked = mask.masked(text)
        #expect(masked.contains("***"))
        for part in ["p+q", "p%2", "abc-token", "hunter2", "dXNlcjpodW50", "%C3%B6", "%c3%b6"] {
            #expect(!masked.contains(part), "\(masked)")
        }
    }

    @Test(arguments: 0..<6)
    func secret_isMasked_insideBase64_atAnyOffset(offset: Int) throws {
        let secret = "s3cr3t-of-the-app"
        let text = Data((String(repeating: "x", count: offset) + secret + ":tail").utf8).base64EncodedString()
        let masked = SecretMask([secret]).masked("echo \(text)")
        let core = Data(secret.utf8.dropFirst(3).prefix(9)).base64EncodedString()
        #expect(masked.contains("***"))
        #expect(!masked.contains(core))
        #expect(masked.utf8.count < text.utf8.count - 10)
    }

    /// A body is read to a limit, and that may end within a secret.
    @Test func secret_isMasked_whereTheTextIsCutWithinIt() {
        let mask = SecretMask(["s3cr3t-of-the-app"])
        #expect(mask.excerpt("refused: s3cr3t-of") == "refused: ***")
        #expect(mask.excerpt("refused: %733cr") == "refused: ***")
        #expect(mask.excerpt("refused: s3c") == "refused: s3c")
        let long = mask.excerpt(String(repeating: "x", count: 399) + "s3cr3t-of-the-app and more")
        #expect(long == String(repeating: "x", count: 399) + "*…")
    }

    @Test func otherText_staysAsItIs() {
        #expect(mask.masked("HTTP 503: out of memory") == "HTTP 503: out of memory")
        #expect(SecretMask([String]()).masked("abc") == "abc")
        #expect(SecretMask([""]).masked("abc") == "abc")
    }

    /// Otherwise a secret of one letter would mask that letter everywhere.
    @Test func shortSecret_isNotMasked() {
        #expect(SecretMask(["e", "12345", "ééééé"]).masked("12345 seems ééééé") == "12345 seems ééééé")
        #expect(SecretMask(["Bearer a", "Basic dTpw"]).masked("a Bearer a, a Basic dTpw, u:p") == "a ***, a ***, u:p")
        #expect(SecretMask(["123456"]).masked("123456") == "***")
    }

    @Test func longerSecret_isMaskedWhole_whenAShorterOneIsPartOfIt() {
        #expect(SecretMask(["the-key", "the-key-and-more"]).masked("a the-key-and-more, a the-key") == "a ***, a ***")
    }
}
