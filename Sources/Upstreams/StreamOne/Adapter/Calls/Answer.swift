import Foundation
import PosternCore
import PosternJSON

/// An answer of the platform's that may be used (the specification's 7.1 and 7.2).
struct Answer: Sendable, Equatable {
    let status: Status
    /// For people.
    let message: String
    /// Success, and the platform lets it be kept (7.3).
    let isCacheable: Bool
    /// What the session has left, in seconds, and where in `bytes` that number is.
    let sessionTimeout: (seconds: Int64, place: Range<Int>)?
    /// As it came.
    let bytes: [UInt8]

    /// Nil if the body is not a valid answer.
    init?(_ body: [UInt8]) {
        guard let header = Self.header(of: body) else { return nil }
        status = Status(header.status)
        message = header.message
        isCacheable = header.status == 0 && header.isCacheable
        sessionTimeout = header.sessionTimeout
        bytes = body
    }

    /// Of a larger answer only the header is taken apart, so that its body costs no more memory than its text.
    private static let largestReadWhole = 1 << 20

    private static func header(of body: [UInt8]) -> Header? {
        guard body.count <= largestReadWhole else { return headerAlone(of: body) }
        return switch JSONParser.ofThisThread.parse(body, { Header($0) }) {
        case .success(let header): header
        // The SDKs take what this parser is too strict for: a name twice, deep nesting. What the platform did must not be
        // done again for that.
        case .failure(let fault) where fault.reason == .duplicate || fault.reason == .depth: Header(reading: body)
        case .failure: nil
        }
    }

    private static func headerAlone(of body: [UInt8]) -> Header? {
        guard let found = JSONOutline(body, finding: "header", "body"), let place = found.values[0],
            found.values[1] != nil, place.count <= largestReadWhole
        else { return nil }
        let text = Array(body[place])
        let header = try? JSONParser.ofThisThread.parse(text) { Header(header: $0, at: place.lowerBound) }.get()
        return header ?? nil
    }

    /// Nil unless a 2xx carries a valid answer; anything else is a transport fault.
    init?(_ response: UpstreamResponse) {
        guard (200...299).contains(response.status) else { return nil }
        self.init(response.body)
    }

    var isSuccess: Bool { status.number == 0 }

    /// For people, and for what is kept with a dead letter.
    var summary: String { "status \(status.number) \(status.name): \(message)" }

    /// The bytes with what a session has left now instead of what it had then.
    func bytes(sessionTimeout seconds: Int64) -> [UInt8] {
        guard let place = sessionTimeout?.place else { return bytes }
        return bytes[..<place.lowerBound] + Array(String(seconds).utf8) + bytes[place.upperBound...]
    }

    /// What `body` makes of the answer's `body` member; nil for an answer that is too large to be what is asked for.
    func withBody<R>(_ body: (JSONValue) -> R?) -> R? {
        guard bytes.count <= Self.largestReadWhole else { return nil }
        let read = JSONParser.ofThisThread.parse(bytes) { $0["body"].flatMap(body) }
        return (try? read.get()) ?? nil
    }

    static func == (left: Self, right: Self) -> Bool { left.bytes == right.bytes }

    private struct Header {
        let status: Int
        let message: String
        let isCacheable: Bool
        let sessionTimeout: (seconds: Int64, place: Range<Int>)?

        init?(_ answer: JSONValue) {
            guard answer.kind == .object, answer["body"] != nil, let header = answer["header"] else { return nil }
            self.init(header: header, at: 0)
        }

        /// - Parameter start: Where the text that was parsed begins in the answer.
        init?(header: JSONValue, at start: Int) {
            guard header.kind == .object, let status = header["status"]?.integer, let message = header["statusmessage"],
                message.kind == .string
            else { return nil }
            self.status = Int(status)
            self.message = message.string ?? ""
            isCacheable = header["cacheable"]?.kind == .true
            sessionTimeout = header["sessiontimeout"].flatMap { value in
                value.integer.flatMap { seconds in
                    let place = value.range.lowerBound + start..<value.range.upperBound + start
                    return seconds >= 0 ? (seconds, place) : nil
                }
            }
        }

        /// Reads as the SDKs' languages do. Nothing of it is kept, nor a session moved by it.
        init?(reading body: [UInt8]) {
            guard let answer = try? JSONSerialization.jsonObject(with: Data(body)) as? [String: Any],
                answer["body"] != nil, let header = answer["header"] as? [String: Any],
                let status = header["status"] as? Int, let message = header["statusmessage"] as? String
            else { return nil }
            self.status = status
            self.message = message
            isCacheable = false
            sessionTimeout = nil
        }
    }
}
