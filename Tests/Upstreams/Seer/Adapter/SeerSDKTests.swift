import Foundation
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import SeerAdapter

/// What Seer's SDK is answered, and what becomes of what it sends.
@Suite struct SeerSDKTests {
    private static let now = Timestamp(milliseconds: 1_426_200_084_360)
    private static let settings = SeerSettings.with {
        ($0.clientID, $0.clientSecret, $0.apiKey, $0.sdk.isEnabled) = ("app", "s:3cret", "KEY+1", true)
    }

    private static func endpoints(_ set: (inout SeerSettings) -> Void = { _ in }) -> SDKEndpoints {
        var settings = settings
        set(&settings)
        return SeerUpstream(UpstreamName("seer")!, settings).sdk!
    }

    /// An SDK in front of the endpoints.
    private struct Caller {
        let endpoints: SDKEndpoints
        var now = SeerSDKTests.now
        var apiKey = "KEY+1"

        struct Outcome {
            var submission: SDKSubmission?
            var answer: SDKAnswer
            var text: String { String(decoding: answer.body, as: UTF8.self) }
            var payloads: [String] {
                submission.map { submission in
                    submission.items.map { String(decoding: submission.bytes[$0.range], as: UTF8.self) }
                } ?? []
            }
            var failures: [String?] {
                submission?.items.map { item in
                    if case .failure(let invalid) = item.validation { invalid.faults.text } else { nil }
                } ?? []
            }
        }

        func send(_ call: String, _ authorization: String?, _ body: String, type: String = "application/json") throws
            -> Outcome
        {
            let route = try #require(endpoints.routes.first { $0.call == call })
            let request = SDKRequest(
                queryText: "apikey=\(apiKey)",
                headers: { ["Authorization": authorization, "Content-Type": type][$0] ?? nil }, body: Array(body.utf8),
                receivedAt: now)
            if case .head(let check) = route.access, let answer = check(request) { return Outcome(answer: answer) }
            do throws(SDKAnswer) {
                switch route.response {
                case .answer(let answer): return Outcome(answer: try answer(request))
                case .store(let read):
                    let submission = try read(request)
                    return Outcome(submission: submission, answer: submission.answer(SDKReceipt(ids: [])))
                case .perform: throw SDKAnswer(500, .refused)
                }
            } catch {
                return Outcome(answer: error)
            }
        }

        func token(_ credentials: String = "app:s:3cret", _ body: String = "grant_type=client_credentials") throws
            -> Outcome
        {
            try send(
                "token", "Basic \(Data(credentials.utf8).base64EncodedString())", body,
                type: "application/x-www-form-urlencoded")
        }

        func bearer() throws -> String { "Bearer \(try JSON(token().answer.body)["access_token"].string ?? "")" }
    }

    private static let activity =
        #"{"actor":{"id":"pearsonappuser@gmail.com"},"verb":"action","object":{"id":"objectId","objectType":"objectType"},"generator":{"appId":"Seer-ios-sample-app"},"published":"2015-03-12T22:41:24Z"}"#
    private static let statement =
        #"{"id":"7","actor":{"mbox":"mailto:sally@example.com"},"verb":{"id":"http:\/\/v"},"object":{"id":"o","definition":{"type":"t"}},"context":{"extensions":{"appId":"SEER-ios-sdk"}}}"#

    // MARK: Tokens

    @Test func token_isTheGatewaysOwn_withADateThatTheSDKCanRead() throws {
        let found = try Caller(endpoints: Self.endpoints()).token()
        #expect(found.answer.status == 200 && found.answer.headers.contains { $0 == ("Cache-Control", "no-store") })
        let json = JSON(found.answer.body)
        let token = try #require(json["access_token"].string)
        #expect(
            found.text
                == #"{"access_token":"\#(token)","expiration_date":1426203684360,"token_type":"BearerToken"}"#)
        #expect(token.wholeMatch(of: #/[A-Za-z0-9\-._~]{40,400}/#) != nil)
        #expect(try Caller(endpoints: Self.endpoints()).token().text != found.text)
    }

    @Test(arguments: ["app:wrong", "other:s:3cret", "app", "app:", ":", "app:s:3cret "])
    func strangers_getNoToken(credentials: String) throws {
        let found = try Caller(endpoints: Self.endpoints()).token(credentials)
        #expect(found.answer.status == 401 && found.text == #"{"error":"invalid_client"}"#)
        #expect(found.answer.isOfStranger)
    }

