extension StreamOneSettings {
    /// Takes over the members of an object, all or none. Says which they were.
    mutating func change(_ text: [UInt8]) throws(Problem) -> Set<Member> {
        guard let json = StreamOneJSON(text), json.kind == .object else {
            throw Problem(description: "the body must be a JSON object")
        }
        var changed = self
        var members: Set<Member> = []
        for (name, value) in json.members {
            guard let member = Member(rawValue: name) else { throw Self.unknown(name, among: Member.allCases) }
            members.insert(member)
            try changed.set(member, value)
        }
        self = changed
        return members
    }

    private mutating func set(_ member: Member, _ value: StreamOneJSON) throws(Problem) {
        let name = member.rawValue
        switch member {
        case .applications: applications = try Self.list(value, name, Self.application)
        case .users: users = try Self.list(value, name, Self.user)
        case .accounts: accounts = try Self.list(value, name, Self.account)
        case .customers: customers = try Self.list(value, name, Self.text)
        case .prefix:
            prefix = try Self.text(value, name)
            guard prefix.isEmpty || prefix.hasPrefix("/") && !prefix.hasSuffix("/") else {
                throw Problem(description: "prefix is empty or starts with a slash and does not end with one")
            }
        case .sessionTimeoutSeconds: sessionTimeoutSeconds = try Self.seconds(value, name)
        case .challengeTimeoutSeconds: challengeTimeoutSeconds = try Self.seconds(value, name)
        case .clockSkewToleranceSeconds: clockSkewToleranceSeconds = try Self.seconds(value, name)
        case .clockOffsetSeconds:
            clockOffsetSeconds = try Self.integer(value, name, -Self.farthest...Self.farthest)
        case .failuresUntilRateLimited: failuresUntilRateLimited = try Self.seconds(value, name)
        case .rateLimitSeconds: rateLimitSeconds = try Self.seconds(value, name)
        case .statusRate: statusRate = try Self.rates(value)
        case .nextStatus:
            nextStatus = try Self.list(value, name) { json, name throws(Problem) in
                try Self.integer(json, name, Self.statuses)
            }
        case .readOnly: readOnly = try Self.flag(value, name)
        case .answers:
            guard value.kind == .object else { throw Self.wrong(name, "an object") }
            answers = Dictionary(value.members.map { ($0.name, $0.value.raw) }) { $1 }
        case .timezone: timezone = try Self.text(value, name)
        case .seed: seed = try Self.integer(value, name, 0...Int.max)
        }
    }

    private static let longest = 10 * 365 * 86400
    private static let farthest = 10 * longest
    private static let statuses = -1...1_000_000

    private static func wrong(_ name: String, _ wanted: String) -> Problem {
        Problem(description: "\(name) must be \(wanted)")
    }

    private static func unknown<Names: RawRepresentable<String>>(_ name: String, among known: [Names]) -> Problem {
        Problem(
            description: "unknown member \(quoted(name)); known: \(known.map(\.rawValue).joined(separator: ", "))")
    }

    private static func text(_ value: StreamOneJSON, _ name: String) throws(Problem) -> String {
        guard let text = value.string else { throw wrong(name, "a string") }
        return text
    }

    private static func flag(_ value: StreamOneJSON, _ name: String) throws(Problem) -> Bool {
        guard let flag = value.flag else { throw wrong(name, "true or false") }
        return flag
    }

    private static func integer(
        _ value: StreamOneJSON, _ name: String, _ range: ClosedRange<Int>
    ) throws(Problem) -> Int {
        guard let number = value.integer, range.contains(number) else {
            throw wrong(name, "an integer from \(range.lowerBound) to \(range.upperBound)")
        }
        return number
    }

    private static func seconds(_ value: StreamOneJSON, _ name: String) throws(Problem) -> Int {
        try integer(value, name, 0...longest)
    }

