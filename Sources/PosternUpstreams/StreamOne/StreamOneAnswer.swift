import Foundation
import PosternCore
import PosternJSON

/// An answer of the platform's that may be used (the specification's 7.1 and 7.2).
struct StreamOneAnswer: Sendable, Equatable {
    let status: StreamOneStatus
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
        status = StreamOneStatus(header.status)
        message = header.message
        isCacheable = header.status == 0 && header.isCacheable
        sessionTimeout = header.sessionTimeout
        bytes = body
    }

    private static func header(of body: [UInt8]) -> Header? {
        switch JSONParser.ofThisThread.parse(body, { Header($0) }) {
        case .success(let header): header
        // The SDKs take what this parser is too strict for: a name twice, deep nesting. What the platform did must not be
        // done again for that.
        case .failure(let fault) where fault.reason == .duplicate || fault.reason == .depth: Header(reading: body)
        case .failure: nil
        }
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

    /// Gives `body` the answer's `body` member.
    func withBody<R>(_ body: (JSONValue) -> R) -> R? {
        let read = JSONParser.ofThisThread.parse(bytes) { $0["body"].map(body) }
        return (try? read.get()) ?? nil
    }

    static func == (left: Self, right: Self) -> Bool { left.bytes == right.bytes }

    private struct Header {
        let status: Int
        let message: String
        let isCacheable: Bool
        let sessionTimeout: (seconds: Int64, place: Range<Int>)?

        init?(_ answer: JSONValue) {
            guard answer.kind == .object, answer["body"] != nil, let header = answer["header"], header.kind == .object,
                let status = header["status"]?.integer, let message = header["statusmessage"], message.kind == .string
            else { return nil }
            self.status = Int(status)
            self.message = message.string ?? ""
            isCacheable = header["cacheable"]?.kind == .true
            sessionTimeout = header["sessiontimeout"].flatMap { value in
                value.integer.flatMap { $0 >= 0 ? ($0, value.range) : nil }
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
