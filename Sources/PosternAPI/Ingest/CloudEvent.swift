import PosternCore
import PosternHTTP
import PosternStore
import PosternUpstream

/// How a request carries CloudEvents (HTTP Protocol Binding for CloudEvents 1.0.2, section 3).
enum CloudEventMode {
    /// One event: its attributes are headers, and the body is its data.
    case binary
    /// One event, which is the body.
    case structured
    /// Any number of events in an array.
    case batched

    /// Nil for an event format other than JSON, and for data other than JSON. In binary mode, data of no stated type is
    /// taken as JSON.
    init?(_ head: RequestHead) {
        guard head.header("Content-Type") != nil || head.header("ce-specversion") == nil else {
            self = .binary
            return
        }
        guard let type = mediaType(head) else { return nil }
        if type.hasPrefix("application/cloudevents-batch") {
            guard type == "application/cloudevents-batch+json" else { return nil }
            self = .batched
        } else if type.hasPrefix("application/cloudevents") {
            guard type == "application/cloudevents+json" else { return nil }
            self = .structured
        } else {
            guard isJSON(mediaType: type) else { return nil }
            self = .binary
        }
    }
}

/// Whether data of that media type is JSON (JSON Event Format for CloudEvents 1.0.2, section 3.1).
private func isJSON(mediaType: some StringProtocol) -> Bool {
    let type = mediaType.lowercased().prefix { !"; \t".contains($0) }
    return type.hasSuffix("/json") || type.hasSuffix("+json")
}

/// The attributes of an event that the gateway knows (CloudEvents 1.0.2, Context Attributes). It ignores all
/// others.
struct CloudEventAttributes {
    enum Name: Int, CaseIterable {
        case specversion, id, source, type, datacontenttype, dataschema, subject, time, partitionkey, traceparent
    }

    private enum Value {
        case text(String)
        /// Not a string.
        case other
        /// More than one header.
        case repeated
        /// A header whose value is not valid UTF-8.
        case notUTF8
    }
    /// By the numbers of their names.
    private var values = [Value?](repeating: nil, count: Name.allCases.count)
    /// The headers of attributes that the gateway does not know and whose values are not valid UTF-8.
    private var unreadableHeaders: [String] = []
    /// Whether they are headers, and the data is the body.
    private let areHeaders: Bool

    /// Those of an event in binary mode.
    init(_ head: RequestHead) {
        areHeaders = true
        for (header, bytes) in head.headers(withPrefix: Self.prefix) {
            let name = Name.allCases.first { $0 != .datacontenttype && header.dropFirst(3) == "\($0.text)" }
            let text = Self.decoded(bytes, isURI: name?.isURI ?? false)
            if let name {
                values[name.rawValue] = values[name.rawValue] == nil ? text.map { .text($0) } ?? .notUTF8 : .repeated
            } else if text == nil {
                unreadableHeaders.append(header)
            }
        }
    }

    private static let prefix = "ce-"

    /// A header's value as the binding encodes it: perhaps in quotation marks, and percent-encoded (HTTP Protocol
    /// Binding for CloudEvents 1.0.2, section 3.1.3.2). Nil if it is not valid UTF-8.
    ///
    /// Some SDKs, those for Go and Java among them, send a URI as it is. One that is a URI only as long as its escapes
    /// are not decoded was not encoded.
    private static func decoded(_ value: [UInt8], isURI: Bool) -> String? {
        let bytes = unquoted(value)
        guard let text = percentDecoded(bytes) else { return nil }
        if isURI, !Name.isURIReference(text), let plain = String(validating: bytes, as: UTF8.self),
            Name.isURIReference(plain)
        {
            return plain
        }
        return text
    }

    private static func unquoted(_ value: [UInt8]) -> [UInt8] {
        let mark = UInt8(ascii: "\"")
        guard value.count >= 2, value.first == mark, value.last == mark else { return value }
        var result: [UInt8] = []
        var rest = value.dropFirst().dropLast()
        while let byte = rest.popFirst() {
            result.append(byte == UInt8(ascii: "\\") ? rest.popFirst() ?? byte : byte)
        }
        return result
    }

