import Crypto
import Foundation
import PosternCore
import PosternUpstream

/// Consecutive lines of an export, as one request to a gateway.
struct ImportRequest {
    /// The numbers of the lines, from 1.
    private(set) var lines: [Int] = []
    /// Envelopes, one a line.
    private(set) var body: [UInt8] = []

    static let maxMessages = 500
    static let maxBytes = 1 << 20

    var isEmpty: Bool { lines.isEmpty }

    /// Whether another envelope of that size belongs to the next request. The same file is always divided in the same
    /// way, because a request is recognized by its content.
    func isFull(before bytes: Int) -> Bool {
        lines.count >= Self.maxMessages || !lines.isEmpty && body.count + bytes > Self.maxBytes
    }

    mutating func add(_ envelope: [UInt8], of line: Int) {
        lines.append(line)
        body += envelope
        body.append(UInt8(ascii: "\n"))
    }

    /// Each message as a request of its own.
    var single: [ImportRequest] {
        zip(lines, body.split(separator: UInt8(ascii: "\n"))).map { line, envelope in
            var request = ImportRequest()
            request.add(Array(envelope), of: line)
            return request
        }
    }

    /// A repeated request has the same key, so that its messages are not stored again. The number of the line tells
    /// requests apart whose messages are the same.
    var idempotencyKey: String {
        var hash = SHA256()
        hash.update(data: body)
        return "postern-import-\(lines.first ?? 0)-\(Array(hash.finalize().prefix(16)).hexadecimal)"
    }
}

/// A line of an export.
enum ImportLine: Equatable {
    /// What is posted: `{"upstream","kind","payload","key"?,"notBefore"?,"expiresAt"?,"via"?}`.
    case envelope([UInt8])
    /// A message in another state, or one whose payload is not kept.
    case skipped
    /// Why it is not the line of an export.
    case invalid(String)

    /// - Parameter state: The state of the messages that are imported. A line without a state is imported in any case.
    init(_ line: [UInt8], state: MessageState) {
        let result = JSONParser.ofThisThread.parse(line) { Self($0, state: state) }
        switch result {
        case .success(let line): self = line
        case .failure(let error): self = .invalid("it is not valid JSON: \(error)")
        }
    }

    private init(_ root: JSONValue, state: MessageState) {
        guard root.kind == .object else {
            self = .invalid("it is not a JSON object")
            return
        }
        if let found = root["state"]?.string, found != state.name {
            self = .skipped
            return
        }
        guard let payload = root["payload"], payload.kind != .null else {
            self = root["id"] == nil ? .invalid("it has no payload") : .skipped
            return
        }
        guard let bytes = Self.bytes(of: payload, in: root) else {
            self = .invalid("its payloadBase64 is not the JSON text of a payload")
            return
        }
        var text: [UInt8] = []
        for name in ["upstream", "kind", "key", "notBefore", "expiresAt", "via"] {
            guard let value = root[named: name], value.kind != .null else { continue }
            text += Array("\(text.isEmpty ? "{" : ",")\"\(name)\":".utf8) + value.bytes
        }
        self = .envelope(text + Array("\(text.isEmpty ? "{" : ",")\"payload\":".utf8) + bytes + [UInt8(ascii: "}")])
    }

    /// As they were exported: in `payload` itself some characters may be escaped that were not.
    private static func bytes(of payload: JSONValue, in root: JSONValue) -> [UInt8]? {
        guard let exact = root["payloadBase64"] else { return Array(payload.bytes) }
        guard let text = exact.string, let data = Data(base64Encoded: text), !data.contains(UInt8(ascii: "\n")) else {
            return nil
        }
        // The parser of this thread is reading the line.
        let parsed = JSONParser().parse(Array(data)) { _ in true }
        if case .success = parsed { return Array(data) }
        return nil
    }
}
