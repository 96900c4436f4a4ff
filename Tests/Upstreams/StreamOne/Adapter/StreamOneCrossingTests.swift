import Foundation
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import StreamOneAdapter
@testable import StreamOneClient

/// A kept or shared answer is only ever given to those it is about: random interleavings of reads, writes, answers and
/// time, over two instances, their actors, and several sessions of several users.
@Suite(.timeLimit(.minutes(10))) struct StreamOneCrossingTests {
    @Test(arguments: 0..<20)
    func answer_isTheCallersOwn_andNotOlderThanItsWrites(seed: UInt64) throws {
        var world = try StreamOneWorld(seed: seed)
        for _ in 0..<800 { try world.step() }
        try world.finish()
        #expect(world.hits > 10, "nothing came from the cache")
        #expect(world.shared > 0, "nothing was shared")
    }
}

/// Callers of a gateway and the platform behind it.
private struct StreamOneWorld {
    private let harness = StreamOneHarness()
    private var random: SplitMix64
    private let instances: [StreamOneUpstream]
    private let sessions: [String: String]
    private var waiting: [(question: Question, reply: StreamOneReply, oldest: Int)] = []
    /// Writes that took effect, by what they were about.
    private var versions: [String: Int] = [:]
    /// The same, as far as their callers know.
    private var known: [String: Int] = [:]
    private var writes: [(subject: String, reply: StreamOneReply)] = []
    /// What the platform has done, and whose answers are on their way.
    private var answers: [(request: UpstreamRequest, text: String)] = []
    private(set) var hits = 0
    private(set) var shared = 0

    private struct Question {
        let instance: Int
        let session: String?
        let user: String
        let command: String
        let scope: String
        let timezone: String
        let argument: String

        /// The content that the response must have.
        var identity: String { "\(instance)|\(user)|\(command)|\(scope)|\(timezone)|\(argument)" }
        var subject: String { "\(instance)|\(command)|\(scope)" }
    }

    init(seed: UInt64) throws {
        random = SplitMix64(state: seed &* 0x9E37_79B9_7F4A_7C15)
        // The same names of accounts, sessions' users and arguments on both; only the actor differs, or the platform.
        let upstreams = try [
            StreamOneSamples.upstream(["id": .text("app0"), "defaultAccountId": .text("A")], name: "one"),
            StreamOneSamples.upstream(["id": .text("app1"), "defaultAccountId": .text("A")], name: "two"),
        ]
        var sessions: [String: String] = [:]
        for (index, upstream) in upstreams.enumerated() {
            for (session, user) in [("a", "U1"), ("b", "U1"), ("c", "U2")] {
                let id = "\(session)\(index)"
                sessions[id] = user
                _ = try StreamOneSamples.login(upstream, harness, id: id, user: user)
            }
        }
        instances = upstreams
        self.sessions = sessions
    }

    mutating func step() throws {
        switch Int.random(in: 0..<20, using: &random) {
        case 0..<6: try ask()
        case 6: try write()
        case 7: harness.clock.advance(by: .milliseconds(Int64.random(in: 0..<4000, using: &random)))
        case 8..<14: actOnOne()
        default: deliverOne()
        }
        settle()
    }

    mutating func finish() throws {
        while !harness.transport.openRequests.isEmpty {
            actOnOne()
            deliverOne()
        }
        settle()
        try #require(waiting.isEmpty, "a caller got no response")
    }

    private mutating func question() -> Question {
        let instance = Int.random(in: 0..<2, using: &random)
        let session = [nil, "a\(instance)", "b\(instance)", "c\(instance)"].randomElement(using: &random)!
        return Question(
            instance: instance, session: session, user: session.flatMap { sessions[$0] } ?? "-",
            command: ["item", "player"].randomElement(using: &random)!,
            scope: ["A", "B", "A,B", "customer"].randomElement(using: &random)!,
            timezone: ["", "UTC"].randomElement(using: &random)!, argument: ["1", "2"].randomElement(using: &random)!)
    }

    private func send(_ question: Question, _ action: String) throws -> StreamOneReply {
        var query = question.scope == "customer" ? ["customer": "A"] : ["accounts": question.scope]
        if !question.timezone.isEmpty { query["timezone"] = question.timezone }
        return try instances[question.instance].ask(
            .post, "proxy/\(question.command)/\(action)", query: query, session: question.session,
            body: #"{"x":"\#(question.argument)"}"#, harness)
    }

    private mutating func ask() throws {
        let question = question()
        let oldest = known[question.subject] ?? 0
        let open = harness.transport.openRequests.count
        let reply = try send(question, "view")
        if reply.answer == nil, harness.transport.openRequests.count == open { shared += 1 }
        waiting.append((question, reply, oldest))
    }

    private mutating func write() throws {
        let question = question()
        writes.append((question.subject, try send(question, "edit")))
    }

    private mutating func deliverOne() {
        guard let index = answers.indices.randomElement(using: &random) else { return }
        let (request, text) = answers.remove(at: index)
        harness.transport.answer(.status(200, text)) { $0 == request }
    }

    /// The platform acts on one of the open requests, by its content. Its response takes time.
    private mutating func actOnOne() {
        let open = harness.transport.openRequests
        let untouched = open.filter { one in
            open.count { $0 == one } > answers.count { $0.request == one }
        }
        guard let request = untouched.randomElement(using: &random) else { return }
        let sent = SentCall(request)
        let parameters = sent.parameters
        let instance = parameters["application"] == "app0" ? 0 : 1
        let session = parameters["session"]
        let command = sent.path.split(separator: "/")[1]
        let scope = parameters["customer"] != nil ? "customer" : parameters["account"] ?? ""
        let subject = "\(instance)|\(command)|\(scope)"
        if sent.path.hasSuffix("/edit") { versions[subject, default: 0] += 1 }
        let identity =
            "\(instance)|\(session.flatMap { sessions[$0] } ?? "-")|\(command)|\(scope)|\(parameters["timezone"] ?? "")|\(sent.arguments["x"] ?? "")"
        let body =
            #"{"is":"\#(identity)","session":"\#(session ?? "")","version":\#(versions[subject] ?? 0)}"#
        let text = StreamOneSamples.answer(
            cacheable: !sent.path.hasSuffix("/edit") && Int.random(in: 0..<4, using: &random) > 0,
            timeout: session == nil ? nil : 100_000, body: body)
        answers.append((request, text))
    }

    /// Reads the responses that have arrived.
    private mutating func settle() {
        for (subject, reply) in writes where reply.answer != nil {
            known[subject] = max(known[subject] ?? 0, version(in: reply))
        }
        writes.removeAll { $0.reply.answer != nil }
        for (question, reply, oldest) in waiting where reply.answer != nil {
            guard let shown = reply.json else {
                Issue.record("\(question) was refused: \(String(describing: reply.answer))")
                continue
            }
            #expect(shown.text.contains(#""is":"\#(question.identity)""#), "\(question) was told \(shown.text)")
            #expect(version(in: reply) >= oldest, "\(question) was told something old")
            if shown.headers["X-Cache"] == "hit" {
                hits += 1
            } else {
                #expect(shown.text.contains(#""session":"\#(question.session ?? "")""#), "another session's own answer")
            }
        }
        waiting.removeAll { $0.reply.answer != nil }
    }

    private func version(in reply: StreamOneReply) -> Int {
        let text = reply.json?.text ?? ""
        let digits = text.range(of: "\"version\":").map { text[$0.upperBound...].prefix(while: \.isNumber) } ?? ""
        return Int(digits) ?? -1
    }
}
