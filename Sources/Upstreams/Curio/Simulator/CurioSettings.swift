import PosternSimulatorKit

/// The settings of `/control`.
struct CurioSettings: ControlMembers {
    /// How the responses to starts of screens and events contain their code.
    enum CodeForm: String, ControlChoice {
        /// 32 hexadecimal digits in a string.
        case string
        /// A number beyond 2^53.
        case number
        /// Either, or a string that has to be escaped in JSON and in a form.
        case mixed
        /// JSON without the member.
        case missing
        /// Not JSON.
        case html
    }

    /// Empty: any.
    var apiKey = ""
    var trackingCode = ""
    /// Instead of what requests say; nil to go by them.
    @OrNull var sessionTimeoutMinutes: Double?
    /// How probably a session dies just before a request that needs it: 0 to 1.
    var killSessionRate = 0.0
    var codeForm = CodeForm.string
    /// Answer `/offline/create` with the code of a session that the server opened in the batch's place.
    var adoptOtherSessionCode = false

    var problem: String? {
        if let minutes = sessionTimeoutMinutes, !(minutes > 0 && minutes <= 1440) {
            return "sessionTimeoutMinutes: must be null or a number above 0, at most 1440"
        }
        return PosternSimulatorKit.problem("killSessionRate", killSessionRate, 0...1)
    }
}

/// The commands of a `POST /control`.
struct Commands: ControlCommands {
    /// A visitor's code, or `all`.
    var killSessions: String?
    /// Restarts the random choices.
    var seed: UInt64?

    enum CodingKeys: CodingKey, CaseIterable { case killSessions, seed }

    var problem: String? { killSessions == "" ? "killSessions: must be \"all\" or a visitorCode" : nil }
}