    @Test(arguments: [
        ("", "invalid_request"), ("grant=client_credentials", "invalid_request"),
        ("grant_type=password", "unsupported_grant_type"),
    ])
    func otherGrants_areRefused(body: String, error: String) throws {
        let found = try Caller(endpoints: Self.endpoints()).token("app:s:3cret", body)
        #expect(found.answer.status == 400 && found.text == #"{"error":"\#(error)"}"#)
        let plain = try Caller(endpoints: Self.endpoints()).send(
            "token", "Basic \(Data("app:s:3cret".utf8).base64EncodedString())", "grant_type=client_credentials",
            type: "text/plain")
        #expect(plain.answer.status == 400)
    }

    /// S3. A restart has no part in it: the token contains all that is needed.
    @Test func token_isAccepted_untilADayAfterItsDate_andWhileTheSecretIsTheSame() throws {
        var caller = Caller(endpoints: Self.endpoints())
        let bearer = try caller.bearer()
        for (seconds, status) in [(0, 200), (3600 + 86_400, 200), (3600 + 86_401, 401)] {
            caller.now = Self.now + .seconds(seconds)
            #expect(try caller.send("activity", bearer, Self.activity).answer.status == status)
        }
        let restarted = Caller(endpoints: Self.endpoints())
        #expect(try restarted.send("activity", bearer.lowercasedScheme, Self.activity).answer.status == 200)
        let changed = Caller(endpoints: Self.endpoints { $0.clientSecret = "other" })
        #expect(try changed.send("activity", bearer, Self.activity).text == #"{"error":"invalidToken"}"#)
        for wrong in [nil, "Bearer", "Bearer x", bearer + "A", bearer.replacing("Bearer", with: "Basic")] as [String?] {
            #expect(try restarted.send("activity", wrong, Self.activity).text == #"{"error":"invalidToken"}"#)
        }
    }

