import Crypto
import PosternCore
import PosternHTTP
import PosternStore
import Synchronization

/// The `Idempotency-Key` header (draft-ietf-httpapi-idempotency-key-header-07).
///
/// The response to the first request under a key is stored in the transaction that stores its messages. A repeat gets it
/// again, byte for byte, also after the process was killed. While the first request runs at the same gateway, a
/// repeat is rejected; at another one of the same store, it waits for the commit. Each API key has keys of its own; without
/// API keys, there is one common set.
struct IdempotencyKey: Equatable {
    private static let lengths = 1...255

    let text: String

    /// - Parameter header: A string in quotation marks, as the draft requires, or the same characters without them.
    init(_ header: String) throws(Problem) {
        guard let text = header.hasPrefix("\"") ? Self.unquoted(header) : header,
            text.utf8.allSatisfy({ (0x20...0x7E).contains($0) }), Self.lengths.contains(text.utf8.count)
        else {
            throw Problem(
                slug: .badRequest, status: 400,
                detail:
                    "The header Idempotency-Key must be a string of 1 to 255 printable ASCII characters; nothing was "
                    + "stored.")
        }
        self.text = text
    }

    /// The content of a string (RFC 8941, section 3.3.3); nil if it is not valid.
    private static func unquoted(_ header: String) -> String? {
        var text: [UInt8] = []
        var bytes = header.utf8.dropFirst()
        while let byte = bytes.popFirst() {
            switch byte {
            case UInt8(ascii: "\""): return bytes.isEmpty ? String(decoding: text, as: UTF8.self) : nil
            case UInt8(ascii: "\\"):
                guard let escaped = bytes.popFirst(), escaped == UInt8(ascii: "\"") || escaped == byte else {
                    return nil
                }
                text.append(escaped)
            default: text.append(byte)
            }
        }
        return nil
    }
}

/// SHA-256 of texts without NUL, and of what follows them.
func sha256(_ texts: [String], _ rest: some Sequence<UInt8>) -> [UInt8] {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(texts.reduce(rest.underestimatedCount) { $0 + $1.utf8.count + 1 })
    for text in texts {
        bytes += text.utf8
        bytes.append(0)
    }
    bytes += rest
    return Array(SHA256.hash(data: bytes))
}

/// The requests with an `Idempotency-Key` that have no response yet. Any thread.
final class IdempotentRequests: Sendable {
    private let running = Mutex<Set<[UInt8]>>([])

    /// Throws a 409 if another request with the key is running.
    func begin(_ request: APIRequest, _ header: String, body: [UInt8]) throws(Problem) -> IdempotentRequest {
        let key = try IdempotencyKey(header)
        let idempotent = IdempotentRequest(request, key, body, of: self)
        guard running.withLock({ $0.insert(idempotent.key).inserted }) else {
            throw Problem(
                slug: .conflict, status: 409,
                detail: "Another request with the same Idempotency-Key is running. Repeat this one when it has ended.",
                headers: [("Retry-After", "1")])
        }
        return idempotent
    }

    fileprivate func end(_ key: [UInt8]) { running.withLock { _ = $0.remove(key) } }
}

/// A request with an `Idempotency-Key`, from its admission until `end`.
final class IdempotentRequest: Sendable {
    /// SHA-256 of the caller's API key's name and the `Idempotency-Key`.
    let key: [UInt8]
    /// SHA-256 of everything that a repeat has in common with the first request.
    private let fingerprint: [UInt8]
    private let requests: IdempotentRequests

    fileprivate init(
        _ request: APIRequest, _ key: IdempotencyKey, _ body: [UInt8], of requests: IdempotentRequests
    ) {
        self.key = sha256([request.caller?.key.name ?? ""], Array(key.text.utf8))
        let isBinaryEvent = request.match.route.body == .events && CloudEventMode(request.head) == .binary
        // The same text may be one payload, which is a list, or several.
        let form = request.form == .lines ? ["lines"] : []
        fingerprint = sha256(
            [request.head.method, request.head.path, request.head.query?.text ?? ""] + form,
            isBinaryEvent ? CloudEventAttributes.text(of: request.head) + body : body)
        self.requests = requests
    }

    /// The response of the first request; nil if this is the first. Throws a 422 if the first was a different request.
    func response(in outbox: Outbox) throws(Problem) -> HTTPResponse? {
        let stored: StoredResponse?
        do throws(StoreError) { stored = try outbox.storedResponse(key) } catch { throw Problem(error) }
        guard let stored else { return nil }
        guard let response = replay(of: stored) else { throw .reusedKey }
        return response
    }

    /// The response that was stored; nil if it is that to a different request.
    func replay(of stored: StoredResponse) -> HTTPResponse? {
        guard stored.fingerprint == fingerprint else { return nil }
        var response = HTTPResponse(stored: stored.bytes)
        response?.headers.append(("Idempotent-Replay", "true"))
        return response
    }

    func record(_ response: @escaping @Sendable (AppendReceipt) -> HTTPResponse) -> ResponseRecord {
        ResponseRecord(key: key, fingerprint: fingerprint) { response($0).stored }
    }

    /// Replaces the response that was stored with the messages. Only a success is stored.
    func replace(with response: HTTPResponse, in outbox: Outbox, completion: @escaping @Sendable () -> Void) {
        // If that fails, a repeat gets the 202, which is true as well.
        outbox.replaceResponse(key, with: response.status < 300 ? response.stored : nil) { _ in completion() }
    }

    /// The response is about to be sent: from now on a repeat finds what was stored.
    func end() { requests.end(key) }
}

extension Problem {
    static var reusedKey: Problem {
        Problem(
            slug: .idempotencyMismatch, status: 422,
            detail: "The Idempotency-Key was used for another request; nothing was stored. Use a new key for each "
                + "request, and the same one only to repeat it.")
    }
}

extension HTTPResponse {
    /// Status, headers, and body as they are stored: lines up to an empty one, then the body.
    var stored: [UInt8] {
        let lines = ["\(status)"] + headers.map { "\($0.name): \($0.value)" }
        return Array((lines.joined(separator: "\n") + "\n\n").utf8) + body
    }

    init?(stored: [UInt8]) {
        guard let end = stored.indices.dropLast().first(where: { stored[$0] == 10 && stored[$0 + 1] == 10 }) else {
            return nil
        }
        let lines = String(decoding: stored[..<end], as: UTF8.self).split(separator: "\n")
        guard let status = lines.first.flatMap({ Int($0) }) else { return nil }
        let headers = lines.dropFirst().compactMap { line in
            line.firstRange(of: ": ").map {
                (name: String(line[..<$0.lowerBound]), value: String(line[$0.upperBound...]))
            }
        }
        self.init(status: status, headers: headers, body: Array(stored[(end + 2)...]))
    }
}