    /// What distinguishes an event in binary mode from others with the same data: its attributes as they were sent. Not
    /// its trace, since the same event may be sent again within another span.
    static func text(of head: RequestHead) -> [UInt8] {
        head.headers(withPrefix: prefix).filter { !["ce-traceparent", "ce-tracestate"].contains($0.name) }
            .sorted { $0.name < $1.name }
            .flatMap { Array("\($0.name):".utf8) + $0.value + [UInt8(ascii: "\n")] }
    }

    /// - Parameter members: those of an event in the JSON format. Null means that an attribute is not set.
    init(_ members: [(name: Name, value: JSONValue)]) {
        areHeaders = false
        for (name, value) in members where value.kind != .null {
            values[name.rawValue] = value.string.map { .text($0) } ?? .other
        }
    }

    subscript(_ name: Name) -> String? {
        if case .text(let text) = values[name.rawValue] { text } else { nil }
    }

    /// What groups events that belong together: the Partitioning extension's attribute, or else the subject.
    var key: String? { self[.partitionkey] ?? self[.subject] }

    /// The trace to which the event belongs, by the Distributed Tracing extension. Nil if that is not valid, as with the
    /// header.
    var traceParent: String? { self[.traceparent].flatMap(TraceParent.init)?.text }

    // MARK: Faults

    func check(_ faults: inout PayloadErrors) {
        for name in Name.allCases {
            let rule = name.rule
            switch values[name.rawValue] {
            case nil: if name.isRequired { add("is required and \(rule.text)", of: name, to: &faults) }
            case .text(let text) where rule.isMet(text): break
            case .text, .other: add(rule.text, of: name, to: &faults)
            case .repeated: add("is given more than once", of: name, to: &faults)
            case .notUTF8: add("is not valid UTF-8", of: name, to: &faults)
            }
        }
        for header in unreadableHeaders { faults.add("", "the header \(header) is not valid UTF-8") }
    }

    /// Adds what is wrong with an attribute at the place where it was given.
    func add(_ detail: String, of name: Name, to faults: inout PayloadErrors) {
        areHeaders
            ? faults.add("", "the header ce-\(name.text) \(detail)") : faults.add("/\(name.text)", detail)
    }
}

extension CloudEventAttributes.Name {
    /// Nil for the name of another member. Makes no string, and ends with the length of most names: an event may have any
    /// number of members.
    fileprivate init?(_ member: JSONValue) {
        guard member.hasEscapes || Self.lengths & 1 << member.rawString.count != 0,
            let name = Self.allCases.first(where: { member.equals($0.text) })
        else { return nil }
        self = name
    }

    /// A bit for each length of a name.
    private static let lengths = allCases.reduce(0) { $0 | 1 << $1.text.utf8CodeUnitCount }

    fileprivate var text: StaticString {
        switch self {
        case .specversion: "specversion"
        case .id: "id"
        case .source: "source"
        case .type: "type"
        case .datacontenttype: "datacontenttype"
        case .dataschema: "dataschema"
        case .subject: "subject"
        case .time: "time"
        case .partitionkey: "partitionkey"
        case .traceparent: "traceparent"
        }
    }

    fileprivate var isURI: Bool { self == .source || self == .dataschema }

    fileprivate var isRequired: Bool {
        switch self {
        case .specversion, .id, .source, .type: true
        case .datacontenttype, .dataschema, .subject, .time, .partitionkey, .traceparent: false
        }
    }

    fileprivate var rule: (text: String, isMet: (String) -> Bool) {
        switch self {
        case .specversion: ("must be \"1.0\"", { $0 == "1.0" })
        case .id, .type:
            ("must be a string of at least one character, without control characters", Self.isText)
        case .source, .dataschema: ("must be a URI reference of at least one character", Self.isURIReference)
        case .datacontenttype:
            ("must be a JSON media type, since the data is forwarded as JSON", { isJSON(mediaType: $0) })
        case .time: ("must be a time of RFC 3339, e.g. 2026-01-31T12:00:00Z", { Timestamp(rfc3339: $0) != nil })
        case .traceparent: ("must be a string", { _ in true })
        case .subject, .partitionkey:
            (
                "must be a string of 1 to 255 bytes, without control characters",
                { $0.utf8.count <= 255 && Self.isText($0) }
            )
        }
    }

    /// Whether there is something, and no control character (U+0000 to U+001F, U+007F to U+009F).
    private static func isText(_ text: String) -> Bool {
        var former: UInt8 = 0
        for byte in text.utf8 {
            if byte < 0x20 || byte == 0x7F || former == 0xC2 && byte < 0xA0 { return false }
            former = byte
        }
        return !text.isEmpty
    }

