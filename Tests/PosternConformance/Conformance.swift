import Foundation
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

/// A rule that every type of upstream follows. Each type has a suite that checks all rules against its fixture.
package struct Conformance: Sendable, CustomTestStringConvertible {
    package let testDescription: String
    package let check: @Sendable (UpstreamFixture) async throws -> Void

    private init(_ name: String, _ check: @escaping @Sendable (UpstreamFixture) async throws -> Void) {
        testDescription = name
        self.check = check
    }

    package static let rules = [
        Conformance("settings_haveDefaultsThatTheyTake", settings_haveDefaultsThatTheyTake),
        Conformance("goodSamples_areAdmitted_asJSONInAFittingLane", goodSamples_areAdmitted_asJSONInAFittingLane),
        Conformance("badSamples_areRefused_withEveryFaultAndNoValue", badSamples_areRefused_withEveryFaultAndNoValue),
        Conformance("requests_areTheGoldenOnes_byteForByte", requests_areTheGoldenOnes_byteForByte),
        Conformance("limits_areNotWiderThanConfigured", limits_areNotWiderThanConfigured),
        Conformance("answers_meanWhatTheTableSays", answers_meanWhatTheTableSays),
        Conformance("outage_failsNoMessage_andItsRetryAfterIsObeyed", outage_failsNoMessage_andItsRetryAfterIsObeyed),
        Conformance("proxyAndWrongConnection_failNoMessage", proxyAndWrongConnection_failNoMessage),
        Conformance(
            "anyAnswer_isJudged_andDeliversOnlyIfItIsASuccess", anyAnswer_isJudged_andDeliversOnlyIfItIsASuccess),
        Conformance("statusThatDecides_meansTheSame_withAnyBody", statusThatDecides_meansTheSame_withAnyBody),
        Conformance("tokens_areVerifiedAtTheStart_unlessASettingSaysOtherwise", tokens_areVerifiedAtTheStart),
        Conformance("secrets_showInRequestsAlone", secrets_showInRequestsAlone),
        Conformance("sdks_areAnsweredInThePlatformsForm_withNoSecret", sdks_areAnsweredInThePlatformsForm),
        Conformance("echoedSecrets_areMasked", echoedSecrets_areMasked),
        Conformance(
            "probe_saysWhatItFound_changesNothing_andShowsNoSecret",
            probe_saysWhatItFound_changesNothing_andShowsNoSecret),
    ]

    private static func settings_haveDefaultsThatTheyTake(fixture: UpstreamFixture) {
        #expect(Set(fixture.type.settings.map(\.name)).count == fixture.type.settings.count)
        for setting in fixture.type.settings {
            #expect(throws: Never.self, "\(setting.name)") {
                try fixture.type.check(setting.defaultValue, of: setting)
            }
            #expect(!setting.summary.isEmpty, "\(setting.name)")
            if setting.isSecret { #expect(fixture.settings[setting.name] != nil, "\(setting.name) is not tried") }
        }
    }

    private static func goodSamples_areAdmitted_asJSONInAFittingLane(fixture: UpstreamFixture) throws {
        let upstream = try fixture.make()
        #expect(Set(fixture.good.map(\.kind)) == Set(upstream.kinds))
        for sample in fixture.good {
            let (valid, message) = try fixture.validate(sample, to: upstream)
            #expect(throws: Never.self) { try JSONParser().parse(message.payload) { _ in }.get() }
            switch (upstream.traits.laneRule, valid.lane) {
            case (.acrossLanes, .none), (.acrossLanes, .digest), (.perLane, .named): break
            case (.acrossLanes, .named), (.perLane, .none), (.perLane, .digest):
                Issue.record("\(valid.lane) does not go with \(upstream.traits.laneRule)")
            }
        }
    }

    private static func badSamples_areRefused_withEveryFaultAndNoValue(fixture: UpstreamFixture) throws {
        let upstream = try fixture.make()
        for bad in fixture.bad {
            let refusal = #expect(throws: InvalidPayload.self, "\(bad.sample.text)") {
                try fixture.validate(bad.sample, to: upstream)
            }
            guard let refusal else { continue }
            #expect(refusal.faults.kept.map(\.pointer) == bad.pointers, "\(bad.sample.text)")
            #expect(!refusal.faults.kept.contains { $0.description.contains("private") || $0.detail.isEmpty })
        }
        // Otherwise, the check of the values above could not fail.
        #expect(fixture.bad.contains { $0.sample.text.contains("private") })
    }

    private static func requests_areTheGoldenOnes_byteForByte(fixture: UpstreamFixture) throws {
        for golden in fixture.golden {
            let upstream = try fixture.make(golden.settings)
            let messages = try fixture.messages(of: golden.samples, to: upstream)
            let request = try fixture.request(for: messages, to: upstream)
            let expected = try Fixture.bytes(golden.file, of: fixture.file)
            #expect(
                String(decoding: request.spelledOut, as: UTF8.self) == String(decoding: expected, as: UTF8.self),
                "\(golden.file)")
            #expect(request.spelledOut == expected, "\(golden.file)")
            #expect(try fixture.request(for: messages, to: upstream) == request, "a plan depends on its input alone")
        }
    }

    private static func limits_areNotWiderThanConfigured(fixture: UpstreamFixture) throws {
        let upstream = try fixture.make()
        for configured in [BatchLimits(maxMessages: 1, maxBytes: 1000), .init(maxMessages: .max, maxBytes: 1 << 30)] {
            let limits = upstream.limits(configured)
            #expect((1...configured.maxMessages).contains(limits.maxMessages))
            #expect((1...configured.maxBytes).contains(limits.maxBytes))
        }
    }

    private static func answers_meanWhatTheTableSays(fixture: UpstreamFixture) throws {
        let upstream = try fixture.make()
        for answer in fixture.answers {
            let judgement = try judgement(on: answer.response, samples: answer.samples, fixture, upstream)
            let label = Comment(
                rawValue: "\(answer.response.status) \(String(decoding: answer.response.body, as: UTF8.self))")
            #expect(judgement.verdict == answer.verdict, label)
            #expect(judgement.notice == answer.notice, label)
        }
        let usual: Set = [200, 301, 302, 400, 401, 403, 404, 408, 413, 429, 500, 502, 503, 504]
        #expect(usual.subtracting(fixture.answers.map(\.response.status)).isEmpty, "the table lacks these")
    }

    private static func outage_failsNoMessage_andItsRetryAfterIsObeyed(fixture: UpstreamFixture) throws {
        for status in [408, 429, 502, 503, 504] { try outage(status, failsNoMessage: fixture) }
    }

    private static func outage(_ status: Int, failsNoMessage fixture: UpstreamFixture) throws {
        let upstream = try fixture.make()
        let answers: [(headers: [(name: String, value: String)], after: Duration?)] = [
            ([], nil), ([("retry-after", "7")], .seconds(7)), ([("Retry-After", "soon")], nil),
            ([("Retry-After", "Thu, 24 Nov 2016 12:01:34 GMT")], .milliseconds(29943)),
        ]
        for (headers, after) in answers {
            let response = UpstreamResponse(status: status, headers: headers, body: Array("private".utf8))
            #expect(try judgement(on: response, fixture, upstream).verdict == .retry(after: after))
        }
    }

    /// 407 is about the way to the upstream, and 421 about the connection, whatever was sent and whatever the body says.
    private static func proxyAndWrongConnection_failNoMessage(fixture: UpstreamFixture) throws {
        for golden in fixture.golden {
            let upstream = try fixture.make(golden.settings)
            let messages = try fixture.messages(of: golden.samples, to: upstream)
            guard let request = try? fixture.request(for: messages, to: upstream) else { continue }
            let batch = Batch(id: BatchID(rawValue: 1), messages: messages, request: request)
            for body in ["", "<html>", "{}"] {
                func verdict(_ status: Int) throws -> Verdict {
                    let response = UpstreamResponse(
                        status: status, headers: [("Retry-After", "7")], body: Array(body.utf8))
                    return upstream.judge(.success(response), to: batch, in: fixture.planContext).judgement.verdict
                }
                guard case .holdUpstream(.configuration, let detail) = try verdict(407) else {
                    Issue.record("\(golden.file) \(body): \(try verdict(407))")
                    continue
                }
                #expect(detail.hasPrefix("HTTP 407: "))
                #expect(try verdict(421) == .retry(after: .seconds(7)), "\(golden.file) \(body)")
            }
        }
        guard let source = try fixture.make().tokenSource else { return }
        for status in [407, 421] {
            let error = #expect(throws: Token.Failure.self) {
                try source.token(from: UpstreamResponse(status: status), now: UpstreamFixture.now)
            }
            #expect(error?.credentialsRefused == false, "\(status)")
        }
    }

    private static func anyAnswer_isJudged_andDeliversOnlyIfItIsASuccess(fixture: UpstreamFixture) throws {
        let upstream = try fixture.make()
        let bodies = ["", "<html>", "{", "[\"OK\"", "null", "[]", "{}", "\"\"", "[1,{\"a\":[]}]", "{\"status\":7}"]
        for status in [0, 100, 101, 199, 600, 999] + Array(200...599) {
            for body in bodies.map({ Array($0.utf8) }) + [[0xFF, 0xFE, 0]] {
                let verdict = try judgement(on: .init(status: status, body: body), fixture, upstream).verdict
                switch verdict {
                case .delivered, .proceed: #expect((200..<300).contains(status), "\(status)")
                case .each(let items): #expect(items.count == 1)
                case .retry, .backOff, .suspect, .refreshToken, .holdUpstream, .park, .split, .reject: break
                }
            }
        }
    }

    /// A response counts without its body exactly if the body could not change what it means.
    private static func statusThatDecides_meansTheSame_withAnyBody(fixture: UpstreamFixture) throws {
        let bodies = fixture.answers.map(\.response.body) + ["", "{", "[\"OK\"", "{}"].map { Array($0.utf8) }
        let ownStatuses = Set(fixture.answers.map(\.response.status))
        for golden in fixture.golden {
            let upstream = try fixture.make(golden.settings)
            let messages = try fixture.messages(of: golden.samples, to: upstream)
            guard let request = try? fixture.request(for: messages, to: upstream) else { continue }
            let batch = Batch(id: BatchID(rawValue: 1), messages: messages, request: request)
            for status in 200...599 where request.statusDecides(status) {
                let headers = [(name: "Retry-After", value: "60")]
                // A status without a row of its own in the table is tried with some of the bodies, each with others.
                let some = stride(from: status % 8, to: bodies.count, by: 8).map { bodies[$0] }
                let verdicts = (ownStatuses.contains(status) ? bodies : [[]] + some).flatMap { body in
                    [body, Array(body.prefix(body.count / 2))].map {
                        let response = UpstreamResponse(status: status, headers: headers, body: $0)
                        return upstream.judge(.success(response), to: batch, in: fixture.planContext).judgement
                            .verdict.withoutText
                    }
                }
                #expect(verdicts.allSatisfy { $0 == verdicts[0] }, "\(golden.file) \(status)")
            }
        }
        guard let source = try fixture.make().tokenSource else { return }
        for status in 200...599 {
            #expect(source.tokenRequest.statusDecides(status) == !(200...299).contains(status))
        }
    }

    /// A type has the setting exactly if it can fetch a token.
    private static func tokens_areVerifiedAtTheStart(fixture: UpstreamFixture) throws {
        let (upstream, name) = (try fixture.make(), "verifyAtStart")
        let setting = fixture.type.settings.first { $0.name == name }
        #expect((upstream.base is any TokenUpstream) == (setting != nil))
        guard let setting else { return }
        #expect(setting.defaultValue == .bool(true))
        let fetches = upstream.tokenSource != nil
        #expect(try fixture.make([name: .bool(true)]).verifiesAtStart == fetches)
        #expect(try !fixture.make([name: .bool(false)]).verifiesAtStart)
        #expect(upstream.verifiesAtStart == fetches)
    }

    private static func secrets_showInRequestsAlone(fixture: UpstreamFixture) throws {
        #expect(!fixture.secrets.isEmpty)
        let upstream = try fixture.make()
        var shown: [String] = ["\(upstream)", String(reflecting: upstream)]
        for status in [200, 202, 301, 400, 401, 403, 404, 413, 429, 500, 503] {
            shown.append("\(try judgement(on: .init(status: status), fixture, upstream))")
        }
        // Settings of the wrong type, one at a time: the problems that are reported do not contain a secret, either.
        for setting in fixture.type.settings {
            guard case .text = setting.defaultValue else { continue }
            for wrong in ["", "\u{7}", "ftp://user:\(fixture.secrets[0])@host"] {
                do { _ = try fixture.make([setting.name: .text(wrong)]) } catch { shown.append("\(error)") }
            }
        }
        for secret in fixture.secrets {
            for text in shown { #expect(!text.contains(secret)) }
        }
    }

    /// Whatever an SDK sends, and whatever prevents its call: the answer is none of the gateway's own, and has no secret.
    private static func sdks_areAnsweredInThePlatformsForm(fixture: UpstreamFixture) async throws {
        guard fixture.type.settings.contains(where: { $0.name == "sdk.enabled" }) else { return }
        let endpoints = try #require(try fixture.make(["sdk.enabled": .bool(true)]).sdk)
        let reasons: [SDKRefusal] = [
            .notFound, .methodNotAllowed("POST"), .unauthorized, .forbidden, .malformed, .tooLarge, .noRoom,
        ]
        var answers = reasons.map(endpoints.refusal)
        let bodies =
            ["", " ", "{", "[]", "{}", "null", "\"\\ud800\"", "a=b&a=%zz&%", "\u{0}"] + fixture.good.map(\.text)
            + fixture.good.map { "[\($0.text)]" } + fixture.good.map { String($0.text.dropLast()) }
            + fixture.bad.map(\.sample.text)
        let types = [nil, "application/json", "application/x-www-form-urlencoded"] as [String?]
        for route in endpoints.routes {
            #expect(route.call.wholeMatch(of: #/[a-z][a-z_]*/#) != nil, "\(route.call)")
            for authorization in [nil, "Bearer x", "Basic eDp5", "Basic ?"] as [String?] {
                for type in types {
                    for body in bodies {
                        let request = SDKRequest(
                            method: route.method.rawValue, path: "\(endpoints.prefix)/\(route.template)",
                            headers: { ["Authorization": authorization, "Content-Type": type][$0] ?? nil },
                            body: Array(body.utf8), receivedAt: UpstreamFixture.now)
                        if case .head(let check) = route.access, let answer = check(request) { answers.append(answer) }
                        do throws(SDKAnswer) {
                            switch route.response {
                            case .answer(let answer): answers.append(try answer(request))
                            case .store(let read):
                                let submission = try read(request)
                                answers.append(submission.answer(SDKReceipt(ids: [])))
                                let whole = 0...submission.bytes.count
                                #expect(submission.items.allSatisfy { whole.contains($0.range.upperBound) })
                            case .perform: break
                            }
                        } catch {
                            answers.append(error)
                        }
                    }
                }
            }
        }
        for answer in answers where !answer.isDropped {
            #expect((200..<500).contains(answer.status) || answer.status == 503, "\(answer.status)")
            let text = String(decoding: answer.body, as: UTF8.self)
            #expect(!answer.headers.contains { $0.name == "Content-Type" && $0.value.contains("problem") })
            for secret in fixture.secrets { #expect(!text.contains(secret), "\(text)") }
        }
    }

    /// An upstream that echoes what it was sent, in any encoding: no secret in it is logged, shown, or stored.
    private static func echoedSecrets_areMasked(fixture: UpstreamFixture) throws {
        var (quoted, masked) = (0, 0)
        for golden in fixture.golden {
            let upstream = try fixture.make(golden.settings)
            let messages = try fixture.messages(of: golden.samples, to: upstream)
            guard let request = try? fixture.request(for: messages, to: upstream) else { continue }
            let batch = Batch(id: BatchID(rawValue: 1), messages: messages, request: request)
            let inUse =
                [fixture.token?.value].compactMap(\.self) + request.proofs
                + fixture.credentials.values.map { String(decoding: $0.value, as: UTF8.self) }
                .filter { value in request.headers.contains { $0.value.contains(value) } }
            let secrets = fixture.secrets + inUse
            for echo in secrets.flatMap(spellings) + [String(decoding: request.spelledOut, as: UTF8.self)] {
                for body in bodies(with: echo, count: messages.count) {
                    for status in [200, 202, 400, 401, 403, 404, 409, 413, 500, 503] {
                        let response = UpstreamResponse(status: status, body: Array(body.utf8))
                        let texts = texts(
                            of: upstream.judge(.success(response), to: batch, in: fixture.planContext).judgement)
                        masked += texts.count { $0.contains("***") }
                        quoted += texts.count { $0.contains("xxxx") || $0.contains("yyyy") }
                        for text in texts {
                            for piece in secrets.flatMap(spellings) where text.contains(piece) {
                                Issue.record("\(status) \(body) shows \(piece): \(text)")
                                return
                            }
                        }
                    }
                }
            }
        }
        #expect(masked > 0 || quoted == 0, "nothing was echoed")
    }

    private static func probe_saysWhatItFound_changesNothing_andShowsNoSecret(fixture: UpstreamFixture) async throws {
        let unreachable = TransferFailure(.unreachable, mayHaveArrived: false, detail: "no such host")
        let echo = fixture.secrets.joined(separator: " ")
        let results: [TransferResult] = [
            .failure(unreachable), .success(.init(status: 200)), .success(.init(status: 500, body: Array(echo.utf8))),
            .success(.init(status: 401, body: Array(echo.utf8))), .success(.init(status: 404)),
            .success(.init(status: 200, body: Array(#"{"error":\#(JSONEscapes.quoted(echo))}"#.utf8))),
        ]
        for result in results {
            let upstream = try fixture.make()
            let context = ProbeContext(result)
            let report = await upstream.probe(in: context)
            let label = Comment(rawValue: "\(result): \(report)")
            #expect(!report.detail.isEmpty && !fixture.secrets.contains(where: report.detail.contains), label)
            #expect(context.sent.count <= 1 && context.changes == 0, label)
            let request = try #require(context.sent.first, label)
            switch result {
            case .success where request.onlyConnects:
                #expect(report.outcome == .ok && report.status == nil, label)
            case .failure: #expect(report.outcome == .unreachable && report.status == nil, label)
            case .success(let response):
                #expect(report.outcome != .unreachable && report.status == response.status, label)
                #expect(report.outcome != .ok, "nothing in the response shows it: \(report)")
                #expect(response.status != 401 || report.outcome == .unauthorized, label)
            }
        }
    }

    private static func spellings(_ secret: String) -> [String] {
        let bytes = Array(secret.utf8)
        return [
            secret, String(JSONEscapes.quoted(secret).dropFirst().dropLast()),
            bytes.map { "%" + ($0 < 16 ? "0" : "") + String($0, radix: 16, uppercase: true) }.joined(),
            secret.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? secret,
            Data(bytes).base64EncodedString().replacingOccurrences(of: "=", with: ""),
        ]
    }

    /// In fields that a type reads for keywords, and in others.
    private static func bodies(with echo: String, count: Int) -> [String] {
        let text = JSONEscapes.quoted(String(repeating: "x", count: 380) + echo)
        let short = JSONEscapes.quoted(echo)
        return [
            echo, String(repeating: "y", count: 395) + echo,
            "{\"error\":\"illegal_argument\",\"error_description\":\(short)}",
            "{\"error\":\"illegal_argument\",\"error_description\":\(text)}",
            "{\"status\":\"ERROR\",\"message\":\(text)}",
            "{\"status\":\"OK\",\"warning\":\(short)}", "{\"fault\":{\"detail\":{\"errorcode\":\(short)}}}",
            "{\"header\":{\"status\":100,\"statusmessage\":\(text)},\"body\":\(short)}",
            "{\"header\":{\"status\":0,\"statusmessage\":\"OK\"},\"body\":\(short)}",
            "[" + Array(repeating: text, count: count).joined(separator: ",") + "]",
        ]
    }

    private static func texts(of judgement: Judgement) -> [String] {
        var texts = [
            judgement.notice?.text, judgement.notice?.quote, judgement.reason,
            judgement.refusal.map { String(decoding: $0, as: UTF8.self) },
        ]
        switch judgement.verdict {
        case .delivered(let result): texts.append(result.map { String(decoding: $0, as: UTF8.self) })
        case .each(let items): texts.append("\(items)")
        case .holdUpstream(_, let detail): texts.append(detail)
        case .split(let reason), .reject(let reason): texts.append(reason)
        case .proceed, .retry, .backOff, .suspect, .refreshToken, .park: break
        }
        return texts.compactMap(\.self)
    }

    private static func judgement(
        on response: UpstreamResponse, samples: Int = 1, _ fixture: UpstreamFixture, _ upstream: AnyUpstream
    ) throws -> Judgement {
        let message = try fixture.validate(fixture.good[0], to: upstream).message
        let batch = Batch(id: BatchID(rawValue: 1), messages: Array(repeating: message, count: samples))
        return upstream.judge(.success(response), to: batch, in: fixture.planContext).judgement
    }
}

extension Verdict {
    /// Without what is quoted from a response.
    fileprivate var withoutText: Verdict {
        switch self {
        case .delivered: .delivered()
        case .holdUpstream(let reason, _): .holdUpstream(reason, detail: "")
        case .split: .split(reason: "")
        case .reject: .reject(reason: "")
        case .proceed, .each, .retry, .backOff, .suspect, .refreshToken, .park: self
        }
    }
}
