import PosternSimulatorKit

/// Something that happened on a device, as a request reports it.
struct Action {
    enum Kind: String, CaseIterable, Encodable, CodingKeyRepresentable {
        case sessionStart = "session_start"
        case sessionEnd = "session_end"
        case screenStart = "screen_start"
        case screenEnd = "screen_end"
        case event
        case eventEnd = "event_end"
        case pushToken = "push_token"
        case notificationRead = "notification_read"
        case customID = "custom_id"
        case location
        case userTags = "user_tags"
        case unregister

        /// The `type` of a batch's record.
        init?(recordType: String) {
            switch recordType {
            case "0": self = .sessionStart
            case "1": self = .sessionEnd
            case "2": self = .screenStart
            case "3": self = .screenEnd
            case "4": self = .event
            case "7": self = .eventEnd
            default: return nil
            }
        }

        /// The fields of a record in addition to `type`, `timestamp`, and `sessionCode`; of a request of its own, in
        /// addition to the codes.
        var fields: [String] {
            switch self {
            case .sessionStart, .sessionEnd: []
            case .screenStart, .screenEnd: ["pageTitle", "path"]
            case .event: ["eventKey", "eventValue"]
            case .eventEnd: ["eventKey", "eventValue", "eventDuration"]
            case .pushToken, .notificationRead, .customID: ["pushId", "pushToken", "customId"]
            case .location: ["lat", "long"]
            case .userTags: ["userTags"]
            case .unregister: ["customId", "pushToken"]
            }
        }

        /// The parameter with the code that links an end to its start.
        var codeName: String? {
            switch self {
            case .screenStart, .screenEnd: "hitCode"
            case .event, .eventEnd: "eventCode"
            case .sessionStart, .sessionEnd, .pushToken, .notificationRead, .customID, .location, .userTags,
                .unregister:
                nil
            }
        }

        /// What an end closes; nil for other actions.
        var opening: Self? {
            switch self {
            case .screenEnd: .screenStart
            case .eventEnd: .event
            case .sessionStart, .sessionEnd, .screenStart, .event, .pushToken, .notificationRead, .customID,
                .location, .userTags, .unregister:
                nil
            }
        }
    }

    let kind: Kind
    let visitor: String
    let session: String
    /// Decoded, with their names on the wire.
    var texts: [(name: String, value: String)] = []
    var timestamp: Int64?
    /// The code of the start. If the start was posted alone, the server assigns it when it accepts the start.
    var code: String?

    /// Two texts that an end repeats from its start; nil when both are empty.
    var pair: UInt64? {
        let pair = texts.prefix(2).map(\.value)
        return pair.allSatisfy(\.isEmpty) ? nil : digest(of: pair.map { quoted($0) }.joined(separator: ","))
    }

    /// Equal for actions that the server treats as the same, however they were sent.
    ///
    /// The start and the end of a session are identified by its code, the end of a screen or event by the code that it
    /// quotes, and their start by all of its values: in a batch these include a code, and for a single start the server
    /// makes a new code each time. Other actions have no code, so an equal one counts as a repeat.
    var identity: UInt64 {
        switch kind {
        case .sessionStart, .sessionEnd: digest(of: "\(kind.rawValue) \(session)")
        case .screenEnd, .eventEnd: digest(of: "\(kind.rawValue) \(code ?? "")")
        case .screenStart, .event, .pushToken, .notificationRead, .customID, .location, .userTags, .unregister:
            digest(of: json(after: ""))
        }
    }

    /// Whether a repetition can be distinguished from the same action happening again.
    var hasIdentity: Bool {
        switch kind {
        case .sessionStart, .sessionEnd, .screenEnd, .eventEnd: true
        case .screenStart, .event: timestamp != nil
        case .pushToken, .notificationRead, .customID, .location, .userTags, .unregister: false
        }
    }

    /// The text shown in `/received`. `members` precede those of the action, each followed by a comma.
    func json(after members: String) -> String {
        var text = "{\"visitor\":\(quoted(visitor)),\"session\":\(quoted(session)),"
        text += "\"action\":\"\(kind.rawValue)\",\(members)"
        for (name, value) in texts {
            text += "\"\(name)\":\(name == "userTags" ? value : quoted(value)),"
        }
        if let timestamp { text += "\"timestamp\":\(timestamp)," }
        if let code { text += "\"code\":\(quoted(code))," }
        text.removeLast()
        return text + "}"
    }
}
