import PosternCore
import PosternSimulatorKit

/// The settings of the Seer simulator: the members of `/control` that can be set.
struct SeerSettings: ControlMembers {
    /// Empty means any, but the same in every request.
    var clientId = ""
    var clientSecret = ""
    var apiKey = ""
    var tokenLifeSeconds = 3600.0
    var expirationForm = ExpirationForm.number
    var tokenAnswer = TokenAnswer.normal
    /// How often a report with a valid token gets 401.
    var refuse401Rate = 0.0
    /// Whether such a refusal revokes the token.
    var revoke = false
    var bundleLimit = 1 << 20
    var customPaths: [Endpoint] = []

    var tokenLife: Duration { .milliseconds(tokenLifeSeconds * 1000) }

    var problem: String? {
        if customPaths.count > 100 || Set(customPaths.map(\.path)).count < customPaths.count {
            return "customPaths: must be at most 100 different paths"
        }
        return PosternSimulatorKit.problem("tokenLifeSeconds", tokenLifeSeconds, 0...1_000_000_000)
            ?? PosternSimulatorKit.problem("refuse401Rate", refuse401Rate, 0...1)
            ?? PosternSimulatorKit.problem("bundleLimit", bundleLimit, 0...1 << 40)
    }

    /// How `expiration_date` is written; the real server uses `number`.
    enum ExpirationForm: String, ControlChoice {
        case number, text
        /// Without the member.
        case none
        case null, seconds, fraction, exponent, short, negative, huge, word, empty, flag, object, array

        /// Nil for none.
        func written(_ moment: Timestamp) -> String? {
            let milliseconds = moment.milliseconds
            switch self {
            case .number: return "\(milliseconds)"
            case .text: return "\"\(milliseconds)\""
            case .none: return nil
            case .null: return "null"
            case .seconds: return "\(milliseconds / 1000)"
            case .fraction: return "\(milliseconds).75"
            case .exponent: return "\(milliseconds)E+0"
            case .short: return "12"
            case .negative: return "-1"
            case .huge: return "99999999999999999999999999999999"
            case .word: return #""soon""#
            case .empty: return #""""#
            case .flag: return "true"
            case .object: return "{}"
            case .array: return "[\(milliseconds)]"
            }
        }
    }

    enum TokenAnswer: ControlText, Equatable {
        case normal
        /// 200 without a usable token, in a different way each time.
        case junk
        case slow(milliseconds: Int)
        /// With a token that is valid only if the status is a success.
        case status(Int)

        static let form = "normal, junk, slow:<milliseconds up to 3600000> or status:<200 to 599>"

        init?(_ text: String) {
            let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
            switch (parts[0], parts.count > 1 ? Int(parts[1]) : nil) {
            case _ where text == "normal": self = .normal
            case _ where text == "junk": self = .junk
            case ("slow", let pause?) where (0...3_600_000).contains(pause): self = .slow(milliseconds: pause)
            case ("status", let status?) where (200...599).contains(status): self = .status(status)
            default: return nil
            }
        }

        var description: String {
            switch self {
            case .normal: "normal"
            case .junk: "junk"
            case .slow(let milliseconds): "slow:\(milliseconds)"
            case .status(let status): "status:\(status)"
            }
        }
    }

    func endpoint(_ path: String) -> Endpoint? {
        Endpoint.presets.first { $0.path == path } ?? customPaths.first { $0.path == path }
    }
}

/// The commands of a `POST /control`.
struct Commands: ControlCommands {
    var revokeNow: Bool?
    /// Starts the choices for `refuse401Rate` over.
    var seed: UInt64?

    enum CodingKeys: CodingKey, CaseIterable { case revokeNow, seed }
}
