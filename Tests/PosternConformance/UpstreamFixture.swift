import PosternCore
import PosternJSON
import PosternTestKit
import PosternUpstreams
import Testing

/// What there is to know about a type of upstream for `Conformance`: settings, samples, golden requests and the meaning
/// of answers.
struct UpstreamFixture: Sendable, CustomTestStringConvertible {
    let type: UpstreamType
    /// Enough to make one, with a value for every secret.
    let settings: [String: SettingValue]
    /// Texts that must not show up anywhere but in requests.
    let secrets: [String]
    var token: Token?
    var state: [String: [UInt8]] = [:]
    /// What is held for the owners of the samples.
    var credentials: [String: HeldCredential] = [:]
    /// At least one for each kind.
    let good: [Sample]
    let bad: [BadSample]
    let golden: [GoldenRequest]
    let answers: [Answer]

    struct Sample: Sendable {
        let kind: Kind
        let text: String
        init(_ kind: Kind, _ text: String) {
            self.kind = kind
            self.text = text
        }
    }

    struct BadSample: Sendable {
        let sample: Sample
        /// Every fault, in the order reported.
        let pointers: [String]
        init(_ kind: Kind, _ text: String, _ pointers: String...) {
            sample = Sample(kind, text)
            self.pointers = pointers
        }
    }

    /// What is sent for `samples`, as in the file: method and URL, headers, an empty line, the body before compression.
    struct GoldenRequest: Sendable {
        let file: String
        var settings: [String: SettingValue] = [:]
        let samples: [Sample]
    }

    /// What an answer to a request with `samples` means.
    struct Answer: Sendable {
        let response: UpstreamResponse
        let verdict: Verdict
        var notice: String?
        var samples: Int = 1

        init(_ status: Int, _ body: String, _ verdict: Verdict, notice: String? = nil, samples: Int = 1) {
            response = UpstreamResponse(status: status, body: Array(body.utf8))
            self.verdict = verdict
            self.notice = notice
            self.samples = samples
        }

        init(_ status: Int, _ verdict: Verdict) { self.init(status, "", verdict) }

        /// What statuses mean to a type that overrides none.
        static let usual: [Answer] =
            [200, 201, 202, 204, 299].map { Answer($0, .delivered()) }
            + [401, 403].map {
                Answer($0, .holdUpstream(.credentials, detail: "answered \($0): the client is not let in"))
            }
            + [301, 302, 307, 404, 405, 406, 415].map {
                Answer($0, .holdUpstream(.configuration, detail: "answered \($0): nothing takes requests at this URL"))
            }
            + [400, 402, 409, 410, 413, 418, 422, 451].map { Answer($0, .split(reason: "answered \($0)")) }
            + [Answer(400, "no text", .split(reason: "answered 400: no text"))]
            + [408, 425, 429, 500, 501, 502, 503, 504, 599, 100, 700].map { Answer($0, .retry(after: nil)) }
    }

    var testDescription: String { type.name }
}

extension UpstreamFixture {
    /// 2016-11-24T12:01:04.057Z.
    static let now = Timestamp(milliseconds: 1_479_988_864_057)

    var admissionContext: AdmissionContext {
        AdmissionContext(acceptedAt: Self.now, random: { (0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210) })
    }

    var planContext: PlanContext {
        var state = DictionaryState(state)
        state.credentials = credentials
        return PlanContext(now: Self.now, token: token, state: state)
    }

    func make(_ others: [String: SettingValue] = [:]) throws -> RegisteredUpstream {
        let name = try #require(UpstreamName(type.name))
        return RegisteredUpstream(try type.make(name, settings.merging(others) { $1 }))
    }

    /// What happens to a payload on its way in.
    func admit(_ sample: Sample, to upstream: RegisteredUpstream) throws -> (admission: Admission, message: Message) {
        let admitted = try JSONParser().parse(Array(sample.text.utf8)) { payload throws(InvalidPayload) in
            let admission = try upstream.admit(payload, of: sample.kind, in: admissionContext)
            return (admission, admission.rewritten ?? Array(payload.bytes))
        }.get()
        let id = MessageID(sequence: 1, upstream: UpstreamNumber(rawValue: 1))
        let message = Message(
            id: id, kind: sample.kind, lane: admitted.0.lane, acceptedAt: Self.now, payload: admitted.1)
        return (admitted.0, message)
    }

    func messages(of samples: [Sample], to upstream: RegisteredUpstream) throws -> [Message] {
        try samples.map { try admit($0, to: upstream).message }
    }

    /// The request that carries all of `messages`.
    func request(for messages: [Message], to upstream: RegisteredUpstream) throws -> UpstreamRequest {
        guard case .send(let request, messages.count) = try upstream.plan(for: messages, in: planContext) else {
            throw NoRequest()
        }
        return request
    }

    struct NoRequest: Error {}

    func admit(_ sample: Sample, to upstream: any Upstream) throws -> (admission: Admission, message: Message) {
        try admit(sample, to: RegisteredUpstream(upstream))
    }
    func messages(of samples: [Sample], to upstream: any Upstream) throws -> [Message] {
        try messages(of: samples, to: RegisteredUpstream(upstream))
    }
    func request(for messages: [Message], to upstream: any Upstream) throws -> UpstreamRequest {
        try request(for: messages, to: RegisteredUpstream(upstream))
    }
}

extension UpstreamRequest {
    /// In the form of a golden request's file.
    var spelledOut: [UInt8] {
        var head = "\(method.rawValue) \(url)\n"
        for (name, value) in headers { head += "\(name): \(value)\n" }
        if gzip { head += "Content-Encoding: gzip\n" }
        return Array((head + "\n").utf8) + body
    }
}
