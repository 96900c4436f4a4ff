import PosternCore
import PosternSimulatorKit

/// The settings of the webhook simulator: the members of `/control` that can be set.
struct WebhookSettings: ControlMembers {
    /// The paths that exist; empty means all.
    var paths: [String] = []
    /// The form of bodies that is expected.
    var batch = Batch.any
    /// The member of a wrapped batch.
    var wrapIn = "items"
    /// The status of a success.
    var status = 200
    /// The expected `Authorization`, whole; empty means any, and tokens that were issued.
    var authorization = ""
    /// The expected credentials of a token request; empty means any.
    var clientId = ""
    var clientSecret = ""
    var scope = ""
    /// Parameters that a token request has to have, each `name=value`.
    var tokenParameters: [String] = []
    /// Where a token request has to have the credentials.
    var clientAuthentication = ClientAuthentication.any
    var tokenLifeSeconds = 300.0
    /// If there are any, each request has to be signed with one of them.
    var signingSecrets: [String] = []

    enum Batch: String, ControlChoice {
        /// One JSON value, or lines of JSON.
        case any
        case none, array, ndjson, wrapped
    }

    enum ClientAuthentication: String, ControlChoice { case any, basic, post }

    var problem: String? {
        if signingSecrets.contains(where: { Signatures.key(of: $0) == nil }) {
            return "signingSecrets: each must be whsec_ followed by 24 to 64 bytes in Base64"
        }
        return PosternSimulatorKit.problem("status", status, 200...499)
            ?? PosternSimulatorKit.problem("tokenLifeSeconds", tokenLifeSeconds, 0...1_000_000_000)
    }
}

/// The commands of a `POST /control`.
struct Commands: ControlCommands {
    var revokeNow: Bool?

    enum CodingKeys: CodingKey, CaseIterable { case revokeNow }
}
