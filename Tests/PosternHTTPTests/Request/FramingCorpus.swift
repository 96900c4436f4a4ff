import Testing

/// What a server must do with the bytes of a connection (RFC 9112): serve these requests, then refuse or go on.
struct FramingCase: Sendable, CustomTestStringConvertible {
    let name: String
    let bytes: [UInt8]
    /// `METHOD path body`, of all requests that reach the handler.
    let served: [String]
    /// The status of the refusal with which the connection ends; nil if it stays open.
    let refusal: Int?
    var testDescription: String { name }

    /// `text` in ISO 8859-1: one byte for each scalar below U+0100.
    private init(_ name: String, _ text: String, served: [String], refusal: Int?) {
        self.name = name
        bytes = text.unicodeScalars.map { UInt8($0.value) }
        self.served = served
        self.refusal = refusal
    }

    static func served(_ name: String, _ text: String, _ served: String...) -> Self {
        Self(name, text, served: served, refusal: nil)
    }

    static func refused(_ name: String, _ text: String, with status: Int = 400, after served: String...) -> Self {
        Self(name, text, served: served, refusal: status)
    }
}

enum FramingCorpus {
    static let all = served + refused + characters

    private static let get = "GET /a HTTP/1.1\r\nHost: t\r\n"
    private static let post = "POST /a HTTP/1.1\r\nHost: t\r\n"
    private static let chunked = post + "Transfer-Encoding: chunked\r\n\r\n"
    private static func sized(_ length: String, _ body: String) -> String {
        post + "Content-Length:\(length)\r\n\r\n\(body)"
    }
    /// What an attacker would like to have read as a request.
    private static let smuggled = "GET /smuggled HTTP/1.1\r\nHost: t\r\n\r\n"

    // MARK: Legal, though unusual

