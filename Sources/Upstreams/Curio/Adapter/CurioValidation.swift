import PosternCore
import PosternUpstream

/// Validates payloads (the specification's section 7).
struct CurioValidation: Sendable {
    let takesLocations: Bool
    /// Older locations are rejected.
    let longestLocationAge: Duration

    /// - Parameter fields: The members that the payload may have.
    func validate(
        _ payload: JSONValue, of kind: CurioKind, _ fields: [CurioField], in context: ValidationContext
    ) throws(InvalidPayload) -> ValidPayload {
        guard payload.kind == .object else { throw InvalidPayload([PayloadError("", "must be an object")]) }
        var faults = PayloadErrors(atMost: context.maxFaults)
        if kind == .location, !takesLocations {
            faults.add("", "locations are not accepted: the setting fetchLocationEnabled is false")
        }
        check(payload, of: kind, fields, in: context, &faults)
        if kind == .notificationRead { checkPushID(payload, &faults) }
        if kind == .location { checkAge(payload, context, &faults) }
        guard faults.isEmpty, let visitor = payload["visitorCode"]?.string else { throw InvalidPayload(faults) }
        return ValidPayload(lane: .named(visitor))
    }

    /// Examines each member once, however many there are.
    private func check(
        _ payload: JSONValue, of kind: CurioKind, _ fields: [CurioField], in context: ValidationContext,
        _ faults: inout PayloadErrors
    ) {
        let lengths = fields.reduce(UInt64(0)) { $0 | 1 << UInt64($1.name.utf8CodeUnitCount) }
        var values = [JSONValue?](repeating: nil, count: fields.count)
        var strangers = PayloadErrors(atMost: context.maxFaults)
        for (key, value) in payload.members {
            let isNamed = key.hasEscapes || key.rawString.count < 64 && lengths >> UInt64(key.rawString.count) & 1 == 1
            if isNamed, let index = fields.firstIndex(where: { key.equals($0.name) }) {
                values[index] = value
            } else {
                strangers.add(
                    JSONPointer.member(key),
                    "is not a member of \(kind.rawValue): \(fields.map(\.name.description).joined(separator: ", "))")
            }
        }
        for (field, value) in zip(fields, values) {
            if let value {
                field.check(value, acceptedAt: context.acceptedAt, &faults)
            } else if let substitute = field.substitute {
                guard payload[substitute] == nil else { continue }
                faults.add("/\(field.name)", "\(field.rule.sentence), unless there is \(substitute)")
            } else if field.isRequired {
                faults.add("/\(field.name)", field.rule.sentence)
            }
        }
        faults.add(strangers)
    }

    /// A notification is named by its id or by its payload, not by both.
    private func checkPushID(_ payload: JSONValue, _ faults: inout PayloadErrors) {
        switch (payload["pushId"], payload["userInfo"]) {
        case (nil, nil): faults.add("/pushId", "must be a non-empty string, unless there is userInfo")
        case (.some, .some): faults.add("/userInfo", "must not be given next to pushId")
        case (.some, nil), (nil, .some): break
        }
    }

    private func checkAge(_ payload: JSONValue, _ context: ValidationContext, _ faults: inout PayloadErrors) {
        guard let moment = payload["timestamp"]?.integer, moment >= Rule.earliest,
            context.acceptedAt - Timestamp(milliseconds: moment) > longestLocationAge
        else { return }
        let seconds = longestLocationAge.wholeMilliseconds / 1000
        faults.add("/timestamp", "must be at most \(seconds) s old for a location")
    }
}

/// One member of a payload.
struct CurioField: Sendable {
    let name: StaticString
    var rule: Rule
    var isRequired = true
    /// The member with which it may be missing.
    var substitute: StaticString?

    init(_ name: StaticString, _ rule: Rule, required: Bool = true, unless substitute: StaticString? = nil) {
        self.name = name
        self.rule = rule
        self.substitute = substitute
        isRequired = required
    }

    fileprivate func check(_ value: JSONValue, acceptedAt: Timestamp, _ faults: inout PayloadErrors) {
        if rule == .tags, value.isFilledObject { return Self.check(tags: value, &faults) }
        if rule == .pushPayload, value.kind == .object { return Self.check(pushPayload: value, &faults) }
        if rule.allows(value, acceptedAt: acceptedAt) { return }
        faults.add("/\(name)", value.holdsNUL ? "must not hold U+0000" : rule.sentence)
    }

