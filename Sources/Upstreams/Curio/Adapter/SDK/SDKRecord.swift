import PosternCore
import PosternUpstream

/// A record of a batch that an SDK has sent.
struct SDKRecord: Equatable, Sendable {
    enum Step: Int64, Sendable {
        case sessionStart = 0
        case sessionEnd = 1
        case screenStart = 2
        case screenEnd = 3
        case event = 4
        case eventEnd = 7
        /// Android: a request that failed on the network, of which only user tags can be told.
        case failedRequest = -1

        var kind: CurioKind {
            switch self {
            case .sessionStart: .sessionStart
            case .sessionEnd: .sessionEnd
            case .screenStart: .screenStart
            case .screenEnd: .screenEnd
            case .event: .event
            case .eventEnd: .eventEnd
            case .failedRequest: .userTags
            }
        }

        fileprivate var subject: Texts.Subject? {
            switch self {
            case .screenStart, .screenEnd: .screen
            case .event, .eventEnd: .event
            case .sessionStart, .sessionEnd, .failedRequest: nil
            }
        }
    }

    enum Content: Equatable, Sendable {
        case action(Step, Values)
        /// It cannot be delivered, and why: the record as it is.
        case odd(CurioKind, json: String, reason: String)
    }

    /// Decoded; nil for what is missing.
    struct Values: Equatable, Sendable {
        var texts: [String?] = []
        /// As the SDK has sent it.
        var code: String?
        var duration: String?
        var userTags: String?
    }

    /// Nil if it cannot be read.
    let timestamp: Int64?
    /// The record's, or else that of the request.
    let session: String?
    let content: Content

    /// Equal for the repeats of a record, and only for these: by its code or, without one, by its time and texts.
    func identity(of visitor: String) -> String {
        var parts = [visitor, session ?? ""]
        switch content {
        case .odd(_, let json, _): parts += ["odd", json]
        case .action(let step, let values):
            parts.append(String(step.rawValue))
            switch (step, values.code) {
            case (.sessionStart, _), (.sessionEnd, _): break
            case (_, let code?): parts += ["code", code]
            case (_, nil):
                let texts = values.texts + [values.duration, values.userTags]
                parts += [timestamp.map(String.init) ?? ""] + texts.map { $0.map { "=" + $0 } ?? "" }
            }
        }
        return Code.hash(JSONWriter.array(parts.map(JSONEscapes.quoted)))
    }

    /// The code of a screen or an event. A start that has none, because it was sent alone before and failed, gets one, the
    /// same for each repeat. Nil for an end without a code.
    func code(of visitor: String) -> String? {
        guard case .action(let step, let values) = content else { return nil }
        if let code = values.code { return code }
        guard step == .screenStart || step == .event else { return nil }
        let digest = TextDigest.of(["start", identity(of: visitor)])
        return String(decoding: UUIDText.version4(digest), as: UTF8.self)
    }

    /// The message of the record, and why it fails if it cannot be delivered.
    func item(in request: CurioSDKRequest) -> (item: CurioSDKItem, reason: String?) {
        switch content {
        case .odd(let kind, let json, let reason): return (CurioSDKItem(kind: kind, payload: json), reason)
        case .action(let step, let values):
            let item = CurioSDKItem(
                step.kind, visitor: request.visitor, session: session, timestamp: timestamp ?? 0,
                code: code(of: request.visitor ?? ""), sentIn: request.call == .offline ? .offline : .batch
            ) { name in
                switch name {
                case "pageTitle", "eventKey": values.texts.first ?? nil
                case "path", "eventValue": values.texts.last ?? nil
                case "eventDuration": values.duration
                case "userTags": values.userTags
                case "sessionTimeout": request.timeoutMinutes.map(String.init)
                default: request.form[name]
                }
            }
            return (item, nil)
        }
    }
}

extension SDKRecord {
    /// - Parameter session: The code of the request.
    init(_ record: JSONValue, session: String?) {
        let json = String(decoding: record.bytes, as: UTF8.self)
        let type = Self.number(record["type"])
        let step = type.flatMap(Step.init)
        timestamp = Self.number(record["timestamp"]).flatMap { $0 < 0 ? nil : $0 }
        self.session = Self.filled("sessionCode", record) ?? session
        func odd(_ reason: String) -> Content {
            let kind: CurioKind? = type == 999 ? .unregister : step == .failedRequest ? nil : step?.kind
            return .odd(kind ?? .event, json: json, reason: reason)
        }
        guard record.kind == .object else {
            content = .odd(.event, json: json, reason: "the record is not an object")
            return
        }
        let values = Values(record, step)
        guard let step, step != .failedRequest || values.userTags != nil else {
            content = odd("the record has a type that cannot be delivered")
            return
        }
        content = timestamp == nil ? odd("the record has no readable timestamp") : .action(step, values)
    }

    /// An integer, also in a string.
    private static func number(_ value: JSONValue?) -> Int64? {
        value?.integer ?? value?.string.flatMap { Int64($0) }
    }

    /// Nil if the member is missing, or is a word that stands for a missing one.
    fileprivate static func text(_ name: String, _ record: JSONValue) -> String? {
        guard let value = record[named: name] else { return nil }
        var text: String?
        switch value.kind {
        case .string: text = value.string
        case .number: text = String(decoding: value.bytes, as: UTF8.self)
        case .object where name == "userTags": text = String(decoding: value.bytes, as: UTF8.self)
        case .object, .array, .true, .false, .null: break
        }
        if FormDecoding.twiceEncoded.contains(name) { text = text.map(FormDecoding.decodedAgain) }
        return text.flatMap { Placeholder.isOne($0, for: name) ? nil : $0 }
    }

    fileprivate static func filled(_ name: String, _ record: JSONValue) -> String? {
        text(name, record).flatMap { $0.isEmpty ? nil : $0 }
    }
}

extension SDKRecord.Values {
    fileprivate init(_ record: JSONValue, _ step: SDKRecord.Step?) {
        if let names = step?.subject?.names {
            texts = [SDKRecord.text(names.first, record), SDKRecord.text(names.second, record)]
            code = SDKRecord.filled(names.code, record)
        }
        if step == .eventEnd { duration = SDKRecord.filled("eventDuration", record) }
        if step == .failedRequest { userTags = SDKRecord.filled("userTags", record) }
    }
}
