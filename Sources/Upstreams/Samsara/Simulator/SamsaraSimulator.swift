import PosternCore
public import PosternSimulatorKit

/// The ingestion API of Samsara 0.5.7 (port 9000).
///
/// The responses are those of the real server. Beyond its limit on header lines, there is no response at all. What a
/// gateway must never send according to the specification gets the real response and is noted as a violation.
struct SamsaraSimulator: Simulator {
    let name = "samsara"
    let orderField = "sourceId"
    /// The flag for load balancers; it has no effect on events.
    var isOnline = true

    // The limits of a gateway; the server itself has none.
    private static let maxEvents = 10_000
    /// The maximum size of a request before compression.
    private static let maxBatchBytes = 1 << 20
    private static let maxEventBytes = 262_144

    func judge(_ request: SimulatedRequest, poisons: [Faults.Poison]) -> SimulatedResult {
        // Aleph's limit on all header lines together.
        guard request.headers.reduce(0, { $0 + $1.name.utf8.count + $1.value.utf8.count + 2 }) <= 8196 else {
            return SimulatedResult(
                answer: nil, violations: ["header lines of more than 8196 bytes: the server never answers"])
        }
        switch (request.method, request.path) {
        case ("POST", "/v1/events"): return judgeEvents(request, poisons)
        case ("GET", "/v1/api-status"), ("HEAD", "/v1/api-status"):
            return SimulatedResult(
                answer: isOnline
                    ? .json(200, #"{"status":"online"}"#) : .json(503, #"{"status":"offline"}"#))
        default:
            let isBelowV1 = request.path == "/v1" || request.path.hasPrefix("/v1/")
            return SimulatedResult(
                answer: isBelowV1 && !isJSON(request.header("Content-Type")) ? Self.wrongType : Self.notFound,
                violations: ["\(request.method) \(request.path): there is no such endpoint"])
        }
    }

    /// 500 and 503 are the server's own; everything else is sent by an intermediary.
    func answer(status: Int) -> SimulatedAnswer {
        switch status {
        case 500: SimulatedAnswer(status: 500)
        case 503: Self.plain(503, "503 Service Unavailable")
        case 300..<400:
            SimulatedAnswer(status: status, headers: [("Location", "/elsewhere")])
        default: Self.plain(status, "\(status) from something in front")
        }
    }

    // MARK: POST /v1/events, in the server's order

    private func judgeEvents(_ request: SimulatedRequest, _ poisons: [Faults.Poison]) -> SimulatedResult {
        let violations = headerViolations(of: request)
        var body = request.body
        if request.header("Content-Encoding")?.lowercased() == "gzip" {
            guard let plain = gunzip(body) else {
                return SimulatedResult(answer: Self.failed, violations: violations + ["the gzip data cannot be read"])
            }
            body = plain
        }
        let type = request.header("Content-Type")
        var result = body.withUnsafeBufferPointer { text -> SimulatedResult in
            let content = startsLikeJSON(type) ? Body(text) : .nothing
            if case .malformed = content {
                return SimulatedResult(answer: Self.malformed, violations: ["the body is not JSON"])
            }
            guard isJSON(type) else { return SimulatedResult(answer: Self.wrongType) }
            let published = request.header("X-Samsara-publishedTimestamp")
            if let published, Int64(published) == nil { return SimulatedResult(answer: Self.wrongTimestamp) }
            return judge(content, text, isPublished: published != nil, poisons)
        }
        result.violations = violations + result.violations
        result.setText(body)
        return result
    }

    private func judge(
        _ content: Body, _ text: UnsafeBufferPointer<UInt8>, isPublished: Bool, _ poisons: [Faults.Poison]
    ) -> SimulatedResult {
        let accepted = isPublished ? SimulatedAnswer(status: 202) : Self.acceptedWithWarning
        switch content {
        case .malformed, .nothing:
            return SimulatedResult(answer: accepted, violations: ["a body without events"])
        case .broken: return SimulatedResult(answer: Self.failed, violations: ["the JSON breaks inside the array"])
        case .notAnArray: return SimulatedResult(answer: Self.failed, violations: ["the body is not an array"])
        case .events(let events, let oddities):
            var violations = bodyViolations(events, oddities, text)
            guard events.allSatisfy(\.isValid) else {
                let complaints = events.map { quoted($0.complaint(in: text)) }
                return SimulatedResult(
                    answer: .json(400, "[\(complaints.joined(separator: ","))]"),
                    violations: violations + ["an event that the server refuses"])
            }
            for event in events { record(event, text, in: &violations) }
            if let refusal = refusal(of: events, text, poisons) {
                var result = SimulatedResult(answer: refusal, violations: violations)
                result.rejected.ranges = poisons.hits(events.map(\.range), of: text)
                return result
            }
            let items = SimulatedResult.Items(
                ranges: events.map(\.range), identities: events.map { identity(of: $0, in: text) })
            return SimulatedResult(answer: accepted, items: items, violations: violations)
        }
    }

    private func refusal(
        of events: [Event], _ text: UnsafeBufferPointer<UInt8>, _ poisons: [Faults.Poison]
    ) -> SimulatedAnswer? {
        for poison in poisons {
            let hits = events.map { poison.matches(.init(rebasing: text[$0.range])) }
            guard hits.contains(true) else { continue }
            switch poison.answer {
            case .failure: return Self.failed
            case .tooLarge: return Self.plain(413, "413 Request Entity Too Large")
            case .refusal: return Self.plain(400, "Bad Request")
            case .unauthorized, .forbidden, .absent: return Self.plain(poison.status, "not from Samsara")
            case .naming:
                let words = hits.map { $0 ? quoted("{:\(poison.field) (not (poison))}") : "\"OK\"" }
                return .json(400, "[\(words.joined(separator: ","))]")
            }
        }
        return nil
    }

    /// By its `id` if it has one, because that is the document's id downstream, or else by its text.
    private func identity(of event: Event, in text: UnsafeBufferPointer<UInt8>) -> UInt64 {
        digest(.init(rebasing: text[event.id.map(\.range) ?? event.range]))
    }

    // MARK: What a gateway must not do

    private func headerViolations(of request: SimulatedRequest) -> [String] {
        var violations: [String] = []
        if request.query != nil { violations.append("a query string on /v1/events") }
        switch request.header("Content-Type") {
        case nil: violations.append("no Content-Type")
        case "application/json": break
        case _?: violations.append("a Content-Type other than application/json")
        }
        switch request.header("X-Samsara-publishedTimestamp") {
        case nil: violations.append("no X-Samsara-publishedTimestamp")
        case let published?:
            let isPlain = !published.isEmpty && published.utf8.allSatisfy(\.isDigit)
            if !isPlain || Int64(published) == nil {
                violations.append("an X-Samsara-publishedTimestamp that is not a number of milliseconds")
            }
        }
        if let coding = request.header("Content-Encoding"), coding != "gzip", coding != "identity" {
            violations.append("a Content-Encoding other than gzip and identity")
        }
        return violations
    }

    private func bodyViolations(
        _ events: [Event], _ oddities: Body.Oddities, _ text: UnsafeBufferPointer<UInt8>
    ) -> [String] {
        var violations: [String] = []
        if events.isEmpty { violations.append("an empty batch") }
        if events.count > Self.maxEvents { violations.append("a batch of more than \(Self.maxEvents) events") }
        // A single event has a bound of its own.
        if events.count > 1, text.count > Self.maxBatchBytes {
            violations.append("a batch of more than \(Self.maxBatchBytes) bytes")
        }
        if oddities.hasTrailingBytes { violations.append("bytes after the array") }
        if oddities.hasControlCharacters { violations.append("a raw control character in a string") }
        if text.contains(where: { $0 >= 0x80 }), String(validating: text, as: UTF8.self) == nil {
            violations.append("a body that is not UTF-8")
        }
        return violations
    }

    /// Adds what is wrong with an event that the server accepts to `violations`, which is nearly always empty.
    private func record(_ event: Event, _ text: UnsafeBufferPointer<UInt8>, in violations: inout [String]) {
        if event.range.count > Self.maxEventBytes {
            violations.append("an event of more than \(Self.maxEventBytes) bytes")
        }
        if let timestamp = event.timestamp, !isMillisecond(text[timestamp.range]) {
            violations.append("a timestamp outside 0 to 9223372036854775807")
        }
        if let name = event.sourceId, isBlank(text[name.range]) { violations.append("a blank sourceId") }
        if let name = event.eventName, isBlank(text[name.range]) { violations.append("a blank eventName") }
        // A caller may set them; a gateway passes them on as they are.
        for (name, time) in [("receivedAt", event.receivedAt), ("publishedAt", event.publishedAt)] {
            guard let time, time.kind != .integer, time.kind != .null else { continue }
            violations.append("\(name) that is neither integer nor null")
        }
    }

    private func isMillisecond(_ literal: Slice<UnsafeBufferPointer<UInt8>>) -> Bool {
        // 18 digits always fit.
        if literal.count <= 18, literal.first != UInt8(ascii: "-") { return true }
        guard let value = Int64(String(decoding: literal, as: UTF8.self)) else { return false }
        return value >= 0 && literal.first != UInt8(ascii: "-")
    }

    private func isBlank(_ literal: Slice<UnsafeBufferPointer<UInt8>>) -> Bool {
        let raw = literal.dropFirst().dropLast()
        guard let first = raw.first else { return true }
        if first > 0x20, first < 0x80, first != UInt8(ascii: "\\") { return false }
        return unescaped(raw).allSatisfy(\.isWhitespace)
    }

    // MARK: Types and answers

    /// The server's `application/(.+\+)?json`, which has to match the whole value.
    private func isJSON(_ type: String?) -> Bool {
        guard let type, type.hasPrefix("application/"), type.hasSuffix("json") else { return false }
        return isSuffixed(type.dropFirst(12).dropLast(4))
    }

    /// The middleware's, which only checks the beginning.
    private func startsLikeJSON(_ type: String?) -> Bool {
        guard let type, type.hasPrefix("application/") else { return false }
        let rest = type.dropFirst(12)
        return rest.hasPrefix("json") || rest.dropFirst().contains("+json")
    }

    private func isSuffixed(_ middle: Substring) -> Bool {
        middle.isEmpty || middle.utf8.count > 1 && middle.hasSuffix("+")
    }

    private static func plain(_ status: Int, _ text: String) -> SimulatedAnswer {
        SimulatedAnswer(status: status, headers: [("Content-Type", "text/plain")], body: Array(text.utf8))
    }

    private static let failed = SimulatedAnswer(status: 500)
    private static let malformed = plain(400, "Malformed JSON in request body.")
    private static let notFound = SimulatedAnswer.json(404, #"{"status":"ERROR","message":"Not found"}"#)
    private static let wrongType = SimulatedAnswer.json(
        400, #"{"status":"ERROR","message":"Invalid format, content-type must be application/json"}"#)
    private static let wrongTimestamp = SimulatedAnswer.json(
        400, #"{"status":"ERROR","message":"X-Samsara-publishedTimestamp must be a valid timestamp."}"#)
    private static let acceptedWithWarning = SimulatedAnswer.json(
        202,
        #"{"status":"OK","warning":"For completeness, please provide the 'X-Samsara-publishedTimestamp' header."}"#)
}

extension SimulatorType {
    /// For `SimulatorRegistry`.
    public static let samsara = SimulatorType { _, _ in SamsaraSimulator() }
}
