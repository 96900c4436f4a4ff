import PosternSimulatorKit

/// The responses of Seer, as far as they are known. Clients do not read their bodies.
enum Answer {
    static func json(_ status: Int, _ text: String) -> SimulatedAnswer {
        SimulatedAnswer(status: status, headers: [("Content-Type", "application/json")], body: Array(text.utf8))
    }

    static func refusal(_ status: Int, _ reason: String) -> SimulatedAnswer {
        json(status, #"{"error":\#(quoted(reason))}"#)
    }

    /// With the pointers that break a rule, never with their values.
    static func refusal(of places: [(index: Int, pointers: [String])]) -> SimulatedAnswer {
        let errors = places.map { item in
            #"{"index":\#(item.index),"pointers":[\#(item.pointers.map { quoted($0) }.joined(separator: ","))]}"#
        }
        return json(400, #"{"error":"invalid items","items":[\#(errors.joined(separator: ","))]}"#)
    }

    static let accepted = json(200, "{}")
    static let notFound = refusal(404, "not found")
    static let forbidden = refusal(403, "bad apikey")
    static let badLogin = challenged("Basic", "invalidClient")
    static let badToken = challenged("Bearer", "invalidToken")
    static let notAllowed = refusal(405, "method not allowed").with("Allow", "POST")

    private static func challenged(_ scheme: String, _ reason: String) -> SimulatedAnswer {
        refusal(401, reason).with("WWW-Authenticate", "\(scheme) realm=\"seer\"")
    }
}
