import PosternCore
import PosternJSON
import PosternTestKit
import PosternUpstreams
import Testing

/// What there is to know about a type of upstream for `ConformanceTests`: settings, samples, golden requests and the
/// meaning of answers. A new type is tested by describing it here and in `all`.
struct UpstreamFixture: Sendable, CustomTestStringConvertible {
    static let all = [samsara, seer, curio, appservices, streamone]

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

    func make(_ others: [String: SettingValue] = [:]) throws -> any Upstream {
        let name = try #require(UpstreamName(type.name))
        return try type.make(name, settings.merging(others) { $1 })
    }

    /// What happens to a payload on its way in.
    func admit(_ sample: Sample, to upstream: any Upstream) throws -> (admission: Admission, message: Message) {
        let admitted = try JSONParser().parse(Array(sample.text.utf8)) { payload throws(InvalidPayload) in
            let admission = try upstream.admit(payload, of: sample.kind, in: admissionContext)
            return (admission, admission.rewritten ?? Array(payload.bytes))
        }.get()
        let id = MessageID(sequence: 1, upstream: UpstreamNumber(rawValue: 1))
        let message = Message(
            id: id, kind: sample.kind, lane: admitted.0.lane, acceptedAt: Self.now, payload: admitted.1)
        return (admitted.0, message)
    }

    func messages(of samples: [Sample], to upstream: any Upstream) throws -> [Message] {
        try samples.map { try admit($0, to: upstream).message }
    }

    /// The request that carries all of `messages`.
    func request(for messages: [Message], to upstream: any Upstream) throws -> UpstreamRequest {
        guard case .send(let request, messages.count) = try upstream.plan(for: messages, in: planContext) else {
            throw NoRequest()
        }
        return request
    }

    struct NoRequest: Error {}
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
