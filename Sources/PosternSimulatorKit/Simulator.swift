/// A strict stand-in for one type of upstream, written from its specification alone.
///
/// It judges requests and owns no socket; `SimulatorHost` gives it one, plays the faults and keeps what was taken.
/// Called from several threads at once.
protocol Simulator: Sendable {
    /// The name of the upstream's type.
    var name: String { get }
    /// The member of an item that tells whose order it is in, unless the items come with an `orderKey`.
    var orderField: String { get }
    /// Answers as the real upstream would, and says what the request did that a gateway must never do.
    /// Items that match `poisons` are refused, and with them the request.
    func judge(_ request: SimulatedRequest, poisons: [Faults.Poison]) -> Judged
    /// What the upstream, or what stands in front of it, sends with a status made up by a fault.
    func answer(status: Int) -> SimulatedAnswer
    /// The same for a request that the simulator does not get to judge, for those that follow from what was answered.
    func answer(status: Int, to request: SimulatedRequest) -> SimulatedAnswer
    /// Answers about what the upstream holds, and changes how it behaves: everything below `/control`. Nil for what
    /// there is not.
    func control(_ request: SimulatedRequest) -> SimulatedAnswer?
}

extension Simulator {
    func control(_ request: SimulatedRequest) -> SimulatedAnswer? { nil }
    func answer(status: Int, to request: SimulatedRequest) -> SimulatedAnswer { answer(status: status) }
    func answer(status: Int) -> SimulatedAnswer {
        SimulatedAnswer(
            status: status, headers: [("Content-Type", "text/plain")], body: Array("\(status) simulated".utf8))
    }
}

struct SimulatedRequest: Sendable {
    var method: String
    /// As sent, without the query.
    var path: String
    var query: String?
    /// In the order sent, repeated ones included.
    var headers: [(name: String, value: String)]
    var body: [UInt8]
    /// A fault keeps the answer from the gateway, whole or in part.
    var isAnswerLost = false

    /// The values of a header, joined by a comma as an HTTP library hands them over; nil when there is none.
    func header(_ name: String) -> String? {
        let values = headers.filter { $0.name.count == name.count && $0.name.lowercased() == name.lowercased() }
        return values.isEmpty ? nil : values.map(\.value).joined(separator: ",")
    }
}

struct SimulatedAnswer: Sendable, Equatable {
    var status: Int
    var headers: [(name: String, value: String)] = []
    var body: [UInt8] = []

    static func json(_ status: Int, _ text: String) -> Self {
        Self(status: status, headers: [("Content-Type", "application/json; charset=utf-8")], body: Array(text.utf8))
    }

    static func text(_ status: Int, _ text: String) -> Self {
        Self(status: status, headers: [("Content-Type", "text/plain; charset=utf-8")], body: Array(text.utf8))
    }

    static func notAllowed(_ allowed: String) -> Self { Self(status: 405, headers: [("Allow", allowed)]) }

    static func == (left: Self, right: Self) -> Bool {
        left.status == right.status && left.body == right.body && left.headers.elementsEqual(right.headers, by: ==)
    }
}

/// A simulator's opinion of one request.
struct Judged: Sendable {
    /// Nil when the real upstream would leave the connection open without a word.
    var answer: SimulatedAnswer?
    /// What was taken; empty when the request was refused.
    var items: Items = Items()
    /// One sentence each, for people and for tests that want none.
    var violations: [String] = []
    /// How long the upstream takes to answer.
    var delay: Duration = .zero

    /// Items as they stand in a body.
    struct Items: Sendable {
        var text: [UInt8] = []
        var ranges: [Range<Int>] = []
        /// Equal for items that are the same to the upstream; in the order of `ranges`.
        var identities: [UInt64] = []
        /// Whose order all of them are in, where no member of theirs tells.
        var orderKey: String?
    }
}

extension Faults.Poison {
    /// For an upstream that names no items.
    var status: Int {
        switch answer {
        case .failure: 500
        case .tooLarge: 413
        case .refusal, .naming: 400
        }
    }

    func matches(_ item: UnsafeBufferPointer<UInt8>) -> Bool { found(field, in: item)?.text == value }
}
