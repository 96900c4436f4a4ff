import PosternHTTP

/// Serves the files of the operator's console. They have no data, so they require no key.
struct ConsoleHandler: Sendable {
    func serve(_ file: ConsoleFile, _ responder: MeteredResponder) {
        let isCompressed = asks(for: "gzip", responder.head.header("Accept-Encoding"))
        let form = isCompressed ? file.compressed : file.plain
        let isKnown = EntityTag.list(responder.head.header("If-None-Match"), contains: form.tag)
        // With 304, only the length of the body is sent.
        responder.send(
            HTTPResponse(
                status: isKnown ? 304 : 200,
                headers: [
                    ("Content-Type", file.mediaType), ("Content-Encoding", isCompressed ? "gzip" : ""),
                    ("Vary", "Accept-Encoding"), ("ETag", form.tag), ("Cache-Control", "no-cache"),
                    ("Content-Security-Policy", Self.policy), ("Referrer-Policy", "no-referrer"),
                    ("Cross-Origin-Opener-Policy", "same-origin"),
                ], body: form.body))
    }

    /// Nothing but the gateway's own files and API, no markup from text, no frame around the page.
    static let policy =
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        + "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        + "trusted-types 'none'"
}
