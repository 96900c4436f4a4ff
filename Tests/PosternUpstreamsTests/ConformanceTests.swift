import PosternCore
import PosternJSON
import PosternTestKit
import PosternUpstreams
import Testing

/// What every type of upstream keeps to.
@Suite struct ConformanceTests {
    @Test func everyType_hasItsFixture() {
        #expect(UpstreamRegistry.types.map(\.name) == UpstreamFixture.all.map(\.type.name))
    }

    /// The routes that are the same for all types are compared in `OpenAPITests`.
    @Test func resources_areThoseThatTheAPIDescribes() throws {
        let document = OpenAPIOutline(String(decoding: try Fixture.bytes("../../openapi/openapi.yaml"), as: UTF8.self))
        let known = try UpstreamFixture.all.flatMap { try $0.make().resources }
        // A resource that validates its query itself takes what its SDK sends, which is not listed.
        let unlisted = Set(known.filter { $0.query == nil }.map { "/v1/{upstream}/\($0.template)" })
        let described = document.operations
            .filter { $0.path.hasPrefix("/v1/{upstream}/") && $0.path != "/v1/{upstream}/{kind}" }
            .map { OpenAPIOutline.Operation($0.method, $0.path, query: unlisted.contains($0.path) ? nil : $0.query) }
        let resources = known.map { resource in
            OpenAPIOutline.Operation(
                resource.method.rawValue, "/v1/{upstream}/\(resource.template)", query: resource.query.map { Set($0) })
        }
        #expect(described == resources.sorted())
    }

    /// Design, section 3.5: whoever may only read changes nothing and calls nothing.
    @Test func resources_requireTheScopeOfWhatTheyDo() throws {
        for resource in try UpstreamFixture.all.flatMap({ try $0.make().resources }) {
            let expected: RouteAccess =
                switch (resource.method, resource.template) {
                case (_, "api/{command}/{action}"): .open
                case (.get, _), (_, "notifications/parse"): .scope(.read)
                default: .scope(.write)
                }
            #expect(resource.access == expected, "\(resource.template)")
        }
    }

    @Test(arguments: UpstreamFixture.all)
    func settings_haveDefaultsThatTheyTake(fixture: UpstreamFixture) {
        #expect(Set(fixture.type.settings.map(\.name)).count == fixture.type.settings.count)
        for setting in fixture.type.settings {
            #expect(throws: Never.self, "\(setting.name)") {
                try fixture.type.check(setting.defaultValue, of: setting)
            }
            #expect(!setting.summary.isEmpty, "\(setting.name)")
            if setting.isSecret { #expect(fixture.settings[setting.name] != nil, "\(setting.name) is not tried") }
        }
    }

    @Test(arguments: UpstreamFixture.all)
    func goodSamples_areAdmitted_asJSONInAFittingLane(fixture: UpstreamFixture) throws {
        let upstream = try fixture.make()
        #expect(Set(fixture.good.map(\.kind)) == Set(upstream.kinds))
        for sample in fixture.good {
            let (admission, message) = try fixture.admit(sample, to: upstream)
            #expect(throws: Never.self) { try JSONParser().parse(message.payload) { _ in }.get() }
            switch (upstream.laneRule, admission.lane) {
            case (.mixed, .none), (.mixed, .digest), (.separate, .named): break
            case (.mixed, .named), (.separate, .none), (.separate, .digest):
                Issue.record("\(admission.lane) does not go with \(upstream.laneRule)")
            }
        }
    }

    @Test(arguments: UpstreamFixture.all)
    func badSamples_areRefused_withEveryFaultAndNoValue(fixture: UpstreamFixture) throws {
        let upstream = try fixture.make()
        for bad in fixture.bad {
            let refusal = #expect(throws: InvalidPayload.self, "\(bad.sample.text)") {
                try fixture.admit(bad.sample, to: upstream)
            }
            guard let refusal else { continue }
            #expect(refusal.faults.map(\.pointer) == bad.pointers, "\(bad.sample.text)")
            #expect(!refusal.faults.contains { $0.description.contains("private") || $0.detail.isEmpty })
        }
        // Else the check for values above checks nothing.
        #expect(fixture.bad.contains { $0.sample.text.contains("private") })
    }

    @Test(arguments: UpstreamFixture.all)
    func requests_areTheGoldenOnes_byteForByte(fixture: UpstreamFixture) throws {
        for golden in fixture.golden {
            let upstream = try fixture.make(golden.settings)
            let messages = try fixture.messages(of: golden.samples, to: upstream)
            let request = try fixture.request(for: messages, to: upstream)
            let expected = try Fixture.bytes("\(fixture.type.name)/\(golden.file)")
            #expect(
                String(decoding: request.spelledOut, as: UTF8.self) == String(decoding: expected, as: UTF8.self),
                "\(golden.file)")
            #expect(request.spelledOut == expected, "\(golden.file)")
            #expect(try fixture.request(for: messages, to: upstream) == request, "a plan depends on its input alone")
        }
    }

    @Test(arguments: UpstreamFixture.all)
    func limits_areNotWiderThanConfigured(fixture: UpstreamFixture) throws {
        let upstream = try fixture.make()
        for configured in [BatchLimits(maxMessages: 1, maxBytes: 1000), .init(maxMessages: .max, maxBytes: 1 << 30)] {
            let limits = upstream.limits(configured)
            #expect((1...configured.maxMessages).contains(limits.maxMessages))
            #expect((1...configured.maxBytes).contains(limits.maxBytes))
        }
    }

    @Test(arguments: UpstreamFixture.all)
    func answers_meanWhatTheTableSays(fixture: UpstreamFixture) throws {
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

    @Test(arguments: UpstreamFixture.all, [408, 429, 502, 503, 504])
    func outage_blamesNobody_andItsRetryAfterIsObeyed(fixture: UpstreamFixture, status: Int) throws {
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

    @Test(arguments: UpstreamFixture.all)
    func anyAnswer_isJudged_andDeliversOnlyIfItIsASuccess(fixture: UpstreamFixture) throws {
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

    @Test(arguments: UpstreamFixture.all)
    func secrets_showInRequestsAlone(fixture: UpstreamFixture) throws {
        #expect(!fixture.secrets.isEmpty)
        let upstream = try fixture.make()
        var shown: [String] = ["\(upstream)", String(reflecting: upstream)]
        for status in [200, 202, 301, 400, 401, 403, 404, 413, 429, 500, 503] {
            shown.append("\(try judgement(on: .init(status: status), fixture, upstream))")
        }
        // Settings of the wrong form, with everything else as it was: what is said about them shows none either.
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

    private func judgement(
        on response: UpstreamResponse, samples: Int = 1, _ fixture: UpstreamFixture, _ upstream: any Upstream
    ) throws -> Judgement {
        let message = try fixture.admit(fixture.good[0], to: upstream).message
        let batch = Batch(id: BatchID(rawValue: 1), messages: Array(repeating: message, count: samples))
        return try upstream.judge(response, to: batch, in: fixture.planContext)
    }
}
