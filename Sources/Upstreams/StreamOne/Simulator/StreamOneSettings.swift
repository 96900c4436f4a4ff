import PosternSimulatorKit

/// What `/control` shows and changes.
struct StreamOneSettings: ControlMembers {
    /// One that signs with a key of its own.
    struct Application: Codable, Sendable {
        var id: String
        /// Never shown.
        var psk: String?
        var name: String?
        var roles: [Role]?
    }

    struct User: Codable, Sendable {
        var id: String
        /// Nil for one that only logs in. Never shown.
        var psk: String?
        /// Nil for one that only signs.
        var username: String?
        /// Never shown.
        var password: String?
        var salt: String?
        /// Whether the platform does not have a hash of the second kind. Cleared by a login that contains one.
        var needsV2Hash: Bool?
        var roles: [Role]?

        static let usualSalt = "$2y$12$gmdjitkypwyd4d1mkeefiv"
        /// The salt as it is sent, usable or not.
        var shownSalt: String { salt ?? Self.usualSalt }
    }

    /// Tokens that apply everywhere, for one account, or for one customer.
    struct Role: Codable, Sendable {
        var id: String?
        var name: String?
        var tokens: [String]?
        var account: String?
        var customer: String?
    }

    struct Account: Codable, Sendable {
        var id: String
        var customer: String?

        init(from decoder: any Decoder) throws {
            if let id = try? decoder.singleValueContainer().decode(String.self) {
                self.id = id
            } else {
                let container = try decoder.container(keyedBy: CodingKeys.self)
                id = try container.decode(String.self, forKey: .id)
                customer = try container.decodeIfPresent(String.self, forKey: .customer)
            }
        }
    }

    var applications = [
        Application(id: "9yC-4pQxT_2a", psk: "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu", name: "gateway", roles: [])
    ]
    var users = [
        User(
            id: "Cmv8fnKfjF2l", psk: "abcdefghijklmnopqrstuvwxyzABCDEF", username: "jan@example.nl",
            password: "password", salt: User.usualSalt, needsV2Hash: false, roles: [])
    ]
    /// Empty means all accounts.
    var accounts: [Account] = []
    /// Empty means all customers.
    var customers: [String] = []
    /// Before `/api`, and not signed.
    var prefix = ""
    var sessionTimeoutSeconds = 3600
    var challengeTimeoutSeconds = 60
    var clockSkewToleranceSeconds = 300
    /// How far the platform's clock is ahead of the machine's.
    var clockOffsetSeconds = 0
    /// Bad signatures of an actor, or bad logins from a `userip`, in a row; 0 is no limit.
    var failuresUntilRateLimited = 10
    var rateLimitSeconds = 60
    var statusRate: [Int: Double] = [:]
    var nextStatus: [Int] = []
    var readOnly = false
    /// Whether unknown actions get status 5 instead of their arguments.
    var onlyKnownActions = false
    /// The response of `item/view`; empty means its arguments, as for every unknown action.
    var items = JSONTree.array([])
    /// Bodies by `command/action`.
    var answers = JSONTree.object([])
    /// The scope of responses to requests that name none.
    var timezone = "Europe/Amsterdam"
    /// The seed of challenges, sessions, and `statusRate`, from the time at which it is set.
    var seed = 0

    func application(_ id: String) -> Application? { applications.first { $0.id == id } }
    func user(_ id: String) -> User? { users.first { $0.id == id } }
    func user(named name: String) -> User? { users.first { $0.username == name } }

    /// Everything except keys and passwords.
    var shownWithoutSecrets: [JSONTree.Member] {
        var open = self
        for index in open.applications.indices { open.applications[index].psk = nil }
        for index in open.users.indices { (open.users[index].psk, open.users[index].password) = (nil, nil) }
        return open.shown
    }

    // MARK: Checks

    static let free: Set = ["answers", "items"]

    private static let longest = 10 * 365 * 86400

    var problem: String? {
        if !(prefix.isEmpty || prefix.hasPrefix("/") && !prefix.hasSuffix("/")) {
            return "prefix: must be empty, or start with a slash and not end with one"
        }
        if applications.contains(where: { $0.id.isEmpty || ($0.psk ?? "").isEmpty }) {
            return "applications: each must have an id and a psk"
        }
        if users.contains(where: { $0.id.isEmpty || $0.psk == "" }) {
            return "users: each must have an id, and no empty psk"
        }
        if accounts.contains(where: \.id.isEmpty) { return "accounts: each must have an id" }
        if items.elements?.allSatisfy({ $0["id"]?.string?.isEmpty == false }) != true {
            return "items: must be an array of objects with an id"
        }
        if answers.members == nil { return "answers: must be an object" }
        if !statusRate.values.allSatisfy((0...1).contains) || statusRate.values.reduce(0, +) > 1 {
            return "statusRate: rates must be from 0 to 1, and at most 1 in all"
        }
        let statuses = nextStatus + statusRate.keys
        return statuses.lazy.compactMap { PosternSimulatorKit.problem("a status", $0, -1...1_000_000) }.first
            ?? PosternSimulatorKit.problem("sessionTimeoutSeconds", sessionTimeoutSeconds, 0...Self.longest)
            ?? PosternSimulatorKit.problem("challengeTimeoutSeconds", challengeTimeoutSeconds, 0...Self.longest)
            ?? PosternSimulatorKit.problem("clockSkewToleranceSeconds", clockSkewToleranceSeconds, 0...Self.longest)
            ?? PosternSimulatorKit.problem(
                "clockOffsetSeconds", clockOffsetSeconds, -10 * Self.longest...10 * Self.longest)
            ?? PosternSimulatorKit.problem("failuresUntilRateLimited", failuresUntilRateLimited, 0...Self.longest)
            ?? PosternSimulatorKit.problem("rateLimitSeconds", rateLimitSeconds, 0...Self.longest)
            ?? PosternSimulatorKit.problem("seed", seed, 0...Int.max)
    }
}

/// There are none: everything in a `POST /control` is a setting.
struct Commands: ControlCommands {
    enum CodingKeys: CodingKey, CaseIterable {}
}
