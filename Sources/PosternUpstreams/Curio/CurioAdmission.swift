import PosternCore

/// Which payloads are taken (the specification's section 7).
struct CurioAdmission: Sendable {
    let takesLocations: Bool
    /// Older fixes are refused.
    let longestLocationAge: Duration

    func admit(
        _ payload: JSONValue, of kind: CurioKind, in context: AdmissionContext
    ) throws(InvalidPayload) -> Admission {
        guard payload.kind == .object else { throw InvalidPayload([PayloadFault("", "must be an object")]) }
        var faults: [PayloadFault] = []
        if kind == .location, !takesLocations {
            faults.append(PayloadFault("", "locations are not taken: the setting fetchLocationEnabled is false"))
        }
        let fields = kind.fields
        var known = 0
        for field in fields {
            if let value = payload[field.name] {
                known += 1
                faults += field.faults(in: value, acceptedAt: context.acceptedAt)
            } else if field.isRequired {
                faults.append(PayloadFault("/\(field.name)", field.rule.sentence))
            }
        }
        if kind == .location, let fault = ageFault(payload, context) { faults.append(fault) }
        if known < payload.count { faults += strangers(in: payload, besides: fields, of: kind) }
        guard faults.isEmpty, let visitor = payload["visitorCode"]?.string else { throw InvalidPayload(faults) }
        return Admission(lane: .named(visitor))
    }

    private func ageFault(_ payload: JSONValue, _ context: AdmissionContext) -> PayloadFault? {
        guard let moment = payload["timestamp"]?.integer, moment >= CurioRule.earliest,
            context.acceptedAt - Timestamp(milliseconds: moment) > longestLocationAge
        else { return nil }
        return PayloadFault(
            "/timestamp", "must be at most \(longestLocationAge.wholeMilliseconds / 1000) s old for a location")
    }

    private func strangers(in payload: JSONValue, besides fields: [CurioField], of kind: CurioKind) -> [PayloadFault] {
        payload.members.compactMap { key, _ in
            guard !fields.contains(where: { key.equals($0.name) }) else { return nil }
            let names = fields.map { "\($0.name)" }.joined(separator: ", ")
            return PayloadFault(JSONPointer.member(key.string ?? ""), "is no member of \(kind.rawValue): \(names)")
        }
    }
}

/// One member of a payload.
struct CurioField: Sendable {
    let name: StaticString
    let rule: CurioRule
    var isRequired = true

    fileprivate init(_ name: StaticString, _ rule: CurioRule, required: Bool = true) {
        self.name = name
        self.rule = rule
        isRequired = required
    }

    fileprivate func faults(in value: JSONValue, acceptedAt: Timestamp) -> [PayloadFault] {
        if rule == .tags, value.kind == .object, value.count > 0 { return Self.faults(inTags: value) }
        if rule.allows(value, acceptedAt: acceptedAt) { return [] }
        return [PayloadFault("/\(name)", value.holdsNUL ? "must not hold U+0000" : rule.sentence)]
    }

    private static func faults(inTags tags: JSONValue) -> [PayloadFault] {
        tags.members.compactMap { key, value in
            let name = key.string ?? ""
            let detail: String
            if name.isEmpty {
                detail = "must have a name"
            } else if key.holdsNUL || value.holdsNUL {
                detail = "must not hold U+0000"
            } else if value.kind != .string {
                detail = "must be a string"
            } else {
                return nil
            }
            return PayloadFault("/userTags" + JSONPointer.member(name), detail)
        }
    }
}

extension CurioKind {
    /// In the order in which faults are told.
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
            ]
        static let screenStart = screenEnd + [CurioField("pageTitle", .filled), CurioField("path", .filled)]
        static let screenEnd = common + [CurioField("screenClass", .filled)]
        static let event = common + [CurioField("eventKey", .filled), CurioField("eventValue", .text)]
        static let eventEnd = event + [CurioField("eventDuration", .count)]
        static let pushToken =
            common + [CurioField("pushToken", .filled), CurioField("customId", .text, required: false)]
        static let notificationRead =
            common + [
                CurioField("pushToken", .filled), CurioField("pushId", .filled),
                CurioField("customId", .text, required: false),
            ]
        static let customID = common + [CurioField("pushToken", .filled), CurioField("customId", .filled)]
        static let location =
            common + [CurioField("lat", .degrees(most: 90)), CurioField("long", .degrees(most: 180))]
        static let userTags = common + [CurioField("userTags", .tags)]
        static let unregister =
            common + [
                CurioField("customId", .text, required: false), CurioField("pushToken", .text, required: false),
            ]
    }
}
