import Foundation
import PosternCore
package import PosternUpstream

/// A valid response of the platform (the specification's 7.1 and 7.2).
package struct Answer: Sendable, Equatable {
    package let status: Status
    /// For people.
    let message: String
    /// Whether it is a success that the platform allows to be cached (7.3).
    let isCacheable: Bool
    /// The remaining time of the session, in seconds, and the position of that number in `bytes`.
    let sessionTimeout: (seconds: Int64, range: Range<Int>)?
    /// As it was received.
    package let bytes: [UInt8]

    /// Nil if the body is not a valid response.
    init?(_ body: [UInt8]) {
        guard let header = Self.header(of: body) else { return nil }
        status = Status(header.status)
        message = header.message
        isCacheable = header.status == 0 && header.isCacheable
        sessionTimeout = header.sessionTimeout
        bytes = body
    }

    private static func header(of body: [UInt8]) -> Header? {
        switch JSONParser.ofThisThread.parse(body, { Header($0) }) {
        case .success(let header): header
        // The SDKs accept what this parser rejects: repeated names, deep nesting. A call that the platform has carried
        // out must not be repeated for that reason.
        case .failure(let fault) where fault.reason == .duplicate || fault.reason == .depth: Header(reading: body)
        case .failure: nil
        }
    }

    /// Nil unless it is a 2xx with a valid response; anything else is a transport fault.
    package init?(_ response: UpstreamResponse) {
        guard (200...299).contains(response.status) else { return nil }
        self.init(response.body)
    }

    var isSuccess: Bool { status.number == 0 }

    /// A text for people, which is also stored with a dead letter.
    package var summary: String { "status \(status.number) \(status.name): \(message)" }

    /// The bytes with the current remaining time of the session instead of the original one.
    func bytes(sessionTimeout seconds: Int64) -> [UInt8] {
        guard let range = sessionTimeout?.range else { return bytes }
        return bytes[..<range.lowerBound] + Array(String(seconds).utf8) + bytes[range.upperBound...]
    }

    /// What logins, roles, and the like have at most.
    private static let maxExpectedBytes = 1 << 20

    /// The result of `body` for the response's `body` member; nil for a response that is too large to be the expected
    /// one.
    func withBody<R>(_ body: (JSONValue) -> R?) -> R? {
        guard bytes.count <= Self.maxExpectedBytes else { return nil }
        let read = JSONParser.ofThisThread.parse(bytes) { $0["body"].flatMap(body) }
        return (try? read.get()) ?? nil
    }

    package static func == (left: Self, right: Self) -> Bool { left.bytes == right.bytes }

    private struct Header {
        let status: Int
        let message: String
        let isCacheable: Bool
        let sessionTimeout: (seconds: Int64, range: Range<Int>)?

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

        /// Parses as the SDKs' languages do. Nothing of it is cached, and no session is extended by it.
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