    private static let served: [FramingCase] = [
        .served("GET", get + "\r\n", "GET /a "),
        .served("an empty line before", "\r\n" + get + "\r\n", "GET /a "),
        .served("three at once", get + "\r\n" + sized(" 2", "xy") + get + "\r\n", "GET /a ", "POST /a xy", "GET /a "),
        .served("an unknown method", "M-SEARCH /a HTTP/1.1\r\nHost: t\r\n\r\n", "M-SEARCH /a "),
        .served("a method in lower case", "get /a HTTP/1.1\r\nHost: t\r\n\r\n", "get /a "),
        .served(
            "every token character as method", "!#$%&'*+-.^_`|~09azAZ /a HTTP/1.1\r\nHost: t\r\n\r\n",
            "!#$%&'*+-.^_`|~09azAZ /a "),
        .served("a later minor version", "GET /a HTTP/1.7\r\nHost: t\r\n\r\n", "GET /a "),
        .served("HTTP/1.0 kept alive", "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "GET /a "),
        .served("a query", "GET /a?b=%20&c HTTP/1.1\r\nHost: t\r\n\r\n", "GET /a "),
        .served("OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: t\r\n\r\n", "OPTIONS * "),
        // Targets in absolute form.
        .served("an absolute target", "GET http://t/a HTTP/1.1\r\nHost: t\r\n\r\n", "GET /a "),
        .served("an absolute target with a port", "GET http://t:80/a HTTP/1.1\r\nHost: t:80\r\n\r\n", "GET /a "),
        .served("an absolute target in other case", "GET HTTP://T/a HTTP/1.1\r\nHost: t\r\n\r\n", "GET /a "),
        .served("an absolute target without a path", "GET http://t HTTP/1.1\r\nHost: t\r\n\r\n", "GET / "),
        .served("an absolute target with a query only", "GET https://t?q HTTP/1.1\r\nHost: t\r\n\r\n", "GET / "),
        .served("a URL inside a path", "GET /x://y HTTP/1.1\r\nHost: t\r\n\r\n", "GET /x://y "),
        // Host.
        .served("Host with a port", "GET /a HTTP/1.1\r\nHost: localhost:8080\r\n\r\n", "GET /a "),
        .served("Host with an empty port", "GET /a HTTP/1.1\r\nHost: localhost:\r\n\r\n", "GET /a "),
        .served("Host as IPv4", "GET /a HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n", "GET /a "),
        .served("Host as IPv6", "GET /a HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", "GET /a "),
        .served("Host as mapped IPv6", "GET /a HTTP/1.1\r\nHost: [::ffff:127.0.0.1]\r\n\r\n", "GET /a "),
        .served("Host with an underscore", "GET /a HTTP/1.1\r\nHost: a_b.c-d\r\n\r\n", "GET /a "),
        .served("an empty Host", "GET /a HTTP/1.1\r\nHost:\r\n\r\n", "GET /a "),
        .served("Host with blanks around", "GET /a HTTP/1.1\r\nHost: \t t \t\r\n\r\n", "GET /a "),
        // Header lines.
        .served("no blank after the colon", get + "X:y\r\n\r\n", "GET /a "),
        .served("an empty value", get + "X:\r\nY: \r\n\r\n", "GET /a "),
        .served("a tab inside a value", get + "X: a\tb\r\n\r\n", "GET /a "),
        .served("obs-text in a value", get + "X: \u{80}\u{FF}\u{E4}\r\n\r\n", "GET /a "),
        .served("every token character in a name", get + "!#$%&'*+-.^_`|~09azAZ: x\r\n\r\n", "GET /a "),
        .served("the same list twice", get + "Accept: a/b\r\nAccept: c/d\r\n\r\n", "GET /a "),
        .served("500 short headers", get + String(repeating: "A: b\r\n", count: 500) + "\r\n", "GET /a "),
        .served("300 cookies", get + "Cookie: " + String(repeating: "a=b; ", count: 300) + "c=d\r\n\r\n", "GET /a "),
        .served(
            "1000 query arguments", "GET /a?" + String(repeating: "a&", count: 1000) + " HTTP/1.1\r\nHost: t\r\n\r\n",
            "GET /a "),
        .served(
            "a long path", "GET /" + String(repeating: "p", count: 15_000) + " HTTP/1.1\r\nHost: t\r\n\r\n",
            "GET /" + String(repeating: "p", count: 15_000) + " "),
        .served("Connection with other options", get + "Connection: keep-alive, x\r\n\r\n", "GET /a "),
        // Content-Length.
        .served("a body", sized(" 5", "hello"), "POST /a hello"),
        .served("an empty body", sized(" 0", ""), "POST /a "),
        .served("a length with zeros before", sized(" 0005", "hello"), "POST /a hello"),
        .served("a length with a blank after", sized(" 5 ", "hello"), "POST /a hello"),
        .served("a length with tabs around", sized("\t5\t", "hello"), "POST /a hello"),
        .served("a length without a blank", sized("5", "hello"), "POST /a hello"),
        .served("a body that looks like a request", sized(" \(smuggled.utf8.count)", smuggled), "POST /a \(smuggled)"),
        .served("a body on GET", get + "Content-Length: 2\r\n\r\nxy", "GET /a xy"),
        // Chunked.
        .served("one chunk", chunked + "5\r\nhello\r\n0\r\n\r\n", "POST /a hello"),
        .served("no chunk", chunked + "0\r\n\r\n", "POST /a "),
        .served("many zeros", chunked + "0000000000000000000005\r\nhello\r\n000\r\n\r\n", "POST /a hello"),
        .served(
            "digits in both cases", chunked + "a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n",
            "POST /a 01234567890123456789"),
        .served("an extension", chunked + "5;x\r\nhello\r\n0\r\n\r\n", "POST /a hello"),
        .served("an extension after a blank", chunked + "5 ;x\r\nhello\r\n0 ; y\r\n\r\n", "POST /a hello"),
        .served("an extension with a value", chunked + "5;x=y\r\nhello\r\n0\r\n\r\n", "POST /a hello"),
        .served("an extension with blanks", chunked + "5 ; x = y ; z\r\nhello\r\n0\r\n\r\n", "POST /a hello"),
        .served("a quoted extension", chunked + "5;x=\"a;\\\"b\"\r\nhello\r\n0;y=\"\"\r\n\r\n", "POST /a hello"),
        .served(
            "the longest line of a size",
            chunked + "5;" + String(repeating: "x", count: 253) + "\r\nhello\r\n0\r\n\r\n",
            "POST /a hello"),
        .served("trailers", chunked + "5\r\nhello\r\n0\r\nA: b\r\nC:d \r\n\r\n", "POST /a hello"),
        .served(
            "a framing field as a trailer", chunked + "5\r\nhello\r\n0\r\nContent-Length: 9\r\n\r\n", "POST /a hello"),
        .served("a coding in other case", post + "Transfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n", "POST /a "),
        .served("a coding with a blank after", post + "Transfer-Encoding: chunked \r\n\r\n0\r\n\r\n", "POST /a "),
        // Expect.
        .served(
            "an expectation without a body", post + "Expect: 100-continue\r\nContent-Length: 0\r\n\r\n", "POST /a "),
        .served("an expectation on GET", get + "Expect: 100-continue\r\n\r\n", "GET /a "),
        .served(
            "an expectation whose body is there", post + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\nxy",
            "POST /a xy"),
        .served("another expectation", post + "Expect: tea\r\nContent-Length: 2\r\n\r\nxy", "POST /a xy"),
    ]

    // MARK: Illegal

    private static let refused: [FramingCase] = [
        // Request lines.
        .refused("no request", "GARBAGE\r\n\r\n"),
        .refused("HTTP/0.9", "GET /a\r\n\r\n"),
        .refused("TLS on a plain port", "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}\u{fc}\u{3}\u{3}"),
        .refused("two empty lines before", "\r\n\r\n" + get + "\r\n"),
        .refused("a bare LF before", "\n" + get + "\r\n"),
        .refused("a blank before the method", " " + get + "\r\n"),
        .refused("no method", " /a HTTP/1.1\r\nHost: t\r\n\r\n"),
        .refused("the end of a body before a method", "\"}" + get + "\r\n"),
        .refused("a request after a short body", sized(" 3", "abc\"}" + smuggled), after: "POST /a abc"),
        .refused("two blanks before the target", "GET  /a HTTP/1.1\r\nHost: t\r\n\r\n"),
        .refused("two blanks before the version", "GET /a  HTTP/1.1\r\nHost: t\r\n\r\n"),
        .refused("a blank after the version", "GET /a HTTP/1.1 \r\nHost: t\r\n\r\n"),
        .refused("a blank in the target", "GET /a b HTTP/1.1\r\nHost: t\r\n\r\n"),
        .refused("no target", "GET HTTP/1.1\r\nHost: t\r\n\r\n"),
        .refused("an empty target", "GET  HTTP/1.1\r\nHost: t\r\n\r\n"),
        .refused("a tab after the method", "GET\t/a HTTP/1.1\r\nHost: t\r\n\r\n"),
        .refused("a relative target", "GET a HTTP/1.1\r\nHost: t\r\n\r\n"),
        .refused("a target of another scheme", "GET ftp://t/a HTTP/1.1\r\nHost: t\r\n\r\n"),
        .refused("a target without a host", "GET http:///a HTTP/1.1\r\nHost: t\r\n\r\n"),
        .refused("an asterisk for GET", "GET * HTTP/1.1\r\nHost: t\r\n\r\n"),
        .refused("an authority for GET", "GET t:80 HTTP/1.1\r\nHost: t\r\n\r\n"),
        .refused("a version in lower case", "GET /a http/1.1\r\nHost: t\r\n\r\n"),
        .refused("a version of one number", "GET /a HTTP/1\r\nHost: t\r\n\r\n"),
        .refused("a version of three numbers", "GET /a HTTP/1.1.1\r\nHost: t\r\n\r\n"),
        .refused("a version with a letter", "GET /a HTTP/1.x\r\nHost: t\r\n\r\n"),
        .refused("a long version", "GET /a HTTP/1.10\r\nHost: t\r\n\r\n"),
        .refused("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", with: 505),
        .refused("HTTP/0.9 by its name", "GET /a HTTP/0.9\r\nHost: t\r\n\r\n", with: 505),
        .refused("HTTP/3", "GET /a HTTP/3.0\r\nHost: t\r\n\r\n", with: 505),
        .refused("an endless request line", "GET /" + String(repeating: "a", count: 17_000), with: 431),
        // Ends of lines.
        .refused("a bare LF after the request line", "GET /a HTTP/1.1\nHost: t\r\n\r\n"),
        .refused("a bare LF after a header", "GET /a HTTP/1.1\r\nHost: t\n\r\n"),
        .refused("a bare LF at the end of the head", "GET /a HTTP/1.1\r\nHost: t\r\n\n"),
        .refused("bare LFs only", "GET /a HTTP/1.1\nHost: t\n\n"),
        .refused("CR CR LF", "GET /a HTTP/1.1\r\nHost: t\r\r\n\r\n"),
        .refused("a bare CR as an end", get + "X: y\rZ: 1\r\n\r\n"),
        .refused("a NUL before an LF", get + "X: y\u{0}\n\r\n"),
        // Folding.
        .refused("a folded value", get + "X: y\r\n z\r\n\r\n"),
        .refused("a value folded by a tab", get + "X: y\r\n\tz\r\n\r\n"),
        .refused(
            "a folded coding", post + "Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + smuggled),
        .refused("a folded length", post + "Content-Length:\r\n 40\r\n\r\n" + smuggled),
        .refused("a fold after the request line", "GET /a HTTP/1.1\r\n Host: t\r\nHost: t\r\n\r\n"),
        .refused("an empty fold", get + "X: y\r\n \r\n\r\n" + smuggled),
        // Names.
        .refused("no name", get + ": x\r\n\r\n" + smuggled),
        .refused("no name, then a length", post + ": x\r\nContent-Length: \(smuggled.utf8.count)\r\n\r\n" + smuggled),
        .refused("no colon", get + "X\r\n\r\n"),
        .refused(
            "a line that begins with NUL",
            post + "\u{0}X: y\r\nContent-Length: \(smuggled.utf8.count)\r\n\r\n" + smuggled),
        .refused("a line of one NUL", post + "\u{0}\r\nContent-Length: \(smuggled.utf8.count)\r\n\r\n" + smuggled),
        .refused("a blank before the colon", post + "Content-Length : 5\r\n\r\nhello"),
        .refused("a tab before the colon", post + "Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n"),
        // Host.
        .refused("no Host", "GET /a HTTP/1.1\r\n\r\n"),
        .refused("Host twice", "GET /a HTTP/1.1\r\nHost: t\r\nHost: t\r\n\r\n"),
        .refused("Host and another", "GET /a HTTP/1.1\r\nHost: t\r\nhost: u\r\n\r\n"),
        .refused("a list of hosts", "GET /a HTTP/1.1\r\nHost: localhost, evil\r\n\r\n"),
        .refused("a list of hosts without a blank", "GET /a HTTP/1.1\r\nHost: localhost,evil\r\n\r\n"),
        .refused("two words as Host", "GET /a HTTP/1.1\r\nHost: a b\r\n\r\n"),
        .refused("a URL as Host", "GET /a HTTP/1.1\r\nHost: http://localhost\r\n\r\n"),
        .refused("a path in Host", "GET /a HTTP/1.1\r\nHost: localhost/a\r\n\r\n"),
        .refused("a user in Host", "GET /a HTTP/1.1\r\nHost: u@localhost\r\n\r\n"),
        .refused("a port that is not a number", "GET /a HTTP/1.1\r\nHost: localhost:x\r\n\r\n"),
        .refused("a port of six digits", "GET /a HTTP/1.1\r\nHost: localhost:123456\r\n\r\n"),
        .refused("a port without a host", "GET /a HTTP/1.1\r\nHost: :80\r\n\r\n"),
        .refused("two ports", "GET /a HTTP/1.1\r\nHost: t:1:2\r\n\r\n"),
        .refused("an open bracket", "GET /a HTTP/1.1\r\nHost: [::1\r\n\r\n"),
        .refused("empty brackets", "GET /a HTTP/1.1\r\nHost: []\r\n\r\n"),
        .refused("a name in brackets", "GET /a HTTP/1.1\r\nHost: [host]\r\n\r\n"),
        .refused("text after brackets", "GET /a HTTP/1.1\r\nHost: [::1]x\r\n\r\n"),
        .refused("obs-text in Host", "GET /a HTTP/1.1\r\nHost: \u{fc}\r\n\r\n"),
        .refused("a bad Host in HTTP/1.0", "GET /a HTTP/1.0\r\nHost: a b\r\n\r\n"),
        .refused("a target of another host", "GET http://u/a HTTP/1.1\r\nHost: t\r\n\r\n"),
        .refused("a target of another port", "GET http://t:81/a HTTP/1.1\r\nHost: t\r\n\r\n"),
        .refused("a target with a user", "GET http://u@t/a HTTP/1.1\r\nHost: t\r\n\r\n"),
        // Content-Length.
        .refused("a length with a plus", sized(" +46", smuggled)),
        .refused("a length with a minus", sized(" -1", smuggled)),
        .refused("an empty length", sized("", smuggled)),
        .refused("a blank length", sized(" ", smuggled)),
        .refused("a hexadecimal length", sized(" 0x5", "hello")),
        .refused("a length with a letter", sized(" 5a", "hello")),
        .refused("a length with a fraction", sized(" 5.0", "hello")),
        .refused("a length with an exponent", sized(" 5e0", "hello")),
        .refused("a length with a separator", sized(" 1_0", "hello")),
        .refused("a length with a blank inside", sized(" 1 0", "hello")),
        .refused("a quoted length", sized(" \"5\"", "hello")),
        .refused("a list of lengths", sized(" 5, 5", "hello")),
        .refused("a list of other lengths", sized(" 5, 6", "hello")),
        .refused("a length with a comma", sized(" 5,", "hello")),
        .refused("a length in other digits", sized(" \u{b2}", "hello")),
        .refused("a length of 20 digits", sized(" 99999999999999999999", "hello")),
        .refused("a length of 300 digits", sized(" " + String(repeating: "9", count: 300), "hello")),
        .refused("the same length twice", sized(" 5\r\nContent-Length: 5", "hello")),
        .refused("two lengths", sized(" 5\r\nContent-Length: 6", "hello")),
        .refused("two lengths in other case", sized(" 5\r\ncontent-length: 6", "hello")),
        .refused("too large a body", sized(" 2000000", "hello"), with: 413),
        // Both framings.
        .refused(
            "a length and a coding",
            post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled),
        .refused(
            "a coding and a length",
            post + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + smuggled),
        .refused(
            "a coding and a length of zero", post + "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n"),
        // Transfer-Encoding.
        .refused("a coding twice", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        .refused("two codings", post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        .refused("a coding after chunked", post + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
        .refused("identity", post + "Transfer-Encoding: identity\r\n\r\n"),
        .refused("an unknown coding", post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
        .refused("a quoted coding", post + "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"),
        .refused("an empty coding", post + "Transfer-Encoding:\r\n\r\n0\r\n\r\n"),
        .refused("a coding with a comma", post + "Transfer-Encoding: chunked,\r\n\r\n0\r\n\r\n"),
        .refused("a coding with a parameter", post + "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n"),
        .refused("a coding with a vertical tab", post + "Transfer-Encoding: \u{b}chunked\r\n\r\n0\r\n\r\n"),
        .refused("a coding in HTTP/1.0", "POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        // Sizes of chunks.
        .refused("an empty size", chunked + "\r\nhello\r\n0\r\n\r\n"),
        .refused("a size with a prefix", chunked + "0x5\r\nhello\r\n0\r\n\r\n"),
        .refused("a size with a plus", chunked + "+5\r\nhello\r\n0\r\n\r\n"),
        .refused("a size with a minus", chunked + "-5\r\nhello\r\n0\r\n\r\n"),
        .refused("a size that is a word", chunked + "five\r\nhello\r\n0\r\n\r\n"),
        .refused("a blank before a size", chunked + " 5\r\nhello\r\n0\r\n\r\n"),
        .refused("a blank after a size", chunked + "5 \r\nhello\r\n0\r\n\r\n"),
        .refused("a comma after a size", chunked + "5,\r\nhello\r\n0\r\n\r\n"),
        .refused("a NUL after a size", chunked + "5\u{0}\r\nhello\r\n0\r\n\r\n"),
        .refused("a size of 64 bits and more", chunked + "10000000000000005\r\nhello\r\n0\r\n\r\n"),
        .refused("the largest size", chunked + "ffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
        .refused("21 000 zeros", chunked + String(repeating: "0", count: 21_000)),
        .refused(
            "21 000 zeros and a size", chunked + String(repeating: "0", count: 21_000) + "5\r\nhello\r\n0\r\n\r\n"),
        .refused("a chunk longer than the body may be", chunked + "100001\r\n", with: 413),
        .refused("chunks longer than the body may be", chunked + "1\r\nx\r\n100000\r\n", with: 413),
        // Ends of lines in chunks.
        .refused("a bare LF after a size", chunked + "5\nhello\r\n0\r\n\r\n"),
        .refused("a bare CR after a size", chunked + "5\rhello\r\n0\r\n\r\n"),
        .refused("a bare LF after the data", chunked + "5\r\nhello\n0\r\n\r\n"),
        .refused("a bare CR after the data", chunked + "5\r\nhello\r0\r\n\r\n"),
        .refused("nothing after the data", chunked + "5\r\nhello0\r\n\r\n"),
        .refused("more data than the size says", chunked + "5\r\nhello!\r\n0\r\n\r\n"),
        .refused("two bytes more", chunked + "5\r\nhello!!0\r\n\r\n"),
        .refused("less data than the size says", chunked + "6\r\nhello\r\n0\r\n\r\n"),
        .refused("a bare LF after the last size", chunked + "0\n\r\n"),
        .refused("a bare LF at the end", chunked + "0\r\n\n"),
        .refused("bare LFs only, chunked", chunked + "5\nhello\n0\n\n"),
        // Extensions.
        .refused("an empty extension", chunked + "5;\r\nhello\r\n0\r\n\r\n"),
        .refused("an extension without a name", chunked + "5;=y\r\nhello\r\n0\r\n\r\n"),
        .refused("an extension without a value", chunked + "5;x=\r\nhello\r\n0\r\n\r\n"),
        .refused("an extension with a NUL", chunked + "5;\u{0}\r\nhello\r\n0\r\n\r\n"),
        .refused("an extension with a bare CR", chunked + "5;x\ry\r\nhello\r\n0\r\n\r\n"),
        .refused("an extension with a bare LF", chunked + "5;x\nhello\r\n0\r\n\r\n"),
        .refused("an open quotation", chunked + "5;x=\"y\r\nhello\r\n0\r\n\r\n"),
        .refused("text after a quotation", chunked + "5;x=\"y\"z\r\nhello\r\n0\r\n\r\n"),
        .refused(
            "an extension that is too long",
            chunked + "5;" + String(repeating: "x", count: 254) + "\r\nhello\r\n0\r\n\r\n"),
        .refused("an extension of 70 KB", chunked + "5;" + String(repeating: "x", count: 70_000)),
        // Trailers.
        .refused("a trailer without a name", chunked + "0\r\n: x\r\n\r\n"),
        .refused("a trailer without a colon", chunked + "0\r\nX\r\n\r\n"),
        .refused("a trailer with a NUL", chunked + "0\r\nX: \u{0}\r\n\r\n"),
        .refused("a folded trailer", chunked + "0\r\nX: y\r\n z\r\n\r\n"),
        .refused("a trailer that begins with a blank", chunked + "0\r\n X: y\r\n\r\n"),
        .refused("a trailer with a bare CR", chunked + "0\r\nX: y\rz\r\n\r\n"),
        .refused("a trailer with a bare LF", chunked + "0\r\nX: y\n\r\n"),
        .refused("a blank before a trailer's colon", chunked + "0\r\nX : y\r\n\r\n"),
        .refused("a request as a trailer", chunked + "0\r\n" + smuggled),
        .refused("endless trailers", chunked + "0\r\n" + String(repeating: "A: b\r\n", count: 3000), with: 431),
        .refused("an endless trailer", chunked + "0\r\nA: " + String(repeating: "b", count: 17_000), with: 431),
        // Fields that are no lists.
        .refused("Content-Type twice", post + "Content-Type: a/b\r\nContent-Type: a/b\r\n\r\n"),
        .refused("Authorization twice", get + "Authorization: Bearer x\r\nauthorization: Bearer y\r\n\r\n"),
        .refused("Idempotency-Key twice", get + "Idempotency-Key: x\r\nIdempotency-Key: x\r\n\r\n"),
        .refused("Origin twice", get + "Origin: null\r\nOrigin: null\r\n\r\n"),
        .refused("Postern-Session twice", get + "Postern-Session: a\r\nPostern-Session: b\r\n\r\n"),
        // Sizes.
        .refused("a long header", get + "X: " + String(repeating: "x", count: 17_000) + "\r\n\r\n", with: 431),
        .refused("an endless header", get + "X: " + String(repeating: "x", count: 40_000), with: 431),
        .refused("4000 short headers", get + String(repeating: "A: b\r\n", count: 4000) + "\r\n", with: 431),
    ]

    // MARK: Every character in every place

    private static let characters: [FramingCase] = {
        let controls = (0...31).filter { ![9, 10, 13].contains($0) } + [127]
        func cases(_ location: String, _ codes: [Int], _ text: (String) -> String) -> [FramingCase] {
            codes.map { code in
                .refused(
                    "U+\(String(code, radix: 16)) in a \(location)",
                    text(String(Unicode.Scalar(UInt8(code)))) + smuggled)
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
