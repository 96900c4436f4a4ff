import PosternCore
import PosternUpstream

/// What an SDK has posted to one of the paths, without the sessions that are known here.
struct CurioSDKRequest: Equatable, Sendable {
    let call: SDKCall
    let form: SDKForm

    var visitor: String? { form.filled("visitorCode") }
    /// That of the top level, which `offline` does not have.
    var session: String? { form.filled("sessionCode") }

    /// Of the session; nil for that of the settings. No session is rejected for it.
    var timeoutMinutes: Int? {
        guard let text = form["sessionTimeout"], let minutes = Int(text), (1...1440).contains(minutes) else {
            return nil
        }
        return minutes
    }

    /// The device block, as it is: what is missing stays so, and so does what is empty.
    var device: Device { Device(values: Device.names.map { form["\($0)"] }) }

    /// Whether the request has the tracking code and, where it is needed, the API key. Takes as long for any other text of
    /// the same length.
    func hasCredentials(apiKey: String, trackingCode: String) -> Bool {
        let isTracked = Self.equal(form["trackingCode"] ?? "", trackingCode)
        return isTracked && (!call.needsAPIKey || Self.equal(form["apiKey"] ?? "", apiKey))
    }

    private static func equal(_ given: String, _ right: String) -> Bool {
        let (given, right) = (Array(given.utf8), Array(right.utf8))
        guard given.count == right.count, !right.isEmpty else { return false }
        return zip(given, right).reduce(UInt8(0)) { $0 | ($1.0 ^ $1.1) } == 0
    }
}

/// What an item of a request becomes: a message of a kind, with a payload as the gateway's own API takes it. Members that the
/// SDK has not sent are missing, so it may break the kind's rules.
struct CurioSDKItem: Equatable, Sendable {
    let kind: CurioKind
    let payload: String
}

extension CurioSDKItem {
    /// The item of a report, or of a record that is one of the actions.
    ///
    /// - Parameters:
    ///   - timestamp: In milliseconds since 1970.
    ///   - sentIn: The batch that it came in.
    ///   - value: A parameter, or a member of the record: nil if it is missing.
    init(
        _ kind: CurioKind, visitor: String?, session: String?, timestamp: Int64, code: String? = nil,
        sentIn: SDKBatch.Form? = nil, _ value: (String) -> String?
    ) {
        self.kind = kind
        payload = JSONWriter.object { json in
            func add(_ names: String...) {
                for name in names { if let text = value(name) { json.string(name, text) } }
            }
            if let visitor { json.string("visitorCode", visitor) }
            if let session { json.string("sessionCode", session) }
            json.raw("timestamp", String(timestamp))
            switch kind {
            case .sessionStart:
                for name in Device.names { add("\(name)") }
                if let minutes = value("sessionTimeout") { json.raw("sessionTimeout", minutes) }
            case .sessionEnd: break
            case .screenStart: add("pageTitle", "path")
            case .event: add("eventKey", "eventValue")
            case .screenEnd, .eventEnd:
                // iOS sends both texts empty: they are those of the start.
                let names = kind == .screenEnd ? ("pageTitle", "path") : ("eventKey", "eventValue")
                if value(names.0)?.isEmpty == false || value(names.1)?.isEmpty == false { add(names.0, names.1) }
                if kind == .eventEnd { Self.addCount("eventDuration", value("eventDuration"), to: &json) }
            case .pushToken: add("pushToken", "customId")
            case .notificationRead: add("pushToken", "pushId", "customId")
            case .customID: add("pushToken", "customId")
            case .location: add("lat", "long")
            case .unregister: add("customId", "pushToken")
            case .userTags:
                if let tags = value("userTags") {
                    json.raw("userTags", Self.isJSON(tags) ? tags : JSONEscapes.quoted(tags))
                }
            }
            let name: String? =
                switch kind {
                case .screenStart, .screenEnd: "hitCode"
                case .event, .eventEnd: "eventCode"
                default: nil
                }
            if let name, let code = code { json.string(name, code) }
            if let sentIn { json.string("sentIn", sentIn.rawValue) }
        }
    }

    /// A number; a text that is not one stays a text, which breaks the kind's rules.
    private static func addCount(_ name: String, _ text: String?, to json: inout JSONWriter) {
        guard let text else { return }
        if let number = Int64(text) { json.raw(name, String(number)) } else { json.string(name, text) }
    }

    private static func isJSON(_ text: String) -> Bool {
        if case .success = JSONParser.ofThisThread.parseWithLoneSurrogates(Array(text.utf8), { _ in }) {
            true
        } else {
            false
        }
    }
}

extension CurioSDKRequest {
    /// The message of a report.
    ///
    /// - Parameters:
    ///   - issued: The code of a screen or an event that starts.
    ///   - now: When the request was received, which is the time of what it reports.
    func item(_ report: SDKCall.Report, code issued: String, at now: Timestamp) -> CurioSDKItem {
        let kind = kind(of: report)
        let code: String? =
            switch kind {
            case .screenStart, .event: issued
            case .screenEnd: form.filled("hitCode")
            case .eventEnd: form.filled("eventCode")
            default: nil
            }
        return CurioSDKItem(kind, visitor: visitor, session: session, timestamp: now.milliseconds, code: code) { name in
            switch name {
            case "sessionTimeout": timeoutMinutes.map(String.init)
            case "pushToken", "pushId", "customId": form.filled(name)
            default: form[name]
            }
        }
    }

    private func kind(of report: SDKCall.Report) -> CurioKind {
        switch report {
        case .sessionStart: .sessionStart
        case .screenStart: .screenStart
        case .screenEnd: .screenEnd
        case .event: .event
        case .eventEnd: .eventEnd
        case .sessionEnd: .sessionEnd
        case .push:
            form.filled("pushId") != nil ? .notificationRead : form.filled("customId") != nil ? .customID : .pushToken
        case .location: .location
        case .userTags: .userTags
        case .unregister: .unregister
        }
    }
}
