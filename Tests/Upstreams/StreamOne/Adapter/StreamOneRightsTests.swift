import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import StreamOneAdapter
@testable import StreamOneClient

/// What an actor may do (the specification's section 6).
@Suite struct StreamOneRightsTests {
    private let harness = StreamOneHarness()
    private var transport: ScriptedTransport { harness.transport }

    private static func role(_ tokens: String, account: String? = nil, customer: String? = nil) -> String {
        let list = tokens.split(separator: " ").map { "\"\($0)\"" }.joined(separator: ",")
        let account = account.map { #","account":{"id":"\#($0)","name":"n"}"# } ?? ""
        let customer = customer.map { #","customer":{"id":"\#($0)","name":"n"}"# } ?? #","customer":null"#
        return #"{"role":{"id":"r","name":"n","tokens":[\#(list)]}\#(account)\#(customer)}"#
    }

    private static let simple = [role("a b c"), role("f g", account: "A1"), role("g h", account: "A2")]
    private static let mixed = [
        role("z"), role("y p", customer: "C1"), role("x p", customer: "C2"), role("w v", account: "A1"),
        role("v u", account: "A3"),
    ]

    private func serve(roles: [String], tokens: String = "") {
        let list = tokens.split(separator: " ").map { "\"\($0)\"" }.joined(separator: ",")
        transport.answerAll { request in
            let body = request.url.contains("/getmyroles") ? "[\(roles.joined(separator: ","))]" : "[\(list)]"
            return .status(200, StreamOneSamples.answer(body: body))
        }
    }

    /// An upstream that keeps roles and tokens outside sessions, too.
    private func keeping() throws -> StreamOneUpstream {
        try StreamOneSamples.upstream(["tokenCache": .text("memory")])
    }

    @Test(arguments: [
        (simple, "", "", "a", "d"), (simple, "account", "A1", "a f g", "h d"),
        (simple, "accounts", "A1,A2", "g a", "f h"),
        (simple, "accounts", "A1,A2,A3", "a", "g"), (simple, "customer", "C5", "a", "f"),
        (mixed, "customer", "C1", "z y p", "x w"), (mixed, "account", "A1", "w y", "x"),
    ])
    func hasToken_isTheSpecificationsTable(
        roles: [String], parameter: String, value: String, has: String, lacks: String
    ) throws {
        serve(roles: roles, tokens: "z y p w v")
        let upstream = try keeping()
        let query = parameter.isEmpty ? [:] : [parameter: value]
        for (tokens, answer) in [(has, "true"), (lacks, "false")] {
            for token in tokens.split(separator: " ") {
                let reply = try upstream.ask(.get, "tokens/\(token)", query: query, harness)
                #expect(reply.json?.text == #"{"hasToken":\#(answer)}"#, "\(token)")
            }
        }
        let asksForTokens = roles == Self.mixed && parameter == "account"
        #expect(
            harness.calls.map(\.path) == ["api/application/getmyroles"] + (asksForTokens ? ["api/api/mytokens"] : []))
        if asksForTokens { #expect(harness.calls.last?.parameters["account"] == "A1") }
    }

    @Test func defaultAccount_counts_unlessTakenAway() throws {
        serve(roles: Self.simple)
        let upstream = try StreamOneSamples.upstream(["defaultAccountId": .text("A2")])
        #expect(try upstream.ask(.get, "tokens/h", harness).json?.text == #"{"hasToken":true}"#)
        #expect(
            try upstream.ask(.get, "tokens/h", query: ["accounts": ""], harness).json?.text == #"{"hasToken":false}"#)
    }

    @Test func roles_areShownAsTheyCame_andOfTheKindThatActs() throws {
        serve(roles: Self.simple)
        let shown = #"{"roles":[\#(Self.simple.joined(separator: ","))]}"#
        let application = try StreamOneSamples.upstream()
        #expect(try application.ask(.get, "roles", harness).json?.text == shown)
        let user = try StreamOneSamples.upstream(["authenticationType": .text("user")])
        #expect(try user.ask(.get, "roles", harness).json?.text == shown)
        let session = try StreamOneSamples.login(application, harness)
        #expect(try application.ask(.get, "roles", session: session, harness).json?.text == shown)
        let paths = harness.calls.map(\.path).filter { !$0.contains("session/") }
        #expect(paths == ["api/application/getmyroles", "api/user/getmyroles", "api/user/getmyroles"])
        #expect(harness.calls.last?.parameters["session"] == session)
    }

    @Test func failure_isAnError_andNeverNo() throws {
        let upstream = try StreamOneSamples.upstream()
        for answer in [
            TransferResult.status(200, StreamOneSamples.answer(4)), .status(503), .refusedConnection,
            .status(200, StreamOneSamples.answer(body: #"{"a":1}"#)),
            .status(200, StreamOneSamples.answer(body: #"[{"role":null}]"#)),
        ] {
            transport.answerAll { _ in answer }
            let upstream = try StreamOneSamples.upstream()
            #expect(try upstream.ask(.get, "tokens/a", harness).problem?.status == 502)
        }
        for body in [#"{"a":1}"#, "null", #""roles""#] {
            transport.answerAll { _ in .status(200, StreamOneSamples.answer(body: body)) }
            #expect(try StreamOneSamples.upstream().ask(.get, "roles", harness).problem?.status == 502, "\(body)")
        }
        serve(roles: Self.mixed)
        transport.answerAll { request in
            .status(
                200,
                request.url.contains("/mytokens")
                    ? StreamOneSamples.answer(1)
                    : StreamOneSamples.answer(body: "[\(Self.mixed.joined(separator: ","))]"))
        }
        #expect(try upstream.ask(.get, "tokens/w", query: ["account": "A1"], harness).problem?.status == 502)
    }

    @Test func rights_areKept_forAWhile_butNotForProxiedCalls() throws {
        serve(roles: Self.simple)
        let upstream = try keeping()
        try upstream.ask(.get, "roles", harness)
        try upstream.ask(.get, "tokens/a", harness)
        #expect(transport.requests.count == 1)
        #expect(try upstream.ask(.post, "proxy/application/getmyroles", harness).json?.headers["X-Cache"] == "miss")
        #expect(transport.requests.count == 2)
        harness.clock.advance(by: .seconds(61))
        try upstream.ask(.get, "tokens/a", harness)
        #expect(transport.requests.count == 3)
    }

    /// The specification's 7.4, and the default of the SDKs.
    @Test func rights_areNotKept_unlessASettingSaysSo_orInASession() throws {
        serve(roles: Self.simple)
        let upstream = try StreamOneSamples.upstream()
        for _ in 0..<2 { try upstream.ask(.get, "roles", harness) }
        #expect(harness.calls.map(\.path) == ["api/application/getmyroles", "api/application/getmyroles"])
        let session = try StreamOneSamples.login(upstream, harness)
        serve(roles: Self.simple)
        for _ in 0..<2 { try upstream.ask(.get, "roles", session: session, harness) }
        #expect(harness.calls.filter { $0.path == "api/user/getmyroles" }.count == 1)
    }

    /// Roles say themselves where they hold; tokens are asked for in each scope.
    @Test func roles_areRequestedOnce_whateverTheScope() throws {
        serve(roles: Self.mixed, tokens: "w")
        let upstream = try keeping()
        for scope in [[:], ["account": "A1"], ["account": "A2"], ["customer": "C1"], ["accounts": "A1,A2"]] {
            try upstream.ask(.get, "tokens/w", query: scope, harness)
        }
        #expect(harness.calls.filter { $0.path == "api/application/getmyroles" }.count == 1)
        #expect(harness.calls.filter { $0.path == "api/api/mytokens" }.count == 3)
    }

    /// Else a role of one account would hold everywhere.
    @Test(arguments: [
        #""account":"A1""#, #""account":{}"#, #""account":{"name":"x"}"#, #""account":{"id":5}"#,
        #""account":{"id":null}"#, #""account":{"id":""}"#, #""account":[]"#, #""account":false"#, #""customer":"C1""#,
        #""customer":{}"#, #""customer":{"id":7}"#,
    ])
    func roleThatCannotBeRead_isAnError_andNoRight(scope: String) throws {
        serve(roles: [Self.role("a"), #"{"role":{"tokens":["q"]},\#(scope)}"#])
        let upstream = try StreamOneSamples.upstream()
        for scope in [[:], ["account": "A2"], ["customer": "C9"]] {
            #expect(try upstream.ask(.get, "tokens/q", query: scope, harness).problem?.status == 502)
        }
    }

    @Test(arguments: ["[5]", #"["a",null]"#, #"{"a":1}"#, #""a""#])
    func tokensThatCannotBeRead_areAnError(body: String) throws {
        let roles = Self.mixed.joined(separator: ",")
        transport.answerAll { request in
            .status(200, StreamOneSamples.answer(body: request.url.contains("/getmyroles") ? "[\(roles)]" : body))
        }
        let reply = try StreamOneSamples.upstream().ask(.get, "tokens/a", query: ["account": "A1"], harness)
        #expect(reply.problem?.status == 502)
    }

    @Test func deniedCall_makesRightsBeFetchedAgain() throws {
        serve(roles: Self.simple)
        let upstream = try keeping()
        try upstream.ask(.get, "roles", harness)
        transport.expect(.status(200, StreamOneSamples.answer(4)))
        try upstream.ask(.post, "proxy/item/edit", harness)
        try upstream.ask(.get, "roles", harness)
        #expect(transport.requests.count == 3)
    }

    @Test func rightsOfASession_endWithIt() throws {
        serve(roles: Self.simple)
        let upstream = try StreamOneSamples.upstream()
        for _ in 0..<2 {
            let session = try StreamOneSamples.login(upstream, harness)
            serve(roles: Self.simple)
            try upstream.ask(.get, "roles", session: session, harness)
            try upstream.ask(.get, "roles", session: session, harness)
            try upstream.ask(.delete, "sessions/\(session)", harness)
        }
        #expect(harness.calls.filter { $0.path == "api/user/getmyroles" }.count == 2)
    }
}
