import PosternCore
import PosternUpstream

/// The ingestion API in the place of the platform's, for its clients (the specification's "Endpoints").
struct SamsaraSDK: Sendable {
    let settings: SamsaraSettings

    func endpoints(of name: UpstreamName) -> SDKEndpoints {
        let access: SDKRoute.Access = settings.isAnonymous ? .open : .key
        return SDKEndpoints(
            settings.sdk, of: name,
            [
                SDKRoute(
                    "events", .post, "v1/events", isAtRoot: settings.sdkServesRoot, access,
                    .store { request throws(SDKAnswer) in try events(request) }),
                SDKRoute(
                    "status", .get, "v1/api-status", isAtRoot: settings.sdkServesRoot, withoutRoom: Self.offline, .open,
                    .perform { _, context in
                        context.isReady ? Self.json(200, .accepted, #"{"status":"online"}"#) : Self.offline
                    }),
            ], refusal: Self.refusal)
    }

    // MARK: Events

    private func events(_ request: SDKRequest) throws(SDKAnswer) -> SDKSubmission {
        guard Self.isJSON(request.mediaType) else {
            throw Self.error(400, .refused, "Invalid format, content-type must be application/json")
        }
        let parsed = try JSONParser.ofThisThread.parseWithLoneSurrogates(request.body) { root throws(SDKAnswer) in
            guard root.kind == .array else { throw Self.malformed }
            return try submission(of: root, request)
        }
        guard case .success(let submission) = parsed else { throw Self.malformed }
        return submission
    }

    private func submission(of root: JSONValue, _ request: SDKRequest) throws(SDKAnswer) -> SDKSubmission {
        var publishedAt: Int64?
        if let header = request.header("X-Samsara-publishedTimestamp") {
            publishedAt = Int64(header)
            guard publishedAt != nil else {
                throw Self.error(400, .refused, "X-Samsara-publishedTimestamp must be a valid timestamp.")
            }
        }
        let stamps = settings.stampsEvents ? Stamps(request.receivedAt, publishedAt: publishedAt) : nil
        var bytes: [UInt8] = []
        if stamps != nil { bytes.reserveCapacity(request.body.count * 5 / 4) }
        var items: [SDKItem] = []
        items.reserveCapacity(request.body.count / 256)
        var faults: [Int: String] = [:]
        for element in root.elements {
            let event = element.kind == .object ? Event(element) : nil
            let fault = Complaint(element, event).text
            if let fault { faults[items.count] = fault }
            var range = element.range
            if let stamps {
                range = bytes.count..<bytes.count
                if let event { stamps.write(element, event, to: &bytes) } else { bytes += element.bytes }
                range = range.lowerBound..<bytes.count
            }
            items.append(SDKItem("event", range, validation(of: element, event, fault)))
        }
        if !faults.isEmpty, settings.sdk.whenInvalid == .refuse {
            let texts = items.indices.map { JSONEscapes.quoted(faults[$0] ?? "OK") }
            throw Self.json(400, .refused, "[\(texts.joined(separator: ","))]")
        }
        let warns = publishedAt == nil
        return SDKSubmission(stamps == nil ? request.body : bytes, items) { _ in
            // Nothing is recognized, so nothing is a repeat.
            warns ? Self.acceptedWithWarning : Self.accepted
        }
    }

    private func validation(
        of element: JSONValue, _ event: Event?, _ fault: String?
    ) -> Result<ValidPayload, InvalidPayload> {
        if let fault { return .failure(InvalidPayload([PayloadError("", fault)])) }
        // The platform would accept it, and drop it silently (S6).
        guard element.bytes.count <= settings.eventMaxBytes else {
            let detail = "must not have more than \(settings.eventMaxBytes) bytes; it has \(element.bytes.count)"
            return .failure(InvalidPayload([PayloadError("", detail)]))
        }
        return .success(ValidPayload(lane: event?.sourceID.map { .digest(of: $0) } ?? .none))
    }

    /// `application/json`, or a type with the suffix `+json`.
    private static func isJSON(_ type: String?) -> Bool {
        guard let type, type.hasPrefix("application/") else { return false }
        let subtype = type.dropFirst("application/".count)
        return subtype == "json" || subtype.hasSuffix("+json") && subtype.count > "+json".count
    }

    // MARK: Answers

    private static let accepted = SDKAnswer(202, .accepted)
    private static let acceptedWithWarning = json(
        202, .accepted,
        #"{"status":"OK","warning":"For completeness, please provide the 'X-Samsara-publishedTimestamp' header."}"#)

    private static let offline = json(503, .noRoom, #"{"status":"offline"}"#)
    private static let malformed = SDKAnswer(
        400, .refused, headers: [("Content-Type", "text/plain")],
        body: Array("Malformed JSON in request body.".utf8))

    private static func json(_ status: Int, _ outcome: SDKAnswer.Outcome, _ text: String) -> SDKAnswer {
        SDKAnswer(
            status, outcome, headers: [("Content-Type", "application/json; charset=utf-8")], body: Array(text.utf8))
    }

    private static func error(_ status: Int, _ outcome: SDKAnswer.Outcome, _ message: String) -> SDKAnswer {
        json(status, outcome, #"{"status":"ERROR","message":\#(JSONEscapes.quoted(message))}"#)
    }

    static func refusal(_ reason: SDKRefusal) -> SDKAnswer {
        switch reason {
        case .notFound: return error(404, reason.outcome, "Not found")
        case .methodNotAllowed(let allowed):
            var answer = error(405, reason.outcome, "Method not allowed")
            answer.headers.append(("Allow", allowed))
            return answer
        case .unauthorized:
            var answer = error(401, reason.outcome, "Unauthorized")
            answer.headers.append(("WWW-Authenticate", #"Basic realm="postern""#))
            return answer
        case .forbidden: return error(403, reason.outcome, "Forbidden")
        case .malformed: return malformed
        case .tooLarge: return error(413, reason.outcome, "Too large")
        case .noRoom:
            return SDKAnswer(
                503, reason.outcome, headers: [("Content-Type", "text/plain"), ("Retry-After", "30")],
                body: Array("503 Service Unavailable".utf8))
        }
    }
}

/// The members that the platform adds to the events of a request when it receives them.
private struct Stamps {
    private let receivedAt: [UInt8]
    private let publishedAt: [UInt8]?
    /// The end of an event that lacks all of them, as most do.
    private let both: [UInt8]

    init(_ receivedAt: Timestamp, publishedAt: Int64?) {
        self.receivedAt = Array(String(receivedAt.milliseconds).utf8)
        self.publishedAt = publishedAt.map { Array(String($0).utf8) }
        both = Array(
            ",\"receivedAt\":\(receivedAt.milliseconds)\(publishedAt.map { ",\"publishedAt\":\($0)" } ?? "")}".utf8)
    }

    /// Appends the event with those that it lacks, or has as `null` or `false`.
    func write(_ element: JSONValue, _ event: Event, to text: inout [UInt8]) {
        let start = element.range.lowerBound
        var copied = 0
        if event.receivedAt != nil || event.publishedAt != nil {
            let given = [(event.receivedAt, receivedAt), (event.publishedAt, publishedAt)].compactMap { found, stamp in
                found.flatMap { found in stamp.map { (found, $0) } }
            }
            for (found, stamp) in given.sorted(by: { $0.0.range.lowerBound < $1.0.range.lowerBound })
            where found.kind == .null || found.kind == .false {
                text.append(
                    contentsOf: UnsafeBufferPointer(rebasing: element.bytes[copied..<found.range.lowerBound - start]))
                text += stamp
                copied = found.range.upperBound - start
            }
        }
        text.append(contentsOf: UnsafeBufferPointer(rebasing: element.bytes[copied..<element.bytes.count - 1]))
        if event.receivedAt == nil, event.publishedAt == nil, element.isFilledObject {
            text += both
            return
        }
        var isFirst = !element.isFilledObject
        func append(_ name: StaticString, _ stamp: [UInt8]) {
            if !isFirst { text.append(UInt8(ascii: ",")) }
            isFirst = false
            name.withUTF8Buffer { text.append(contentsOf: $0) }
            text += stamp
        }
        if event.receivedAt == nil { append("\"receivedAt\":", receivedAt) }
        if event.publishedAt == nil, let publishedAt { append("\"publishedAt\":", publishedAt) }
        text.append(UInt8(ascii: "}"))
    }
}

/// What the platform finds wrong with an element, in the words that it prints (the specification's "Event schema").
private struct Complaint {
    /// Nil if it is valid.
    let text: String?

    init(_ element: JSONValue, _ event: Event?) {
        guard let event else {
            text = "(not (map? \(Self.shownClass(of: element))))"
            return
        }
        if event.timestamp?.isIntegerLiteral == true, event.sourceID?.kind == .string, event.eventName?.kind == .string
        {
            text = nil
            return
        }
        let string = "instance? java.lang.String"
        let faults = [
            Self.fault("timestamp", event.timestamp, "integer?", event.timestamp?.isIntegerLiteral == true),
            Self.fault("sourceId", event.sourceID, string, event.sourceID?.kind == .string),
            Self.fault("eventName", event.eventName, string, event.eventName?.kind == .string),
        ]
        text = "{\(faults.compactMap(\.self).joined(separator: ", "))}"
    }

    private static func fault(_ name: String, _ value: JSONValue?, _ predicate: String, _ isMet: Bool) -> String? {
        guard !isMet else { return nil }
        guard let value else { return ":\(name) missing-required-key" }
        return ":\(name) (not (\(predicate) \(shown(value))))"
    }

    /// A value as Clojure prints it; one of 20 characters or more by its class.
    private static func shown(_ value: JSONValue) -> String {
        let (length, printed): (Int, String)
        switch value.kind {
        case .null: return "nil"
        case .true: return "true"
        case .false: return "false"
        case .object, .array: return shownClass(of: value)
        case .string:
            let string = value.string ?? ""
            (length, printed) = (string.utf16.count, quoted(string))
        case .number:
            let digits = String(decoding: value.bytes, as: UTF8.self)
            printed = value.isIntegerLiteral ? digits : Double(digits).map(javaText) ?? digits
            length = printed.utf16.count
        }
        return length < 20 ? printed : shownClass(of: value)
    }

    /// A number as Java prints it (`java.lang.Double.toString`): with an exponent below 10^-3 and from 10^7 on.
    private static func javaText(_ number: Double) -> String {
        guard number.isFinite else { return number < 0 ? "-Infinity" : "Infinity" }
        let size = number.magnitude
        guard size != 0, !(1e-3..<1e7).contains(size) else { return "\(number)" }
        // As Swift prints it: digits with or without a point, then perhaps an exponent.
        let parts = "\(size)".split(separator: "e")
        let halves = parts[0].split(separator: ".")
        let fraction = halves.count < 2 || halves[1] == "0" ? "" : halves[1]
        let digits = halves[0] + fraction
        let significant = digits.drop { $0 == "0" }
        let leading = digits.count - significant.count
        let exponent = halves[0].count - 1 - leading + (parts.count < 2 ? 0 : Int(parts[1]) ?? 0)
        let rest = significant.dropFirst().reversed().drop { $0 == "0" }.reversed()
        return "\(number < 0 ? "-" : "")\(significant.prefix(1)).\(rest.isEmpty ? "0" : String(rest))E\(exponent)"
    }

    private static func shownClass(of value: JSONValue) -> String {
        switch value.kind {
        case .null: "nil"
        case .true, .false: "a-java.lang.Boolean"
        case .object: "a-clojure.lang.PersistentArrayMap"
        case .array: "a-clojure.lang.PersistentVector"
        case .string: "a-java.lang.String"
        case .number:
            !value.isIntegerLiteral
                ? "a-java.lang.Double" : value.integer == nil ? "a-java.math.BigInteger" : "a-java.lang.Long"
        }
    }

    private static func quoted(_ string: String) -> String {
        var text = "\""
        for character in string.unicodeScalars {
            switch character {
            case "\"": text += "\\\""
            case "\\": text += "\\\\"
            case "\n": text += "\\n"
            case "\t": text += "\\t"
            case "\r": text += "\\r"
            case "\u{8}": text += "\\b"
            case "\u{c}": text += "\\f"
            default: text.unicodeScalars.append(character)
            }
        }
        return text + "\""
    }
}
