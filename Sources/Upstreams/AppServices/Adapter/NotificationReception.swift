import PosternCore
import PosternUpstream

/// What the framework adds to a notification when a device receives it (section 7), from the query of the request.
struct NotificationReception {
    static let parameters = ["timestamp", "userID", "applicationState"]

    /// A parameter whose value is not valid.
    struct InvalidQuery: Error {
        let detail: String
    }

    /// The values of `UIApplicationState`, by name and by number.
    private static let states = ["active", "inactive", "background"]

    private let timestamp: Timestamp
    /// Nil if the request does not name a user.
    private let userID: String?
    /// A JSON text; nil if the request does not say.
    private let applicationState: String?

    init(_ request: UpstreamRouteRequest) throws(InvalidQuery) {
        let query = request.query
        if let text = query["timestamp"] {
            guard let time = Timestamp(rfc3339: text) else {
                throw InvalidQuery(detail: "The parameter `timestamp` must be a time in the form of RFC 3339.")
            }
            timestamp = time
        } else {
            timestamp = request.receivedAt
        }
        userID = query["userID"]
        if userID == "" { throw InvalidQuery(detail: "The parameter `userID` must not be empty.") }
        switch query["applicationState"] {
        case nil: applicationState = nil
        case let name? where Self.states.contains(name): applicationState = JSONEscapes.quoted(name)
        case let number? where Self.states.indices.map(String.init).contains(number): applicationState = number
        case .some:
            throw InvalidQuery(
                detail: "The parameter `applicationState` must be active, inactive, background, or 0, 1, 2.")
        }
    }

    func write(to json: inout JSONWriter) {
        json.time("timestamp", timestamp)
        if let userID { json.string("userID", userID) }
        if let applicationState { json.raw("applicationState", applicationState) }
        json.flag("hasBeenRead", false)
    }
}