    /// By its characters (RFC 3986, appendix A).
    fileprivate static func isURIReference(_ text: String) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy { charactersOfURIs[Int($0)] }
    }

    private static let charactersOfURIs: [Bool] = {
        let characters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?#[]@!$&'()*+,;=%".utf8
        return (0...UInt8.max).map { characters.contains($0) }
    }()
}

// MARK: - Reading events

extension IngestValidation {
    /// One event, or an array of them.
    mutating func readEvents(_ root: JSONValue, isBatch: Bool) throws(Problem) {
        if !isBatch {
            request.isSingle = true
            try admit(event: root, at: 0)
        } else if try accepts(list: root) {
            for (index, event) in root.elements.enumerated() { try admit(event: event, at: index) }
        }
    }

    /// One event in binary mode.
    mutating func readEvent(_ attributes: CloudEventAttributes, data: JSONValue) throws(Problem) {
        request.isSingle = true
        var faults = PayloadErrors(atMost: faultsLeft)
        try admit(attributes, data: data, at: 0, pointer: "", &faults)
    }

    private mutating func admit(event value: JSONValue, at index: Int) throws(Problem) {
        guard value.kind == .object else {
            return reject(index, InvalidPayload([PayloadError("", "must be an event, which is an object")]), nil)
        }
        var members: [(name: CloudEventAttributes.Name, value: JSONValue)] = []
        var data: JSONValue?
        var faults = PayloadErrors(atMost: faultsLeft)
        for (name, value) in value.members {
            if name.equals("data") {
                data = value
            } else if name.equals("data_base64"), value.kind != .null {
                faults.add("/data_base64", "cannot be delivered, since the upstream takes JSON; send it as data")
            } else if let attribute = CloudEventAttributes.Name(name) {
                members.append((attribute, value))
            }
        }
        if data == nil, faults.isEmpty { faults.add("/data", "is required") }
        try admit(CloudEventAttributes(members), data: data, at: index, pointer: "/data", &faults)
    }

    private mutating func admit(
        _ attributes: CloudEventAttributes, data: JSONValue?, at index: Int, pointer: String,
        _ faults: inout PayloadErrors
    ) throws(Problem) {
        attributes.check(&faults)
        let destination = try destination(of: attributes, &faults)
        guard faults.isEmpty, let (upstream, kind) = destination, let data else {
            return reject(index, InvalidPayload(faults), destination?.upstream)
        }
        let admitted = request.messages.count
        try admit(
            data, upstream, kind, at: index, pointer: pointer,
            options: EnvelopeOptions(key: attributes.key, traceParent: attributes.traceParent))
        for message in admitted..<request.messages.count {
            // The messages of a fan-out are told apart by their legs.
            let leg = kind.legs.isEmpty ? [] : [request.leg(of: message)]
            request.events.append(
                EventIdentity(
                    key: sha256(
                        [caller?.key.name ?? "", attributes[.source] ?? ""] + leg,
                        Array((attributes[.id] ?? "").utf8)),
                    fingerprint: sha256(["\(upstream.name).\(kind.text)", attributes.key ?? ""], data.bytes)))
        }
    }

    /// Where an event of that type goes; nil if the type is not valid or names no upstream and kind.
    private func destination(
        of attributes: CloudEventAttributes, _ faults: inout PayloadErrors
    ) throws(Problem) -> (upstream: ConfiguredUpstream, kind: ConfiguredUpstream.KindEndpoint)? {
        guard let type = attributes[.type] else { return nil }
        let name = context.eventTypes[type] ?? type
        guard let dot = name.utf8.firstIndex(of: UInt8(ascii: ".")),
            let upstream = context.upstream(named: name[..<dot]),
            let kind = upstream.endpoint(name[name.utf8.index(after: dot)...])
        else {
            attributes.add(
                "must be <upstream>.<kind> with a configured upstream and one of its kinds, or a type that "
                    + "cloudevents.types maps to that", of: .type, to: &faults)
            return nil
        }
        if let caller, !caller.mayUse(upstream.name) { throw Gatekeeper.foreign(upstream.name, to: caller) }
        return (upstream, kind)
    }
}