    /// The SDK reads `pId` of the payload itself, not of `aps` or another object in it.
    private static func check(pushPayload: JSONValue, _ faults: inout PayloadErrors) {
        guard let id = pushPayload["pId"] else {
            return faults.add("/userInfo/pId", "must be there: the id of the notification")
        }
        if !id.isFilledString || id.holdsNUL {
            faults.add("/userInfo/pId", id.holdsNUL ? "must not hold U+0000" : Rule.filled.sentence)
        }
    }

    private static func check(tags: JSONValue, _ faults: inout PayloadErrors) {
        for (key, value) in tags.members {
            let detail: StaticString
            if key.rawString.isEmpty {
                detail = "must have a name"
            } else if key.holdsNUL || value.holdsNUL {
                detail = "must not hold U+0000"
            } else if value.kind != .string {
                detail = "must be a string"
            } else {
                continue
            }
            faults.add("/userTags" + JSONPointer.member(key), detail.description)
        }
    }
}

extension CurioKind {
    /// In the order in which faults are reported.
    var fields: [CurioField] {
        switch self {
        case .sessionStart: Fields.sessionStart
        case .sessionEnd: Fields.common
        case .screenStart: Fields.screenStart
        case .screenEnd: Fields.screenEnd
        case .event: Fields.event
        case .eventEnd: Fields.eventEnd
        case .pushToken: Fields.pushToken
        case .notificationRead: Fields.notificationRead
        case .customID: Fields.customID
        case .location: Fields.location
        case .userTags: Fields.userTags
        case .unregister: Fields.unregister
        }
    }

    private enum Fields {
        static let common = [
            CurioField("visitorCode", .filled), CurioField("sessionCode", .sessionCode),
            CurioField("timestamp", .timestamp),
        ]
        static let sessionStart =
            common + [
                CurioField("screenWidth", .count), CurioField("screenHeight", .count), CurioField("lang", .filled),
                CurioField("simOperator", .text), CurioField("simOpCountry", .text),
                CurioField("networkOpName", .text), CurioField("connType", .connection),
                CurioField("brand", .filled), CurioField("model", .filled), CurioField("osType", .filled),
                CurioField("osVer", .filled), CurioField("curioSdkVer", .filled), CurioField("appVer", .filled),
                CurioField("batteryLevel", .battery, required: false),
                CurioField("bluetooth", .bluetooth, required: false), CurioField("storage", .count, required: false),
                CurioField("activityWidth", .count, required: false),
                CurioField("activityHeight", .count, required: false),
                CurioField("sessionTimeout", .minutes, required: false),
            ]
        static let screenStart = screenEnd + [CurioField("pageTitle", .filled), CurioField("path", .filled)]
        static let screenEnd =
            common + [
                CurioField("screenClass", .filled, unless: "hitCode"), CurioField("hitCode", .code, required: false),
            ]
        static let event =
            common + [
                CurioField("eventKey", .filled), CurioField("eventValue", .text),
                CurioField("eventCode", .code, required: false),
            ]
        static let eventEnd =
            common + [
                CurioField("eventKey", .filled, unless: "eventCode"),
                CurioField("eventValue", .text, unless: "eventCode"),
                CurioField("eventCode", .code, required: false), CurioField("eventDuration", .count),
            ]
        static let pushToken =
            common + [CurioField("pushToken", .filled), CurioField("customId", .text, required: false)]
        static let notificationRead =
            common + [
                CurioField("pushToken", .filled), CurioField("pushId", .filled, required: false),
                CurioField("userInfo", .pushPayload, required: false), CurioField("customId", .text, required: false),
            ]
        static let customID = common + [CurioField("pushToken", .filled), CurioField("customId", .filled)]
        // The request for a location has no time; it only serves to reject an old one.
        static let location = [
            CurioField("visitorCode", .filled), CurioField("sessionCode", .sessionCode),
            CurioField("timestamp", .timestamp, required: false), CurioField("lat", .degrees(most: 90)),
            CurioField("long", .degrees(most: 180)),
        ]
        static let userTags = common + [CurioField("userTags", .tags)]
        static let unregister =
            common + [
                CurioField("customId", .text, required: false), CurioField("pushToken", .text, required: false),
            ]
    }
}
