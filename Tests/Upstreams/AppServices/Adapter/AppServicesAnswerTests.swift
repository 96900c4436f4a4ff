import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import AppServicesAdapter

/// Section 10 of the specification, row by row.
@Suite struct AppServicesAnswerTests {
    private typealias Meaning = Answer.Meaning

    private func judge(
        _ status: Int, _ body: String, of step: Step = .connect,
        headers: [(name: String, value: String)] = []
    ) -> Meaning {
        let response = UpstreamResponse(status: status, headers: headers, body: Array(body.utf8))
        return Answer(response, now: UpstreamFixture.now).meaning(of: step)
    }

    /// The kind of a meaning, without its words.
    private func word(_ meaning: Meaning) -> String {
        switch meaning {
        case .ok: "ok"
        case .notFound: "not found"
        case .reauthenticate: "re-authenticate"
        case .hold: "configuration"
        case .retry: "retry"
        case .suspect: "suspect"
        case .permanent: "permanent"
        }
    }

    // MARK: 10.1 and V17

    @Test(arguments: [
        (200, #"{"entities":[{"uuid":"…","type":"device"}]}"#, "ok"),
        (201, #"{"entities":[7,{"uuid":"…"}]}"#, "ok"),
        (200, #"{"application":"…","timestamp":1,"duration":1}"#, "re-authenticate"),
        (200, #"{"entities":[]}"#, "re-authenticate"), (200, #"{"entities":[7]}"#, "re-authenticate"),
        (200, "{}", "re-authenticate"), (200, #"{"entities":[{"a":1}],"error":"expired_token"}"#, "re-authenticate"),
        (200, #"{"error":7,"entities":[{"a":1}]}"#, "suspect"), (200, "<html>", "suspect"), (204, "", "suspect"),
        (200, "[]", "suspect"), (200, #"{"error":"unheard_of"}"#, "suspect"),
        (401, "", "re-authenticate"), (401, "{}", "re-authenticate"), (503, "<html>", "retry"),
        (404, #"{"entities":[{"a":1}]}"#, "not found"),
        (401, #"{"error":"service_resource_not_found"}"#, "not found"),
        (403, #"{"error":"forbidden_service_operation"}"#, "permanent"),
    ])
    func body_isExaminedBeforeTheStatus(status: Int, body: String, meaning: String) {
        for step in [Step.registerDevice, .connect, .findGroup, .removeFromGroup] {
            #expect(word(judge(status, body, of: step)) == meaning)
        }
    }

    // MARK: 10.2

    @Test(arguments: [
        ("service_resource_not_found", 404, "not found"), ("service_resource_not_found", 401, "not found"),
        ("entity_not_found", 404, "not found"), ("entity_not_found", 401, "not found"),
        ("expired_token", 401, "re-authenticate"), ("auth_bad_access_token", 401, "re-authenticate"),
        ("auth_invalid", 401, "re-authenticate"), ("auth_unverified_oath", 401, "re-authenticate"),
        ("auth_missing_credentials", 401, "re-authenticate"), ("unauthorized", 401, "re-authenticate"),
        ("organization_application_not_found", 404, "configuration"),
        ("auth_unactivated_organization", 401, "configuration"),
        ("auth_disabled_organization", 401, "configuration"), ("auth_no_application", 401, "configuration"),
        ("required_property_not_found", 400, "permanent"), ("illegal_argument", 400, "permanent"),
        ("json_parse", 400, "permanent"), ("null_argument", 400, "permanent"),
        ("forbidden_service_operation", 403, "permanent"), ("unsupported_service_operation", 405, "permanent"),
        ("expired_token", 500, "retry"), ("anything", 500, "retry"), ("anything", 503, "retry"),
        ("anything", 400, "permanent"), ("anything", 401, "re-authenticate"), ("anything", 404, "not found"),
        ("anything", 429, "retry"),
    ])
    func errorCode_hasItsMeaning(code: String, status: Int, meaning: String) {
        #expect(word(judge(status, #"{"error":"\#(code)"}"#)) == meaning)
    }

    @Test func duplicate_isDone_whereSomethingIsMade() {
        for step in Step.allCases {
            let isDone = [Step.registerUser, .createGroup].contains(step)
            let found = judge(400, #"{"error":"duplicate_unique_property_exists"}"#, of: step)
            #expect(word(found) == (isDone ? "ok" : "permanent"), "\(step)")
        }
    }

    // MARK: 10.3

    @Test(arguments: [
        ("oauth.v2.InvalidApiKey", 401, "configuration"), ("oauth.v2.FailedToResolveAPIKey", 401, "configuration"),
        ("oauth.v2.InvalidApiKeyForGivenResource", 401, "configuration"),
        ("keymanagement.service.ApiKeyNotApproved", 401, "configuration"), ("x.apikey", 500, "configuration"),
        ("keymanagement.service.access_token_expired", 401, "re-authenticate"),
        ("keymanagement.service.invalid_access_token", 401, "re-authenticate"),
        ("oauth.v2.InvalidAccessToken", 401, "re-authenticate"),
        ("policies.ratelimit.QuotaViolation", 500, "retry"), ("policies.ratelimit.QuotaViolation", 429, "retry"),
        ("policies.ratelimit.SpikeArrestViolation", 429, "retry"),
        ("messaging.adaptors.http.flow.ApplicationNotFound", 404, "configuration"),
        ("CLASSIFICATION_FAILURE", 404, "configuration"), ("other", 400, "permanent"),
        ("other", 401, "re-authenticate"),
        ("other", 502, "retry"),
    ])
    func fault_hasItsMeaning(code: String, status: Int, meaning: String) {
        #expect(word(judge(status, #"{"fault":{"faultstring":"s","detail":{"errorcode":"\#(code)"}}}"#)) == meaning)
    }

    @Test func rateLimit_isWaitedFor_longerThanAnOutage() {
        let body = #"{"fault":{"detail":{"errorcode":"policies.ratelimit.QuotaViolation"}}}"#
        #expect(judge(429, body) == .retry(after: .seconds(30)))
        #expect(judge(429, body, headers: [("Retry-After", "90")]) == .retry(after: .seconds(90)))
    }

    // MARK: 10.4

    @Test(arguments: [
        (301, "configuration"), (302, "configuration"), (307, "configuration"), (401, "re-authenticate"),
        (403, "permanent"), (404, "not found"), (408, "retry"), (425, "retry"), (429, "retry"), (400, "permanent"),
        (405, "permanent"), (413, "permanent"), (422, "permanent"), (500, "retry"), (502, "retry"), (503, "retry"),
    ])
    func status_decides_whenTheBodyDoesNotTell(status: Int, meaning: String) {
        for body in ["", "<html>", "{", "[]", "7", #"{"fault":"?"}"#] {
            #expect(word(judge(status, body)) == meaning)
        }
    }

    @Test func reason_keepsTheServersWords() {
        let found = judge(400, #"{"error":"illegal_argument","error_description":"bad word in here"}"#)
        #expect(found == .permanent(reason: "HTTP 400: illegal_argument: bad word in here"))
    }

    // MARK: 10.5

    @Test(arguments: [
        ("register", "registerDevice", "failed"), ("register", "registerUser", "failed"),
        ("preferences", "savePreferences", "failed"), ("unregister", "blankToken", "failed"),
        ("unregister", "disconnect", "delivered"), ("group_remove", "findGroup", "failed"),
        ("group_remove", "removeFromGroup", "failed"), ("group_add", "createGroup", "failed"),
    ])
    func notFound_hasAMeaningForEachOperation(kind: String, step: String, end: String) throws {
        var harness = try AppServicesHarness()
        if kind == "preferences" {
            let first = try harness.post("register", AppServicesItems.registration())
            _ = try harness.run(first, answer: AppServicesHarness.usual)
        }
        let text =
            switch kind {
            case "register": AppServicesItems.registration()
            case "preferences": AppServicesItems.item(AppServicesItems.u1, AppServicesItems.lists)
            case "unregister": AppServicesItems.item()
            default: AppServicesItems.group()
            }
        let id = try harness.post(kind, text)
        _ = try harness.run(id) { request in
            let isMissing = request.step == step || (step == "createGroup" && request.step == "findGroup")
            return isMissing ? AppServicesHarness.error(404, "entity_not_found") : AppServicesHarness.usual(request)
        }
        #expect(harness.ended[id]?.state.name == end)
    }
}
