package import PosternCore

/// A strict stand-in for one type of upstream, written from its specification alone.
///
/// It judges requests and owns no socket. `SimulatorHost` provides the server, plays the faults, and records what was
/// accepted. Called from several threads at once.
package protocol Simulator: Sendable {
    /// The name of the upstream's type.
    var name: String { get }
    /// The member of an item that names its order key, unless the items have an `orderKey`.
    var orderField: String { get }
    /// Responds as the real upstream would, and reports what the request did that a gateway must never do. Items that
    /// match `poisons` are rejected, and the request with them.
    func judge(_ request: SimulatedRequest, poisons: [Faults.Poison]) -> SimulatedResult
    /// The body that the upstream, or a proxy in front of it, sends with a status that a fault produced.
    func answer(status: Int) -> SimulatedAnswer
    /// The same for a request that the simulator does not judge, for upstreams whose state depends on the response.
    func answer(status: Int, to request: SimulatedRequest) -> SimulatedAnswer
    /// Shows the upstream's state and changes its behavior: everything below `/control`. Nil for a path that does not
    /// exist.
    func control(_ request: SimulatedRequest) -> SimulatedAnswer?
}

extension Simulator {
    package func control(_ request: SimulatedRequest) -> SimulatedAnswer? { nil }
    package func answer(status: Int, to request: SimulatedRequest) -> SimulatedAnswer { answer(status: status) }
    package func answer(status: Int) -> SimulatedAnswer {
        SimulatedAnswer(
            status: status, headers: [("Content-Type", "text/plain")], body: Array("\(status) simulated".utf8))
    }
}

package struct SimulatedRequest: Sendable {
    package var method: String
    /// As sent, without the query.
    package var path: String
    package var query: String?
    /// The headers in the order sent, including repeated ones.
    package var headers: [(name: String, value: String)]
    package var body: [UInt8]
    /// Whether a fault withholds the response from the gateway, completely or in part.
    package var isAnswerLost: Bool
    /// When the gateway sent it, and when it gets the response; nil if the network takes no time worth mentioning.
    package var sentAt: MonotonicInstant?
    package var answeredAt: MonotonicInstant?

    package init(
        method: String, path: String, query: String? = nil, headers: [(name: String, value: String)] = [],
        body: [UInt8] = [], isAnswerLost: Bool = false
    ) {
        (self.method, self.path, self.query, self.headers, self.body) = (method, path, query, headers, body)
        self.isAnswerLost = isAnswerLost
    }

    /// The values of a header, joined by commas as HTTP libraries do; nil if there is none.
    package func header(_ name: String) -> String? {
        let values = headers.filter { $0.name.count == name.count && $0.name.lowercased() == name.lowercased() }
        return values.isEmpty ? nil : values.map(\.value).joined(separator: ",")
    }

    /// What a gateway that writes whole and plain bodies must not send.
    package var framingViolations: [String] {
        var violations = ["Content-Encoding", "Transfer-Encoding", "Expect"].compactMap { name in
            header(name).map { _ in "a request with \(name)" }
        }
        if header("Content-Length") == nil { violations.append("a request without Content-Length") }
        return violations
    }
}

package struct SimulatedAnswer: Sendable, Equatable {
    package var status: Int
    package var headers: [(name: String, value: String)] = []
    package var body: [UInt8] = []

    package init(status: Int, headers: [(name: String, value: String)] = [], body: [UInt8] = []) {
        (self.status, self.headers, self.body) = (status, headers, body)
    }

    package static func json(_ status: Int, _ text: String) -> Self {
        Self(status: status, headers: [("Content-Type", "application/json; charset=utf-8")], body: Array(text.utf8))
    }

    static func text(_ status: Int, _ text: String) -> Self {
        Self(status: status, headers: [("Content-Type", "text/plain; charset=utf-8")], body: Array(text.utf8))
    }

    package static func notAllowed(_ allowed: String) -> Self { Self(status: 405, headers: [("Allow", allowed)]) }

    package func with(_ name: String, _ value: String) -> Self {
        Self(status: status, headers: headers + [(name, value)], body: body)
    }

    package static func == (left: Self, right: Self) -> Bool {
        left.status == right.status && left.body == right.body && left.headers.elementsEqual(right.headers, by: ==)
    }
}

/// An upstream's clock, and the one for waiting.
package struct Moment: Sendable {
    package let now: Timestamp
    package let instant: MonotonicInstant

    package init(_ time: any TimeSource, ahead offset: Duration = .zero) {
        (now, instant) = (time.now + offset, time.instant)
    }
}

/// A simulator's judgement of one request.
package struct SimulatedResult: Sendable {
    /// Nil if the real upstream would leave the connection open without a response.
    package var answer: SimulatedAnswer?
    /// The items that were accepted; empty if the request was rejected.
    package var items: Items = Items()
    /// The items that a request was rejected for; empty if the simulator does not name them.
    package var rejected: Items = Items()
    /// Violations, one sentence each, for people and for tests that expect none.
    package var violations: [String] = []
    /// How long the upstream takes to respond.
    package var delay: Duration = .zero

    package init(
        answer: SimulatedAnswer?, items: Items = Items(), violations: [String] = [], delay: Duration = .zero
    ) {
        (self.answer, self.items, self.violations, self.delay) = (answer, items, violations, delay)
    }

    /// Sets the body that contains the items.
    package mutating func setText(_ body: [UInt8]) {
        if !items.ranges.isEmpty { items.text = body }
        if !rejected.ranges.isEmpty { rejected.text = body }
    }

    /// The items of a body.
    package struct Items: Sendable {
        package var text: [UInt8] = []
        package var ranges: [Range<Int>] = []
        /// Equal for items that are the same to the upstream; in the order of `ranges`.
        package var identities: [UInt64] = []
        /// The order key of all items, if no member of theirs names it.
        package var orderKey: String?

        package init(
            text: [UInt8] = [], ranges: [Range<Int>] = [], identities: [UInt64] = [], orderKey: String? = nil
        ) {
            (self.text, self.ranges, self.identities, self.orderKey) = (text, ranges, identities, orderKey)
        }
    }
}

extension Faults.Poison {
    /// The status of the response, for an upstream whose items are not told apart.
    package var status: Int {
        switch answer {
        case .failure: 500
        case .tooLarge: 413
        case .refusal, .naming: 400
        case .unauthorized: 401
        case .forbidden: 403
        case .absent: 404
        }
    }

    package func matches(_ item: UnsafeBufferPointer<UInt8>) -> Bool { found(field, in: item)?.text == value }
}

extension [Faults.Poison] {
    /// Those of `ranges` whose part of `text` matches a poison.
    package func hits(_ ranges: [Range<Int>], of text: UnsafeBufferPointer<UInt8>) -> [Range<Int>] {
        ranges.filter { range in contains { $0.matches(.init(rebasing: text[range])) } }
    }
}
