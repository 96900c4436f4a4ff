import PosternCore
import PosternTestKit
import PosternUpstream

/// Serves an SDK that posts arrays of numbers: even ones are valid, each above 100 is known by its value, and a request is not
/// admitted if its first one is 40.
struct NumbersUpstream: PlainAtHeart, SDKServingUpstream {
    let plain = PlainUpstream("numbers", kinds: ["thing"])
    var settings = SDKSettings(maxBodyBytes: 128 << 10)
    var access: SDKRoute.Access = .key
    var patience = Duration.zero
    var checksCallersFirst = false

    var sdk: SDKEndpoints? {
        SDKEndpoints(
            settings, of: name,
            [
                SDKRoute("numbers", .post, "in/{place}", isAtRoot: true, access, .store(read)),
                SDKRoute(
                    "status", .get, "status", isAtRoot: true,
                    withoutRoom: SDKAnswer(503, .noRoom, body: Array("offline".utf8)), .open,
                    .perform { _, context in SDKAnswer(context.isReady ? 200 : 503, .accepted) }),
                SDKRoute(
                    "later", .post, "later", .open,
                    .perform { request, context throws(SDKAnswer) in await context.store(try read(request)) }),
                SDKRoute(
                    "checked", .post, "checked",
                    .head { $0.header("X-Key") == "k" ? nil : SDKAnswer(401, .unauthorized) },
                    .perform { request, context throws(SDKAnswer) in await context.store(try read(request)) }),
                SDKRoute(
                    "one", or: ["other"], .put, "one/{place}", alias: "uno/{place}", withoutRoom: .dropped(.noRoom),
                    .open,
                    .perform { request, context throws(SDKAnswer) in
                        var answer = await context.store(try read(request))
                        answer.call = "other"
                        return answer
                    }),
                SDKRoute(
                    "patient", .get, "patient/{seconds}", .open,
                    .perform { request, context in
                        let seconds = Int(request.parameters["seconds"] ?? "") ?? 0
                        let found: String? = await context.wait(seconds: seconds) { if seconds == 60 { $0("found") } }
                        return SDKAnswer(200, .proxied, body: Array((found ?? (context.isAway ? "away" : "none")).utf8))
                    }),
            ], patience: patience,
            unrouted: checksCallersFirst ? Self.refuseStrangers : nil
        ) { reason in
            let status =
                switch reason {
                case .notFound: 404
                case .methodNotAllowed: 405
                case .unauthorized: 401
                case .forbidden: 403
                case .malformed: 400
                case .tooLarge: 413
                case .noRoom: 503
                }
            return SDKAnswer(
                status, reason.outcome, headers: [("Content-Type", "text/sdk")], body: Array("\(reason)".utf8))
        }
    }

    @Sendable private static func refuseStrangers(_ request: SDKRequest, _ reason: SDKRefusal) -> SDKAnswer {
        request.header("X-Token") == nil
            ? SDKAnswer(401, .unauthorized) : SDKAnswer(404, .refused, body: Array("\(reason)".utf8))
    }

    private func read(_ request: SDKRequest) throws(SDKAnswer) -> SDKSubmission {
        let parsed = try JSONParser.ofThisThread.parseWithLoneSurrogates(request.body) { root throws(SDKAnswer) in
            SDKSubmission(
                request.body,
                root.elements.map { element in
                    let number = element.integer ?? 0
                    return SDKItem(
                        "thing", element.range,
                        number % 2 == 0
                            ? .success(ValidPayload()) : .failure(InvalidPayload([PayloadError("/n", "must be even")])),
                        identity: number > 100 ? Array(repeating: UInt8(number), count: 32) : nil)
                }
            ) { SDKAnswer(200, $0.outcome, body: Array("\($0.ids.count) \($0.repeated.count)".utf8)) }
        }
        guard var submission = try? parsed.get() else { throw SDKAnswer(400, .refused) }
        if let first = submission.items.first?.range, request.body[first].elementsEqual("40".utf8) {
            submission.admission = SDKAdmission { _ throws(AcceptanceError) in
                throw AcceptanceError(.unknownSession, "no session")
            } refusal: { _ in
                SDKAnswer(401, .unauthorized)
            }
        }
        return submission
    }
}
