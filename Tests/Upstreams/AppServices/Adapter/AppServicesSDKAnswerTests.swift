import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Synchronization
import Testing

@testable import AppServicesAdapter

/// What the calls of AppServices' SDK are answered.
@Suite struct AppServicesSDKAnswerTests {
    private typealias Harness = AppServicesHarness

    /// The services of a call, without a store. The platform gives one answer to everything.
    private final class Context: SDKContext {
        private let upstream: AppServicesUpstream
        private let answer: UpstreamResponse?
        private let state = Mutex(DictionaryState())
        private let sequence = Mutex<Int64>(0)
        let stored = Mutex<[SDKItem]>([])
        let isAway: Bool

        init(_ upstream: AppServicesUpstream, platform answer: UpstreamResponse? = nil) {
            self.upstream = upstream
            self.answer = answer
            isAway = answer == nil
        }

        let isReady = true
        let time: any TimeSource = ManualTime(now: UpstreamFixture.now)
        var waitingComputations: Int { 0 }
        func compute(_ work: @escaping @Sendable () -> Void) { work() }
        func check<T: Sendable>(
            _ bytes: Int, _ work: @escaping @Sendable (_ isCancelled: () -> Bool) -> T
        ) async throws(OverloadError) -> T { work { false } }
        func delayRefusal() async {}
        func reserveToParse(_ bytes: Int) {}
        func report(_ notice: UpstreamNotice) {}

        func send(_ request: UpstreamRequest, timeout: Duration, isAbortable: Bool) async -> TransferResult {
            answer.map { .success($0) }
                ?? .failure(TransferFailure(.unreachable, mayHaveArrived: false, detail: "away"))
        }
        func read<T: Sendable>(
            _ body: @escaping @Sendable (any UpstreamState) -> T
        ) async throws(StateError) -> T { state.withLock { body($0) } }
        func change(_ changes: [StateChange]) async throws(StateError) { enqueue(changes) }
        func enqueue(_ changes: [StateChange]) { state.withLock { $0.apply(changes) } }

        func store(_ submission: SDKSubmission) async -> SDKAnswer {
            let item = submission.items[0]
            stored.withLock { $0.append(item) }
            let id = sequence.withLock { sequence in
                sequence += 1
                return MessageID(sequence: sequence, upstream: UpstreamNumber(rawValue: 1))
            }
            if case .success(let valid) = item.validation {
                if let credential = valid.credential { enqueue([.hold(credential)]) }
                let candidate = PendingMessage(
                    id: id, kind: item.kind, lane: valid.lane, acceptedAt: UpstreamFixture.now,
                    payload: valid.rewritten ?? submission.bytes, credentialOwner: valid.credential?.owner)
                let changes = state.withLock { state in try? upstream.validate(candidate, against: state) }
                enqueue(changes ?? [])
            }
            let stored = submission.answer(SDKReceipt(ids: [id]))
            if let answer { upstream.calls?.answer(id, with: .init(response: answer, step: .registerUser)) }
            return stored
        }

        func wait<T: Sendable>(seconds: Int, for start: (@escaping @Sendable (T) -> Void) -> Void) async -> T? {
            let found = Mutex<T?>(nil)
            let box = Box(found)
            start { value in box.value.withLock { $0 = value } }
            return box.value.withLock { $0 }
        }

        private final class Box<T: Sendable>: Sendable {
            let value: Mutex<T?>
            init(_ value: consuming sending Mutex<T?>) { self.value = value }
        }
    }

