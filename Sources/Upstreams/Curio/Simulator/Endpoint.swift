/// The endpoints of section 4.4, with the parameters of their iOS form.
enum Endpoint: String, CaseIterable {
    case visitCreate = "/visit/create"
    case hitCreate = "/hit/create"
    case hitEnd = "/hit/end"
    case eventCreate = "/event/create"
    case eventEnd = "/event/end"
    case visitEnd = "/visit/end"
    case batch = "/batch/create"
    case offline = "/offline/create"
    case pushData = "/visitor/setPushData"
    case location = "/location/set"
    case userTag = "/visitor/setUserTag"
    case unregister = "/visitor/unregister"
    case profileTags = "/visitor/getVisitorProfileTags"
    case pushHistory = "/pushHistory/get"

    static let device = [
        "screenWidth", "screenHeight", "lang", "simOperator", "simOpCountry", "networkOpName", "connType", "brand",
        "model", "osType", "osVer", "curioSdkVer", "appVer",
    ]
    static let deviceExtras = ["batteryLevel", "bluetooth", "storage", "activityWidth", "activityHeight"]
    private static let commonFour = ["sessionCode", "sessionTimeout", "visitorCode", "trackingCode"]
    private static let threeCodes = ["visitorCode", "trackingCode", "sessionCode"]

    /// A server URL ends in `/api/v2` or is the host alone.
    init?(path: String) {
        var suffix = path[...]
        if suffix.hasPrefix("/api/v2/") { suffix = suffix.dropFirst("/api/v2".count) }
        if let endpoint = Self(rawValue: String(suffix)), endpoint != .pushHistory {
            self = endpoint
            return
        }
        let parts = suffix.split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 5, parts[..<3].joined(separator: "/") == Self.pushHistory.rawValue,
            isNumber(parts[3]), isNumber(parts[4])
        else { return nil }
        self = .pushHistory
    }

    var required: [String] {
        switch self {
        case .visitCreate: ["apiKey"] + Self.commonFour + Self.device
        case .hitCreate: Self.commonFour + ["pageTitle", "path"]
        case .hitEnd: Self.commonFour + ["pageTitle", "path", "hitCode"]
        case .eventCreate: Self.commonFour + ["eventKey", "eventValue"]
        case .eventEnd: Self.commonFour + ["eventKey", "eventValue", "eventDuration", "eventCode"]
        case .visitEnd, .unregister: Self.commonFour
        case .batch: Self.commonFour + ["data"]
        case .offline: ["apiKey", "sessionTimeout", "visitorCode", "trackingCode"] + Self.device + ["data"]
        case .pushData: Self.threeCodes + ["pushId", "pushToken"]
        case .location: Self.threeCodes + ["lat", "long"]
        case .userTag: Self.threeCodes + ["userTags"]
        case .profileTags: Self.threeCodes
        case .pushHistory: Self.threeCodes + ["pushToken"]
        }
    }

    var optional: [String] {
        switch self {
        case .visitCreate, .offline: Self.deviceExtras
        case .pushData: ["customId"]
        case .unregister: ["customId", "pushToken"]
        case .hitCreate, .hitEnd, .eventCreate, .eventEnd, .visitEnd, .batch, .location, .userTag, .profileTags,
            .pushHistory:
            []
        }
    }
}
