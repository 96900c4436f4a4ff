import PosternCore
import PosternJSON

/// What an answer means (section 10): the body is looked at before the status, since a missing entity may come as 401.
struct Answer {
    enum Outcome: Equatable {
        /// Done now, or before.
        case ok
        case notFound
        /// The token is not taken. `isDoubtful`: a fresh one that gets the same answer shows that it is not the token.
        case reauthenticate(isDoubtful: Bool, reason: String)
        case hold(HoldReason, detail: String)
        case retry(after: Duration?)
        /// Something that is no answer of AppServices: a few times again, then the message is blamed.
        case suspect
        case permanent(reason: String)
    }

    private let response: UpstreamResponse
    private let now: Timestamp

    /// Tries after which a message fails that got nothing but answers that are not JSON (10.4).
    static let junkLimit = 4
    /// For rate limits that name no time.
    private static let slowPause = Duration.seconds(30)

    init(_ response: UpstreamResponse, now: Timestamp) {
        self.response = response
        self.now = now
    }

    /// What of the body decides.
    private enum Body {
        case error(code: String, description: String)
        case fault(code: String)
        case entities
        /// An object without `error`, and without an object in `entities`.
        case nothing
        /// Something else, JSON or not.
        case other
    }

    func outcome(of step: Step) -> Outcome {
        switch body {
        case .error(let code, let description): outcome(error: code, description, of: step)
        case .fault(let code): outcome(fault: code)
        case .entities where isSuccess: .ok
        case .nothing where isSuccess:
            .reauthenticate(isDoubtful: true, reason: reason("neither an entity nor an error"))
        case .entities, .nothing, .other: outcomeByStatus("no error that it names")
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

    // MARK: 10.2

    private func outcome(error code: String, _ description: String, of step: Step) -> Outcome {
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
        default: return outcomeByStatus(words)
        }
    }

    // MARK: 10.3

    private func outcome(fault code: String) -> Outcome {
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
        return outcomeByStatus(code)
    }

    // MARK: 10.4

    private func outcomeByStatus(_ words: String) -> Outcome {
        switch response.status {
        case 200..<300: .suspect
        case 300..<400:
            .hold(.configuration, detail: "answered \(response.status): redirects are not followed with tokens")
        case 401: .reauthenticate(isDoubtful: false, reason: reason(words))
        case 404: .notFound
        case 408, 425, 429: retry()
        case 400..<500: .permanent(reason: reason(words))
        // 5xx, and numbers that mean nothing.
        default: retry()
        }
    }

    private func retry() -> Outcome { .retry(after: response.retryAfter(now: now)) }

    /// For people: AppServices' own words.
    private func reason(_ words: String) -> String { "answered \(response.status): \(words)" }
}
