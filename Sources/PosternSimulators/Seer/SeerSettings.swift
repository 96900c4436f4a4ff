internal import PosternCore

/// How the simulator of Seer behaves; the members of `/control` that can be set.
struct SeerSettings: Sendable {
    /// Empty: any, but the same in every request.
    var clientId = ""
    var clientSecret = ""
    var apiKey = ""
    var tokenLife = Duration.seconds(3600)
    var expirationForm = ExpirationForm.number
    var tokenAnswer = TokenAnswer.normal
    /// How often a report under a good token is answered 401.
    var refuse401Rate = 0.0
    /// Does such a refusal revoke the token?
    var revokes = false
    var bundleLimit = 1 << 20
    var customPaths: [SeerEndpoint] = []

    /// How `expiration_date` is written, the true one being `number`.
    enum ExpirationForm: String, Sendable, CaseIterable {
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

    enum TokenAnswer: Sendable, Equatable, CustomStringConvertible {
        case normal
        /// 200 without a token that could be used; a different one each time.
        case junk
        case slow(milliseconds: Int)
        /// With a token that is only good if the status is.
        case status(Int)

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

    func endpoint(_ path: String) -> SeerEndpoint? {
        SeerEndpoint.presets.first { $0.path == path } ?? customPaths.first { $0.path == path }
    }
}