    private static func upstream(_ more: [String: SettingValue] = [:]) throws -> AppServicesUpstream {
        let settings = Harness.settings.merging(["sdk.enabled": .bool(true), "monitoringEnabled": .bool(true)]) { $1 }
        return AppServicesUpstream(
            try #require(UpstreamName("appservices")), try AppServicesSettings(settings.merging(more) { $1 }))
    }

    /// - Parameter text: The request line without a version, headers, an empty line, and the body.
    private static func answer(
        _ text: String, of upstream: AppServicesUpstream, _ context: Context
    ) async throws -> SDKAnswer {
        let parts = text.split(separator: "\n\n", maxSplits: 1, omittingEmptySubsequences: false)
        let lines = parts[0].split(separator: "\n")
        let words = lines[0].split(separator: " ", maxSplits: 1)
        let (path, query) = URLQuery.split(String(words[1]))
        let headers = Dictionary(
            lines.dropFirst().map { line in
                let colon = line.firstIndex(of: ":") ?? line.endIndex
                return (line[..<colon].lowercased(), String(line[colon...].dropFirst(2)))
            }
        ) { $1 }
        let request = SDKRequest(
            method: String(words[0]), path: "/sdk/appservices" + path, queryText: query,
            headers: { $0 == "Host" ? "gw" : headers[$0.lowercased()] },
            body: parts.count > 1 ? Array(String(parts[1]).utf8) : [], receivedAt: UpstreamFixture.now)
        let endpoints = try #require(upstream.sdk)
        let segments = path.split(separator: "/").map { Substring($0) }
        let route = endpoints.routes.first { route in
            route.method.rawValue == words[0]
                && [route.template, route.alias ?? ""].contains {
                    UpstreamRoute.PathTemplate($0).parameters(matching: segments) != nil
                }
        }
        guard let route, case .head(let check) = route.access, case .perform(let perform) = route.response else {
            return endpoints.unrouted(request, .notFound)
        }
        if let refused = check(request) { return refused }
        do throws(SDKAnswer) { return try await perform(request, context) } catch { return error }
    }

    private static func text(_ answer: SDKAnswer) -> String { String(decoding: answer.body, as: UTF8.self) }

    @Test func requestsOfTheSDK_areAnswered_byteForByte_whileThePlatformIsAway() async throws {
        let upstream = try Self.upstream()
        let context = Context(upstream)
        var answers = ""
        for vector in 1...15 {
            let request = String(decoding: try Fixture.bytes("sdk-v\(vector).http"), as: UTF8.self)
            let answer = try await Self.answer(request, of: upstream, context)
            #expect(answer.outcome == .accepted && answer.call != nil, "V\(vector)")
            answers += "V\(vector) \(answer.call ?? "") \(answer.status)\n\(Self.text(answer))\n"
        }
        #expect(answers == String(decoding: try Fixture.bytes("sdk-answers.txt"), as: UTF8.self), "\(answers)")
        #expect(context.stored.withLock { $0.count } == 14)
    }

    @Test func existingUser_isAnsweredByTheEnvelope_andOtherAnswersArePassedOn() async throws {
        let upstream = try Self.upstream()
        let request = String(decoding: try Fixture.bytes("sdk-v2.http"), as: UTF8.self)
        let exists = Context(upstream, platform: Harness.error(400, "duplicate_unique_property_exists"))
        let known = try await Self.answer(request, of: upstream, exists)
        #expect(known.status == 200 && known.outcome == .accepted && Self.text(known).contains("\"username\""))
        let refused = Context(upstream, platform: Harness.error(400, "illegal_argument"))
        let answer = try await Self.answer(request, of: upstream, refused)
        #expect(answer.status == 400 && answer.outcome == .proxied)
    }

    @Test func entityOfAUserOrAGroup_hasTheIDThatThePlatformHasGivenIt() async throws {
        let upstream = try Self.upstream()
        let headers = "?api_key=\(Harness.key)\nX-Auth-Provider: pi\nAuthorization: Bearer T\n\n"
        let id = "6f1a94a0-0000-11e4-9b8e-0123456789ab"
        let group = "GET /acme/campus-dev/groups/Bio" + headers
        let found = Context(upstream, platform: Harness.response(200, #"{"entities":[{"uuid":"\#(id)"}]}"#))
        #expect(try await Self.answer(group, of: upstream, found).outcome == .proxied)
        let away = Context(upstream)
        away.enqueue([.set(key: AppServicesUser.key("ann"), value: Array(id.utf8))])
        for (request, type) in [
            (group, "group"), ("POST /acme/campus-dev/groups" + headers + #"{"path":"bio","title":"Bio"}"#, "group"),
            ("POST /acme/campus-dev/users" + headers + #"{"username":"Ann"}"#, "user"),
            ("POST /acme/campus-dev/groups/other/users/ann" + headers, "user"),
        ] {
            let answer = try await Self.answer(request, of: upstream, away)
            #expect(Self.text(answer).contains(#"{"uuid":"\#(id)","type":"\#(type)""#), "\(request)")
        }
        let other = try await Self.answer("GET /acme/campus-dev/groups/Math" + headers, of: upstream, away)
        #expect(other.outcome == .accepted && !Self.text(other).contains(id))
    }

    /// A body that cannot be read is refused in any case.
    @Test func whatBreaksARule_isStoredAsFailed_ifTheSettingSaysSo_withoutItsToken() async throws {
        let upstream = try Self.upstream(["sdk.whenInvalid": "deadLetter"])
        let context = Context(upstream)
        let head =
            "POST /acme/campus-dev/users?api_key=\(Harness.key)\nX-Auth-Provider: pi\nAuthorization: Bearer T\n\n"
        let answer = try await Self.answer(head + #"{"username":"me"}"#, of: upstream, context)
        #expect(answer.status == 200 && answer.outcome == .accepted)
        let item = try #require(context.stored.withLock { $0.first })
        guard case .failure(let invalid) = item.validation else {
            Issue.record("it is stored as valid")
            return
        }
        #expect(invalid.faults.text.hasPrefix("/userId"))
        #expect(try await Self.answer(head + "{", of: upstream, context).status == 400)
        let strict = try Self.upstream()
        #expect(try await Self.answer(head + #"{"username":"me"}"#, of: strict, Context(strict)).status == 400)
    }

    @Test func textsWithLoneSurrogates_areTaken() async throws {
        let upstream = try Self.upstream()
        let context = Context(upstream)
        let head = "POST /acme/campus-dev/apm/apmMetrics\n\n"
        let metrics = #"{"sessionMetrics":{"appId":"1"},"logs":[{"logMessage":"\ud800"}]}"#
        #expect(try await Self.answer(head + metrics, of: upstream, context).status == 200)
        let item = try #require(context.stored.withLock { $0.first })
        #expect(throws: Never.self) { try item.validation.get() }
    }

    @Test func endpoints_needTheApplicationAndItsKey() {
        #expect(throws: Setting.Problems.self) {
            try UpstreamType.appservices.make(
                UpstreamName("push")!, ["sdk.enabled": .bool(true), "organization": "acme", "apiKey": "k"])
        }
    }
}
