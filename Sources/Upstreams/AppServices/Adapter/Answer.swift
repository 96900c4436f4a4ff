import PosternCore
import PosternUpstream

/// What a response means (section 10). The body is examined before the status, because a missing entity may be reported
/// as 401.
struct Answer {
    enum Meaning: Equatable {
        /// The step is done, by this request or an earlier one.
        case ok
        case notFound
        /// The token was rejected. `isDoubtful`: if a new token gets the same response, the token is not the cause.
        case reauthenticate(isDoubtful: Bool, reason: String)
        case hold(Verdict.HoldReason, detail: String)
        case retry(after: Duration?)
        /// The response is not one of AppServices. The request is repeated a few times; then the message fails.
        case suspect
        case permanent(reason: String)
    }

    private let response: UpstreamResponse
    private let now: Timestamp

    /// The number of attempts after which a message fails if all responses were not JSON (10.4).
    static let junkLimit = 4
    /// The wait for rate limits without a time.
    private static let slowPause = Duration.seconds(30)

    init(_ response: UpstreamResponse, now: Timestamp) {
        self.response = response
        self.now = now
    }

    /// The part of the body that decides.
    private enum Body {
        case error(code: String, description: String)
        case fault(code: String)
        case entities
        /// An object without `error`, and without an object in `entities`.
        case nothing
        /// Any other body, JSON or not.
        case other
    }

    func meaning(of step: Step) -> Meaning {
        switch body {
        case .error(let code, let description): meaning(error: code, description, of: step)
        case .fault(let code): meaning(fault: code)
        case .entities where isSuccess: .ok
        case .nothing where isSuccess:
            .reauthenticate(isDoubtful: true, reason: reason("neither an entity nor an error"))
        case .entities, .nothing, .other: meaningByStatus("no error that it names")
        }
    }

    private var isSuccess: Bool { (200..<300).contains(response.status) }

    private var body: Body {
        let read = JSONParser.ofThisThread.parse(response.body) { root -> Body in
            guard root.kind == .object else { return .other }
            if let error = root["error"] {
                guard let code = error.string else { return .other }
                return .error(code: code, description: root["error_description"]?.string ?? "")
            }
            if let fault = root["fault"] { return .fault(code: fault["detail"]?["errorcode"]?.string ?? "") }
            return root["entities"]?.elements.contains { $0.kind == .object } ?? false ? .entities : .nothing
        }
        if case .success(let body) = read { return body }
        return .other
    }

    /// The `uuid` of its entity; nil if it has none, or one that is longer than a UUID.
    var entityID: String? {
        let read = JSONParser.ofThisThread.parse(response.body) { root in
            root.kind == .object ? root["entities"]?.elements.first { $0.kind == .object }?["uuid"]?.string : nil
        }
        guard case .success(let id?) = read, 1...36 ~= id.utf8.count else { return nil }
        return id
    }

    // MARK: 10.2

    private func meaning(error code: String, _ description: String, of step: Step) -> Meaning {
        guard response.status < 500 else { return retry() }
        let words = description.isEmpty ? code : "\(code): \(description)"
        switch code {
        case "duplicate_unique_property_exists":
            return step == .registerUser || step == .createGroup ? .ok : .permanent(reason: reason(words))
        case "service_resource_not_found", "entity_not_found": return .notFound
        case "expired_token", "auth_bad_access_token", "auth_invalid", "auth_unverified_oath",
            "auth_missing_credentials":
            return .reauthenticate(isDoubtful: false, reason: reason(words))
        case "unauthorized": return .reauthenticate(isDoubtful: true, reason: reason(words))
        case "organization_application_not_found", "auth_unactivated_organization", "auth_disabled_organization",
            "auth_no_application":
            return .hold(.configuration, detail: reason(words))
        case "required_property_not_found", "illegal_argument", "json_parse", "null_argument",
            "forbidden_service_operation", "unsupported_service_operation":
            return .permanent(reason: reason(words))
        default: return meaningByStatus(words)
        }
    }

    // MARK: 10.3

    private func meaning(fault code: String) -> Meaning {
        let lowercased = code.lowercased()
        if lowercased.contains("apikey") {
            return .hold(.credentials, detail: reason("\(code): the api key is not accepted"))
        }
        if code.contains("access_token") || code.contains("AccessToken") {
            return .reauthenticate(isDoubtful: false, reason: reason(code))
        }
        if ["ratelimit", "QuotaViolation", "SpikeArrest"].contains(where: code.contains) {
            return .retry(after: response.retryAfter(now: now) ?? Self.slowPause)
        }
        if ["ApplicationNotFound", "CLASSIFICATION_FAILURE"].contains(where: code.contains) {
            return .hold(.configuration, detail: reason(code))
        }
        return meaningByStatus(code)
    }

    // MARK: 10.4

    private func meaningByStatus(_ words: String) -> Meaning {
        switch response.status {
        case 200..<300: .suspect
        case 300..<400:
            .hold(.configuration, detail: redirection)
        case 401: .reauthenticate(isDoubtful: false, reason: reason(words))
        case 404: .notFound
        case 407: .hold(.configuration, detail: "HTTP 407: a proxy requires credentials")
        case _ where response.isDeferral: retry()
        case 400..<500: .permanent(reason: reason(words))
        // 5xx, and numbers that are not a status.
        default: retry()
        }
    }

    private var redirection: String {
        response.redirectTarget == nil
            ? "HTTP \(response.status): redirects are not followed with tokens" : response.outline()
    }

    private func retry() -> Meaning { .retry(after: response.retryAfter(now: now)) }

    /// Codes of errors that the response to a disconnect can have, and that say nothing but what went wrong.
    private static let plainCodes: Set = [
        "duplicate_unique_property_exists", "forbidden_service_operation", "illegal_argument", "json_parse",
        "null_argument", "required_property_not_found", "unauthorized", "unsupported_service_operation",
    ]

    /// The reason without a text of AppServices, which could be long and contain a secret: for the store.
    var plainReason: String {
        switch body {
        case .error(let code, _) where Self.plainCodes.contains(code): reason(code)
        case .error, .fault: reason("an error that is not known")
        case .nothing: reason("neither an entity nor an error")
        case .entities, .other: reason("not a response of AppServices")
        }
    }

    /// The reason for people, as AppServices words it.
    private func reason(_ words: String) -> String { "HTTP \(response.status): \(words)" }
}
