import PosternCore
import PosternSimulatorKit

/// Writes the responses of the platform and of the proxy in front of it (specification, sections 4.0 and 10).
struct Answer: Sendable {
    let settings: AppServicesSettings
    let organization: String
    let application: String
    let apiKey: String
    let now: Timestamp

    /// The result of an operation.
    enum Result: Sendable {
        case entity(String, path: String)
        /// A Usergrid error code with its status.
        case error(String, status: Int, description: String)
        case notFound
    }

    func answer(_ result: Result, action: String) -> SimulatedAnswer {
        switch result {
        case .entity(let entity, let path): success(entity, action: action, path: path)
        case .error(let code, let status, let description): error(code, status, description)
        case .notFound: notFound
        }
    }

    /// The envelope echoes the query, including the api key, as the real one does.
    private func success(_ entity: String, action: String, path: String) -> SimulatedAnswer {
        let base = "https://mobileservices.openclasslabs.com/appservices/\(organization)/\(application)"
        return .json(
            200,
            """
            {"action":\(quoted(action)),"application":"b616dfc1-bd09-5707-82b6-1e6b7b661c4e",\
            "params":{"api_key":[\(quoted(apiKey))]},"path":\(quoted(path)),"uri":\(quoted(base + path)),\
            "entities":[\(entity)],"timestamp":\(now.milliseconds),"duration":35,\
            "organization":\(quoted(organization)),"applicationName":\(quoted(application))}
            """)
    }

    func error(_ code: String, _ status: Int, _ description: String) -> SimulatedAnswer {
        let exception = Self.exceptions[code] ?? "org.apache.usergrid.services.exceptions.ServiceInvocationException"
        return .json(
            settings.errorStatus ?? status,
            """
            {"error":\(quoted(code)),"timestamp":\(now.milliseconds),"duration":0,"exception":\(quoted(exception)),\
            "error_description":\(quoted(description))}
            """)
    }

    private static let exceptions = [
        "service_resource_not_found": "org.apache.usergrid.services.exceptions.ServiceResourceNotFoundException",
        "entity_not_found": "org.apache.usergrid.persistence.exceptions.EntityNotFoundException",
        "duplicate_unique_property_exists":
            "org.apache.usergrid.persistence.exceptions.DuplicateUniquePropertyExistsException",
        "required_property_not_found":
            "org.apache.usergrid.persistence.exceptions.RequiredPropertyNotFoundException",
        "illegal_argument": "java.lang.IllegalArgumentException",
        "json_parse": "org.codehaus.jackson.JsonParseException",
    ]

    var notFound: SimulatedAnswer {
        error(
            settings.notFoundError.rawValue, settings.style.status,
            settings.notFoundError == .entity ? "Entity not found" : "Service resource not found")
    }

    static func fault(_ status: Int, _ code: String, _ text: String) -> SimulatedAnswer {
        .json(status, #"{"fault":{"faultstring":\#(quoted(text)),"detail":{"errorcode":\#(quoted(code))}}}"#)
    }

    static func html(_ status: Int, _ text: String) -> SimulatedAnswer {
        SimulatedAnswer(
            status: status, headers: [("Content-Type", "text/html")],
            body: Array("<html><body>\(status) \(text)</body></html>".utf8))
    }

    /// Why a token is rejected.
    enum Rejection: Sendable { case missing, expired, invalid, ofAnotherUser }

    func refused(_ refusal: Rejection) -> SimulatedAnswer {
        switch settings.errorStyle {
        case .usergrid: return usergrid(refusal)
        case .errorIn200:
            var answer = usergrid(refusal)
            answer.status = 200
            return answer
        case .fault:
            switch refusal {
            case .missing: return Self.fault(401, "oauth.v2.InvalidAccessToken", "Invalid access token")
            case .expired:
                return Self.fault(401, "keymanagement.service.access_token_expired", "Access Token expired")
            case .invalid, .ofAnotherUser:
                return Self.fault(401, "keymanagement.service.invalid_access_token", "Invalid Access Token")
            }
        case .empty: return SimulatedAnswer(status: 401)
        case .html: return Self.html(401, "Authorization Required")
        case .noEntities:
            return .json(
                200,
                """
                {"application":"b616dfc1-bd09-5707-82b6-1e6b7b661c4e","timestamp":\(now.milliseconds),"duration":1}
                """)
        case .emptyEntities: return .json(200, #"{"entities":[]}"#)
        }
    }

    private func usergrid(_ refusal: Rejection) -> SimulatedAnswer {
        switch refusal {
        case .missing: error("auth_missing_credentials", 401, "No credentials")
        case .expired: error("expired_token", 401, "Unable to authenticate due to expired access token")
        case .invalid: error("auth_bad_access_token", 401, "Unable to authenticate due to corrupt access token")
        case .ofAnotherUser: error("unauthorized", 401, "Subject does not have permission")
        }
    }
}

/// What a response tells the gateway (specification, section 10.1): the body before the status.
enum KnownResult: Sendable, Equatable {
    case ok, done, notFound, refusedToken, configuration, retry, permanent
    /// 2xx with something that is not JSON: retried a few times, then permanent.
    case unreadable

    init(_ answer: SimulatedAnswer, to step: Call.Step) {
        let body = JSONTree.read(answer.body)?.value
        self =
            (body?["error"]?.string).flatMap { Self.error($0, answer.status, step) }
            ?? (body?["fault"]).flatMap(Self.fault) ?? Self.plain(answer.status, body)
    }

    private static func error(_ code: String, _ status: Int, _ step: Call.Step) -> Self? {
        switch code {
        case "duplicate_unique_property_exists":
            step == .registerUser || step == .createGroup ? .done : .permanent
        case "service_resource_not_found", "entity_not_found": .notFound
        case "expired_token", "auth_bad_access_token", "auth_invalid", "auth_unverified_oath",
            "auth_missing_credentials", "unauthorized":
            .refusedToken
        case "organization_application_not_found", "auth_unactivated_organization", "auth_disabled_organization",
            "auth_no_application":
            .configuration
        case "required_property_not_found", "illegal_argument", "json_parse", "null_argument",
            "forbidden_service_operation", "unsupported_service_operation":
            .permanent
        default: byStatus(status)
        }
    }

    private static func fault(_ fault: JSONTree) -> Self? {
        guard let code = fault["detail"]?["errorcode"]?.string else { return nil }
        let lowered = code.lowercased()
        if lowered.contains("apikey") { return .configuration }
        if code.contains("access_token") || code.contains("AccessToken") { return .refusedToken }
        if ["ratelimit", "QuotaViolation", "SpikeArrest"].contains(where: code.contains) { return .retry }
        return ["ApplicationNotFound", "CLASSIFICATION_FAILURE"].contains(where: code.contains) ? .configuration : nil
    }

    private static func plain(_ status: Int, _ body: JSONTree?) -> Self {
        guard (200...299).contains(status) else { return byStatus(status) }
        guard body?.members != nil else { return .unreadable }
        return body?["entities"]?.elements?.contains { $0.members != nil } == true ? .ok : .refusedToken
    }

    private static func byStatus(_ status: Int) -> Self {
        switch status {
        case 300..<400: .configuration
        case 401: .refusedToken
        case 404: .notFound
        case 408, 425, 429: .retry
        case 400..<500: .permanent
        default: .retry
        }
    }
}
