import PosternCore
import PosternUpstream

/// Answers in the form of AppServices: always a JSON object.
extension SDKAnswer {
    /// A refusal of Usergrid. The SDK shows its description to the user of the app.
    static func error(_ code: Code, at now: Timestamp, _ description: String? = nil) -> Self {
        var answer = json(
            code.status, code.outcome,
            JSONWriter.object { json in
                json.string("error", code.rawValue)
                json.raw("timestamp", "\(now.milliseconds)")
                json.number("duration", 0)
                json.string("error_description", description ?? code.text)
            })
        // Who has a token that has expired knows the application.
        if code == .expiredToken { answer.isOfStranger = false }
        return answer
    }

    /// - Parameter allowed: The value of `Allow`.
    static func wrongMethod(_ allowed: String, at now: Timestamp) -> Self {
        var answer = error(.wrongMethod, at: now)
        answer.headers.append(("Allow", allowed))
        return answer
    }

    /// The refusal of the platform's proxy.
    static let invalidKey = json(
        401, .unauthorized,
        #"{"fault":{"faultstring":"Invalid ApiKey","detail":{"errorcode":"oauth.v2.InvalidApiKey"}}}"#)

    enum Code: String {
        case noApplication = "organization_application_not_found"
        case noCredentials = "auth_missing_credentials"
        case expiredToken = "expired_token"
        case notFound = "service_resource_not_found"
        case wrongMethod = "unsupported_service_operation"
        case notJSON = "json_parse"
        case invalid = "illegal_argument"
        case noMonitoring = "entity_not_found"
        case forbidden = "unauthorized"
        case tooLarge = "request_too_large"
        case noRoom = "service_unavailable"

        var status: Int {
            switch self {
            case .noApplication, .notFound, .noMonitoring: 404
            case .noCredentials, .expiredToken: 401
            case .wrongMethod: 405
            case .notJSON, .invalid: 400
            case .forbidden: 403
            case .tooLarge: 413
            case .noRoom: 503
            }
        }

        var outcome: Outcome {
            switch self {
            case .noApplication, .noCredentials, .expiredToken: .unauthorized
            case .notFound, .wrongMethod, .notJSON, .invalid, .noMonitoring, .forbidden, .tooLarge: .refused
            case .noRoom: .noRoom
            }
        }

        var text: String {
            switch self {
            case .noApplication: "Could not find the application"
            case .noCredentials: "No authentication credentials were supplied"
            case .expiredToken: "Unable to authenticate due to expired access token"
            case .notFound: "Service resource not found"
            case .wrongMethod: "The operation is not supported"
            case .notJSON: "The body is not a JSON object"
            case .invalid: "The request is not valid"
            case .noMonitoring: "Monitoring is not provided for the application"
            case .forbidden: "The request is not allowed"
            case .tooLarge: "The request is too large"
            case .noRoom: "The service is not available; try again later"
            }
        }
    }

    // MARK: Of the platform

    /// The platform's answer to the only or last request of a call, as the SDK gets it; nil if it gets the envelope
    /// instead: the outcome is open, or the platform says of what is created that it exists, after which the SDK would
    /// cancel everything that follows.
    static func passedOn(
        _ response: UpstreamResponse, to call: SDKCall, _ step: Step, withoutKey key: String, at now: Timestamp
    ) -> Self? {
        switch Answer(response, now: now).meaning(of: step) {
        case .ok, .notFound, .permanent, .reauthenticate: break
        case .hold, .retry, .suspect: return nil
        }
        let read = JSONParser.ofThisThread.parse(response.body) { root in
            (isDuplicate: root["error"]?.string == "duplicate_unique_property_exists", text: withoutSecrets(root))
        }
        if case .success((true, _)) = read, call == .user || call == .createGroup { return nil }
        guard case .success((_, let text?)) = read else {
            // The token was refused without a body, or with one that is not of the platform.
            return response.status == 401 ? .error(.expiredToken, at: now) : nil
        }
        return json(response.status, .proxied, key.isEmpty ? text : text.replacing(key, with: SecretMask.mask))
    }

    /// `params` echoes the key, and `access_token` would switch the SDK's log-in.
    private static func withoutSecrets(_ root: JSONValue) -> String? {
        guard root.kind == .object else { return nil }
        let members = root.members.filter { key, _ in !key.equals("params") && !key.equals("access_token") }
        let texts = members.map { String(decoding: $0.key.bytes + [UInt8(ascii: ":")] + $0.value.bytes, as: UTF8.self) }
        return "{" + texts.joined(separator: ",") + "}"
    }
}
