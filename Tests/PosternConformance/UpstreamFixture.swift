package import PosternCore
import PosternTestKit
package import PosternUpstream
import Testing

/// What there is to know about a type of upstream for `Conformance`: settings, samples, golden requests and the meaning
/// of answers.
package struct UpstreamFixture: Sendable, CustomTestStringConvertible {
    package let type: UpstreamType
    /// The required settings, and a value for every secret.
    package let settings: [String: SettingValue]
    /// Texts that must not appear anywhere except in requests.
    package let secrets: [String]
    package var token: Token?
    package var state: [String: [UInt8]] = [:]
    /// The credentials that are stored for the owners of the samples.
    package var credentials: [String: HeldCredential] = [:]
    /// At least one for each kind.
    package let good: [Sample]
    package let bad: [BadSample]
    package let golden: [GoldenRequest]
    package let answers: [Answer]
    /// The source file that describes it.
    let file: StaticString

    package init(
        type: UpstreamType, settings: [String: SettingValue], secrets: [String], token: Token? = nil,
        state: [String: [UInt8]] = [:], credentials: [String: HeldCredential] = [:], good: [Sample], bad: [BadSample],
        golden: [GoldenRequest], answers: [Answer], file: StaticString = #filePath
    ) {
        (self.type, self.settings, self.secrets, self.token) = (type, settings, secrets, token)
        (self.state, self.credentials, self.good, self.bad) = (state, credentials, good, bad)
        (self.golden, self.answers, self.file) = (golden, answers, file)
    }

    package struct Sample: Sendable {
        package let kind: Kind
        package let text: String
        package init(_ kind: Kind, _ text: String) {
            self.kind = kind
            self.text = text
        }
    }

    package struct BadSample: Sendable {
        package let sample: Sample
        /// Every fault, in the order reported.
        package let pointers: [String]

        package init(_ kind: Kind, _ text: String, _ pointers: String...) {
            self.init(sample: Sample(kind, text), pointers: pointers)
        }

        package init(sample: Sample, pointers: [String]) { (self.sample, self.pointers) = (sample, pointers) }
    }

    /// The request for `samples`, as in the file: method and URL, headers, an empty line, the uncompressed body.
    package struct GoldenRequest: Sendable {
        package let file: String
        package var settings: [String: SettingValue] = [:]
        package let samples: [Sample]

        package init(file: String, settings: [String: SettingValue] = [:], samples: [Sample]) {
            (self.file, self.settings, self.samples) = (file, settings, samples)
        }
    }

    /// The meanings of responses to a request with `samples`.
    package struct Answer: Sendable {
        package let response: UpstreamResponse
        package let verdict: Verdict
        package var notice: UpstreamNotice?
        package var samples: Int = 1

        package init(_ status: Int, _ body: String, _ verdict: Verdict, notice: UpstreamNotice? = nil, samples: Int = 1)
        {
            response = UpstreamResponse(status: status, body: Array(body.utf8))
            self.verdict = verdict
            self.notice = notice
            self.samples = samples
        }

        package init(_ status: Int, _ verdict: Verdict) { self.init(status, "", verdict) }

        /// Statuses that are not about the payload.
        package static let ofAnyPayload: [Answer] =
            [420, 449, 460, 499].map { Answer($0, .retry(after: nil)) }
            + [
                Answer(
                    402,
                    .holdUpstream(.credentials, detail: "HTTP 402: the account of these credentials has to be paid"))
            ]
            + [411, 414, 417, 426, 428, 431, 463, 464, 494, 497].map {
                Answer(
                    $0,
                    .holdUpstream(
                        .configuration, detail: "HTTP \($0): the form of the request was rejected, not its payload"))
            }

        /// The meanings of statuses for a type that overrides none.
        package static let usual: [Answer] =
            [200, 201, 202, 204, 299].map { Answer($0, .delivered()) }
            + [401, 403].map {
                Answer($0, .holdUpstream(.credentials, detail: "HTTP \($0): the client was rejected"))
            }
            + [301, 302, 307, 404, 405, 406, 415].map {
                Answer($0, .holdUpstream(.configuration, detail: "HTTP \($0): there is no such endpoint at this URL"))
            }
            + Answer.ofAnyPayload
            + [400, 409, 410, 413, 418, 422, 423, 451].map { Answer($0, .split(reason: "HTTP \($0)")) }
            + [Answer(400, "no text", .split(reason: "HTTP 400: no text"))]
            + [Answer(407, .holdUpstream(.configuration, detail: "HTTP 407: a proxy requires credentials"))]
            + [408, 421, 425, 429, 500, 501, 502, 503, 504, 599, 100, 700].map { Answer($0, .retry(after: nil)) }
    }

    package var testDescription: String { type.name }
}

extension UpstreamFixture {
    /// 2016-11-24T12:01:04.057Z.
    package static let now = Timestamp(milliseconds: 1_479_988_864_057)

    package var planContext: PlanContext {
        var state = DictionaryState(state)
        state.credentials = credentials
        return PlanContext(now: Self.now, token: token, state: state)
    }

    package func make(_ others: [String: SettingValue] = [:]) throws -> AnyUpstream {
        let name = try #require(UpstreamName(type.name))
        return AnyUpstream(try type.make(name, settings.merging(others) { $1 }))
    }

    /// The changes that acceptance makes to a payload.
    package func validate(
        _ sample: Sample, to upstream: AnyUpstream, at now: Timestamp = Self.now, sequence: Int64 = 1
    ) throws -> (valid: ValidPayload, message: Message) {
        let context = ValidationContext(
            acceptedAt: now, random: { (0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210) })
        return try JSONParser().parse(Array(sample.text.utf8)) { payload throws(InvalidPayload) in
            let valid = try upstream.validate(payload, of: sample.kind, in: context)
            let message = Message(
                id: MessageID(sequence: sequence, upstream: UpstreamNumber(rawValue: 1)), kind: sample.kind,
                lane: valid.lane, acceptedAt: now, payload: valid.rewritten ?? Array(payload.bytes))
            return (valid, message)
        }.get()
    }

    package func messages(of samples: [Sample], to upstream: AnyUpstream) throws -> [Message] {
        try samples.map { try validate($0, to: upstream).message }
    }

    /// The request that carries all of `messages`.
    package func request(for messages: [Message], to upstream: AnyUpstream) throws -> UpstreamRequest {
        guard case .send(let request, messages.count) = upstream.plan(for: messages, in: planContext) else {
            throw NoRequest()
        }
        return request
    }

    package struct NoRequest: Error {}
}

extension UpstreamRequest {
    /// In the format of a golden request's file.
    package var spelledOut: [UInt8] {
        var head = "\(method.rawValue) \(url)\n"
        for (name, value) in headers { head += "\(name): \(value)\n" }
        if gzip { head += "Content-Encoding: gzip\n" }
        return Array((head + "\n").utf8) + body
    }
}