    private static func list<Element>(
        _ value: StreamOneJSON, _ name: String,
        _ element: (StreamOneJSON, String) throws(Problem) -> Element
    ) throws(Problem) -> [Element] {
        guard let elements = value.elements else { throw wrong(name, "an array") }
        var result: [Element] = []
        for (place, json) in elements.enumerated() { result.append(try element(json, "\(name)[\(place)]")) }
        return result
    }

    private static func rates(_ value: StreamOneJSON) throws(Problem) -> [Int: Double] {
        guard value.kind == .object else { throw wrong("statusRate", "an object") }
        var rates: [Int: Double] = [:]
        for (name, rate) in value.members {
            guard let status = Int(name), statuses.contains(status), let rate = rate.number, (0...1).contains(rate)
            else { throw wrong("statusRate", "an object of statuses and their rates from 0 to 1") }
            rates[status] = rate
        }
        guard rates.values.reduce(0, +) <= 1 else { throw wrong("statusRate", "at most 1 in all") }
        return rates
    }

    private enum ActorMember: String, CaseIterable {
        case id, psk, name, username, password, salt, needsV2Hash, roles
    }

    private static func application(_ json: StreamOneJSON, _ name: String) throws(Problem) -> Application {
        var application = Application(id: "", psk: "")
        try forEach(in: json, name, of: [.id, .psk, .name, .roles]) {
            (member: ActorMember, value, name) throws(Problem) in
            switch member {
            case .id: application.id = try text(value, name)
            case .psk: application.psk = try text(value, name)
            case .name: application.name = try text(value, name)
            default: application.roles = try list(value, name, role)
            }
        }
        guard !application.id.isEmpty, !application.psk.isEmpty else { throw wrong(name, "given id and psk") }
        return application
    }

    private static func user(_ json: StreamOneJSON, _ name: String) throws(Problem) -> User {
        var user = User(id: "")
        try forEach(in: json, name, of: ActorMember.allCases.filter { $0 != .name }) {
            (member: ActorMember, value, name) throws(Problem) in
            switch member {
            case .id: user.id = try text(value, name)
            case .psk: user.psk = try text(value, name)
            case .username: user.username = try text(value, name)
            case .password: user.password = try text(value, name)
            case .salt: user.salt = try text(value, name)
            case .needsV2Hash: user.needsV2Hash = try flag(value, name)
            default: user.roles = try list(value, name, role)
            }
        }
        guard !user.id.isEmpty, user.psk != "" else { throw wrong(name, "given an id, and no empty psk") }
        return user
    }

    private enum ScopeMember: String, CaseIterable { case id, name, tokens, account, customer }

    private static func role(_ json: StreamOneJSON, _ name: String) throws(Problem) -> Role {
        var role = Role()
        try forEach(in: json, name, of: ScopeMember.allCases) { (member: ScopeMember, value, name) throws(Problem) in
            switch member {
            case .id: role.id = try text(value, name)
            case .name: role.name = try text(value, name)
            case .tokens: role.tokens = try list(value, name, text)
            case .account: role.account = try text(value, name)
            case .customer: role.customer = try text(value, name)
            }
        }
        return role
    }

    private static func account(_ json: StreamOneJSON, _ name: String) throws(Problem) -> Account {
        if let id = json.string { return Account(id: id) }
        var account = Account(id: "")
        try forEach(in: json, name, of: [.id, .customer]) { (member: ScopeMember, value, name) throws(Problem) in
            if member == .id { account.id = try text(value, name) } else { account.customer = try text(value, name) }
        }
        guard !account.id.isEmpty else { throw wrong(name, "given an id") }
        return account
    }

    private static func forEach<Names: RawRepresentable<String> & Equatable>(
        in json: StreamOneJSON, _ name: String, of known: [Names],
        _ body: (Names, StreamOneJSON, String) throws(Problem) -> Void
    ) throws(Problem) {
        guard json.kind == .object else { throw wrong(name, "an object") }
        for (member, value) in json.members where value.kind != .null {
            guard let known = known.first(where: { $0.rawValue == member }) else {
                throw Problem(description: "\(name): " + unknown(member, among: known).description)
            }
            try body(known, value, "\(name).\(member)")
        }
    }
}