    @Test func apiKey_isComparedAsItIs_andDecoded() throws {
        var caller = Caller(endpoints: Self.endpoints())
        let bearer = try caller.bearer()
        for (key, status) in [("KEY+1", 200), ("KEY%2B1", 200), ("KEY", 401), ("", 401), ("KEY 1", 401)] {
            caller.apiKey = key
            let found = try caller.send("activity", bearer, Self.activity)
            #expect(found.answer.status == status, "\(key)")
            if status == 401 { #expect(found.text == #"{"error":"invalidApiKey"}"#) }
            #expect(try caller.token().answer.status == status)
        }
    }

    @Test func clientsOfTheirOwn_replaceThePlatformsCredentials() throws {
        var caller = Caller(
            endpoints: Self.endpoints {
                $0.sdkClients = [
                    SeerSDKClient(id: "ios", secret: "one", apiKey: ""),
                    SeerSDKClient(id: "web", secret: "two", apiKey: "W"),
                ]
            })
        #expect(try caller.token().answer.status == 401)
        let ios = try #require(JSON(caller.token("ios:one").answer.body)["access_token"].string)
        #expect(try caller.token("web:two").answer.status == 401)
        caller.apiKey = "W"
        let web = try #require(JSON(caller.token("web:two").answer.body)["access_token"].string)
        #expect(try caller.send("activity", "Bearer \(web)", Self.activity).answer.status == 200)
        #expect(try caller.send("activity", "Bearer \(ios)", Self.activity).answer.status == 401)
    }

    // MARK: Reports

    @Test func reports_areStoredAsTheyCame() throws {
        let caller = Caller(endpoints: Self.endpoints { $0.endpoints = ["custom": "/customendpoint?x=1"] })
        let bearer = try caller.bearer()
        let single = try caller.send("activity", bearer, Self.activity)
        #expect(single.text == "{}" && single.payloads == [Self.activity] && single.failures == [nil])
        let batch = try caller.send(
            "activity_batch", bearer, #"{"x":1,"activities":[\#(Self.activity), \#(Self.activity)]}"#)
        #expect(batch.payloads == [Self.activity, Self.activity])
        #expect(batch.submission?.items.allSatisfy { $0.identity == nil } == true)
        #expect(try caller.send("custom", bearer, #"{"any":["\ud800"]}"#).payloads == [#"{"any":["\ud800"]}"#])
        #expect(caller.endpoints.routes.first { $0.call == "custom" }?.template == "customendpoint")
    }

    @Test func statementWithAnID_isKnownByItsBytes() throws {
        let caller = Caller(endpoints: Self.endpoints())
        let bearer = try caller.bearer()
        let one = try caller.send("tincan", bearer, Self.statement).submission?.items[0].identity
        let again = try caller.send("tincan_batch", bearer, #"{"activities":[\#(Self.statement)]}"#)
        #expect(one?.count == 32 && again.submission?.items[0].identity == one)
        let other = try caller.send("tincan", bearer, Self.statement.replacing("sally", with: "peter"))
        #expect(other.submission?.items[0].identity != one)
        let without = try caller.send("tincan", bearer, Self.statement.replacing(#""id":"7","#, with: ""))
        #expect(without.submission?.items[0].identity == .some(nil))
    }

    @Test(arguments: [
        "", "[]", "1", "{", #"{"activities":{}}"#, #"{"activities":[]}"#, #"{"activities":[1]}"#, #"{"items":[{}]}"#,
    ])
    func unreadableBatch_isRefused(body: String) throws {
        let caller = Caller(endpoints: Self.endpoints())
        let found = try caller.send("activity_batch", try caller.bearer(), body)
        #expect(found.answer.status == 400 && found.text == #"{"error":"invalid_request"}"#, "\(body)")
    }

    @Test func badItem_isADeadLetter_orRefusesItsBatch() throws {
        let body = #"{"activities":[{"verb":1},\#(Self.activity)]}"#
        let caller = Caller(endpoints: Self.endpoints())
        let found = try caller.send("activity_batch", try caller.bearer(), body)
        #expect(found.answer.status == 200)
        #expect(found.failures[0]?.hasPrefix("/actor: must be an object") == true && found.failures[1] == nil)
        let strict = Caller(endpoints: Self.endpoints { $0.sdk.whenInvalid = .refuse })
        let refused = try strict.send("activity_batch", try strict.bearer(), body)
        #expect(refused.answer.status == 400 && refused.text == #"{"error":"invalid_payload"}"#)
    }

    /// The SDK measures property lists, not JSON.
    @Test func item_mayBeLargerThanABundle_upToAMebibyte() throws {
        let caller = Caller(endpoints: Self.endpoints { $0.bundleSize = 1024 })
        let bearer = try caller.bearer()
        func padded(_ size: Int) -> String {
            let start = Self.activity.dropLast() + #","x":""#
            return start + String(repeating: "x", count: size - start.utf8.count - 2) + "\"}"
        }
        #expect(try caller.send("activity", bearer, padded(1 << 20)).failures == [nil])
        #expect(try caller.send("activity", bearer, padded(1 << 20 + 1)).failures[0]?.contains("1048576") == true)
    }

    /// The app has decided to send already.
    @Test func reports_doNotWaitForAFlush() throws {
        let caller = Caller(endpoints: Self.endpoints { $0.reportsByItself = false })
        let item = try caller.send("activity", try caller.bearer(), Self.activity).submission?.items[0]
        #expect(try item?.validation.get() == ValidPayload(lane: .named("activity!direct", group: "activity")))
    }

    @Test func endpointsNeedCredentials() throws {
        #expect(throws: Setting.Problems.self) {
            try UpstreamType.seer.make(UpstreamName("seer")!, ["sdk.enabled": .bool(true)])
        }
        #expect(throws: Never.self) {
            try UpstreamType.seer.make(
                UpstreamName("seer")!,
                [
                    "sdk.enabled": .bool(true),
                    "sdk.clients": .records([
                        ["id": "a", "secretSha256": .text(String(repeating: "0", count: 64))]
                    ]),
                ])
        }
        for bad: [String: SettingValue] in [
            ["id": "a:b", "secretSha256": .text(String(repeating: "0", count: 64))], ["id": "a", "secretSha256": "00"],
            ["id": "a", "secretSha256": .text(String(repeating: "0", count: 64)), "x": "y"],
        ] {
            #expect(throws: Setting.Mismatch.self) {
                try UpstreamType.seer.check(
                    .records([bad]), of: try #require(UpstreamType.seer.settings.first { $0.name == "sdk.clients" }))
            }
        }
    }
}

extension String {
    fileprivate var lowercasedScheme: String { replacing("Bearer", with: "bEARER") }
}
