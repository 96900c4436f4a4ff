/// What `/control` shows and changes.
struct StreamOneSettings: Sendable, Equatable {
    /// One who signs with a key of its own.
    struct Application: Sendable, Equatable {
        var id: String
        var psk: String
        var name = ""
        var roles: [Role] = []
    }

    struct User: Sendable, Equatable {
        var id: String
        /// Nil for one who only logs in.
        var psk: String?
        /// Nil for one who only signs.
        var username: String?
        var password = ""
        var salt = Self.usualSalt
        /// Is the platform still without a hash of the second kind? Cleared by a login that brings one.
        var needsV2Hash = false
        var roles: [Role] = []

        static let usualSalt = "$2y$12$gmdjitkypwyd4d1mkeefiv"
    }

    /// Tokens that hold everywhere, for one account, or for one customer.
    struct Role: Sendable, Equatable {
        var id = ""
        var name = ""
        var tokens: [String] = []
        var account: String?
        var customer: String?
    }

    struct Account: Sendable, Equatable {
        var id: String
        var customer: String?
    }

    var applications = [Application(id: "9yC-4pQxT_2a", psk: "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu", name: "gateway")]
    var users = [
        User(
            id: "Cmv8fnKfjF2l", psk: "abcdefghijklmnopqrstuvwxyzABCDEF", username: "jan@example.nl",
            password: "password")
    ]
    /// Empty: every account there is.
    var accounts: [Account] = []
    /// Empty: every customer there is.
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
    /// Bodies by `command/action`, as JSON.
    var answers: [String: String] = [:]
    /// Of answers to requests that name none.
    var timezone = "Europe/Amsterdam"
    /// Of challenges, sessions and `statusRate`; counts from when it is set.
    var seed = 0

    enum Member: String, CaseIterable {
        case applications, users, accounts, customers, prefix, sessionTimeoutSeconds, challengeTimeoutSeconds
        case clockSkewToleranceSeconds, clockOffsetSeconds, failuresUntilRateLimited, rateLimitSeconds
        case statusRate, nextStatus, readOnly, answers, timezone, seed
    }

    struct Problem: Error, Equatable, CustomStringConvertible {
        let description: String
    }

    func application(_ id: String) -> Application? { applications.first { $0.id == id } }
    func user(_ id: String) -> User? { users.first { $0.id == id } }
    func user(named name: String) -> User? { users.first { $0.username == name } }
}

// MARK: Showing

extension StreamOneSettings {
    /// Everything but keys and passwords, by the members' names.
    func shown(_ member: Member) -> String {
        switch member {
        case .applications:
            array(applications) { "{\"id\":\(quoted($0.id)),\"name\":\(quoted($0.name)),\(shown($0.roles))}" }
        case .users:
            array(users) {
                """
                {"id":\(quoted($0.id)),"username":\(orNull($0.username)),"salt":\(quoted($0.salt)),\
                "needsV2Hash":\($0.needsV2Hash),\(shown($0.roles))}
                """
            }
        case .accounts: array(accounts) { "{\"id\":\(quoted($0.id)),\"customer\":\(orNull($0.customer))}" }
        case .customers: array(customers) { quoted($0) }
        case .prefix: quoted(prefix)
        case .sessionTimeoutSeconds: "\(sessionTimeoutSeconds)"
        case .challengeTimeoutSeconds: "\(challengeTimeoutSeconds)"
        case .clockSkewToleranceSeconds: "\(clockSkewToleranceSeconds)"
        case .clockOffsetSeconds: "\(clockOffsetSeconds)"
        case .failuresUntilRateLimited: "\(failuresUntilRateLimited)"
        case .rateLimitSeconds: "\(rateLimitSeconds)"
        case .statusRate: object(statusRate.sorted { $0.key < $1.key }.map { ("\($0.key)", "\($0.value)") })
        case .nextStatus: array(nextStatus) { "\($0)" }
        case .readOnly: "\(readOnly)"
        case .answers: object(answers.sorted { $0.key < $1.key }.map { ($0.key, $0.value) })
        case .timezone: quoted(timezone)
        case .seed: "\(seed)"
        }
    }

    private func shown(_ roles: [Role]) -> String {
        let list = array(roles) {
            """
            {"id":\(quoted($0.id)),"name":\(quoted($0.name)),"tokens":\(array($0.tokens) { quoted($0) }),\
            "account":\(orNull($0.account)),"customer":\(orNull($0.customer))}
            """
        }
        return "\"roles\":\(list)"
    }

    private func orNull(_ text: String?) -> String { text.map { quoted($0) } ?? "null" }

    private func array<Element>(_ list: [Element], _ shown: (Element) -> String) -> String {
        "[\(list.map(shown).joined(separator: ","))]"
    }

    private func object(_ members: [(name: String, json: String)]) -> String {
        "{\(members.map { "\(quoted($0.name)):\($0.json)" }.joined(separator: ","))}"
    }
}
