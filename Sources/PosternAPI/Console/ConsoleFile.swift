import CConsole
import PosternCompression
import PosternCore

/// A file of the operator's console, as it is sent.
struct ConsoleFile: Sendable {
    /// What follows `/console/`; empty for the page itself.
    let path: String
    let mediaType: String
    let plain: Form
    let compressed: Form

    /// The bytes of a response, and their strong entity tag (RFC 9110, section 8.8.3): each encoding has its own.
    struct Form: Sendable {
        let body: [UInt8]
        let tag: String
    }

    private init(_ file: postern_console_file) {
        let body = Array(UnsafeBufferPointer(start: file.bytes, count: file.count))
        let digest = sha256([], body).prefix(16).hexadecimal
        path = String(cString: file.path)
        mediaType = String(cString: file.type)
        plain = Form(body: body, tag: "\"\(digest)\"")
        compressed = Form(body: Gzip.compress(body, level: 9), tag: "\"\(digest)-gzip\"")
    }

    /// By path. Compressed at the first request for one of them, and kept.
    static let all: [String: ConsoleFile] = {
        var count = 0
        let first = postern_console_files(&count)
        let files = UnsafeBufferPointer(start: first, count: count).map(ConsoleFile.init)
        return Dictionary(uniqueKeysWithValues: files.map { ($0.path, $0) })
    }()
}
