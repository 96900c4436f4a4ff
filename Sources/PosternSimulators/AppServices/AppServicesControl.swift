internal import PosternCore

/// Reads what is posted to `/control` and applies all of it or nothing.
struct AppServicesControl {
    struct Problem: Error, CustomStringConvertible {
        let description: String
    }

    private let json: AppServicesJSON
    private let now: Timestamp
    private let instant: MonotonicInstant

    static let known = [
        "answers", "apiKey", "application", "basePath", "bindTokens", "connections", "devices", "errorStatus",
        "errorStyle", "exclusiveDevices", "graceMilliseconds", "groups", "invalidateRate", "invalidateToken",
        "monitoring", "notFoundError", "onlyDeclaredTokens", "onlyExistingGroups", "organization", "remove", "reset",
        "seed", "style", "tokenLifeSeconds", "tokens", "users",
    ]

    init(_ body: [UInt8], now: Timestamp, instant: MonotonicInstant) throws(Problem) {
        guard body.count <= 16 << 20, let document = AppServicesJSON.read(body), !document.hasTrailingBytes else {
            throw Problem(description: "the body is no JSON object of at most 16 MiB")
        }
        (json, self.now, self.instant) = (document.value, now, instant)
    }

    func apply(to state: inout AppServicesState) throws(Problem) {
        let reader = try Reader(json, known: Self.known, at: "")
        var changed = state
        if let seed = try reader.int("seed", 0...Int.max) {
            changed.settings.seed = UInt64(seed)
            changed.reseed()
        }
        if try reader.flag("reset") == true { changed.reset() }
        try applySettings(reader, to: &changed.settings)
        try applyStyle(reader, to: &changed.settings)
        try applyTokens(reader, to: &changed)
        try applyEntities(reader, to: &changed)
        if let removed = try reader.object("remove") { try remove(removed, from: &changed) }
        state = changed
    }

    // MARK: Settings

    private func applySettings(_ reader: Reader, to settings: inout AppServicesSettings) throws(Problem) {
        if let value = try reader.textOrNull("basePath") {
            guard value.map({ $0.isEmpty || $0.hasPrefix("/") && !$0.hasSuffix("/") }) ?? true else {
                throw Problem(description: "basePath begins with a slash and ends without one")
            }
            settings.basePath = value
        }
        if let value = try reader.textOrNull("organization") { settings.organization = value }
        if let value = try reader.textOrNull("application") { settings.application = value }
        if let value = try reader.textOrNull("apiKey") { settings.apiKey = value }
        if let value = try reader.flag("onlyDeclaredTokens") { settings.onlyDeclaredTokens = value }
        if let value = try reader.flag("bindTokens") { settings.bindTokens = value }
        if let value = try reader.flag("exclusiveDevices") { settings.exclusiveDevices = value }
        if let value = try reader.flag("onlyExistingGroups") { settings.onlyExistingGroups = value }
        if let value = try reader.int("tokenLifeSeconds", 0...1_000_000_000) { settings.tokenLifeSeconds = value }
        if let value = try reader.int("graceMilliseconds", 0...1_000_000_000) { settings.graceMilliseconds = value }
        if let value = try reader.fraction("invalidateRate") { settings.invalidateRate = value }
        switch reader.value("monitoring") {
        case nil: break
        case .bool(let isProvided): settings.monitoring = isProvided ? AppServicesSettings.monitoringConfiguration : nil
        case .object(let members):
            let usual = AppServicesSettings.monitoringConfiguration.members ?? []
            settings.monitoring = .object(of: usual + members)
        default: throw Problem(description: "monitoring is true, false or an object")
        }
    }

    private func applyStyle(_ reader: Reader, to settings: inout AppServicesSettings) throws(Problem) {
        if let value = reader.value("style") {
            guard let style = value.int ?? value.string.flatMap({ Int($0) }), style == 401 || style == 404 else {
                throw Problem(description: "style is 401 or 404")
            }
            settings.style = style
        }
        if let value = try reader.text("notFoundError") {
            guard ["service_resource_not_found", "entity_not_found"].contains(value) else {
                throw Problem(description: "notFoundError is service_resource_not_found or entity_not_found")
            }
            settings.notFoundError = value
        }
        if let value = try reader.text("errorStyle") {
            guard let style = AppServicesSettings.ErrorStyle(rawValue: value) else {
                let names = AppServicesSettings.ErrorStyle.allCases.map(\.rawValue).joined(separator: ", ")
                throw Problem(description: "errorStyle is one of \(names)")
            }
            settings.errorStyle = style
        }
        if reader.value("errorStatus")?.isNull == true {
            settings.errorStatus = nil
        } else if let value = try reader.int("errorStatus", 100...599) {
            settings.errorStatus = value
        }
        if let list = try reader.list("answers") {
            settings.answers = []
            for element in list { settings.answers.append(try AppServicesSettings.Scripted(element)) }
        }
    }

    // MARK: Tokens

    private func applyTokens(_ reader: Reader, to state: inout AppServicesState) throws(Problem) {
        for element in try reader.listOrOne("tokens") {
            let token = try Reader(
                element, known: ["expiresInSeconds", "provider", "token", "user", "valid"], at: "tokens")
            guard let text = try token.text("token"), AppServicesForm.isToken(text) else {
                throw Problem(description: "tokens: token is missing, or no token without spaces and Bearer")
            }
            let provider = try token.textOrNull("provider") ?? nil
            guard provider == nil || provider == "pi" || provider == "mi" else {
                throw Problem(description: "tokens: provider is pi or mi")
            }
            let life = try token.int("expiresInSeconds", 0...1_000_000_000)
            state.tokens.declare(
                text, provider: provider, user: try token.textOrNull("user") ?? nil,
                isValid: try token.flag("valid") ?? true, expiresAt: life.map { instant + .seconds($0) })
        }
        for element in try reader.listOrOne("invalidateToken") {
            guard let text = element.string else { throw Problem(description: "invalidateToken is a text or several") }
            state.tokens.invalidate(text)
        }
    }

    // MARK: Entities

    private func applyEntities(_ reader: Reader, to state: inout AppServicesState) throws(Problem) {
        for name in try reader.texts("users") ?? [] where state.platform.users[name.lowercased()] == nil {
            state.platform.addUser(name, now)
        }
        for member in try reader.object("devices") ?? [] {
            let id = member.name.lowercased()
            guard AppServicesForm.isUUID(id), let properties = member.value.members else {
                throw Problem(description: "devices is an object of objects, by UUID")
            }
            state.platform.addDevice(id, properties, now)
            let notifier = properties.first { $0.name.hasSuffix(".notifier.id") }?.name.dropLast(12)
            state.history.know(device: id, notifier: notifier.map(String.init))
        }
        for (group, members) in try reader.textLists("groups") {
            try requireUsers(members, state)
            state.platform.addGroup(group, members, now)
        }
        for (device, users) in try reader.textLists("connections") {
            guard state.platform.devices[device.lowercased()] != nil else {
                throw Problem(description: "connections: there is no such device")
            }
            try requireUsers(users, state)
            state.platform.setConnections(of: device.lowercased(), to: users)
        }
    }

    private func requireUsers(_ names: [String], _ state: AppServicesState) throws(Problem) {
        guard names.allSatisfy({ state.platform.users[$0.lowercased()] != nil }) else {
            throw Problem(description: "groups and connections name users that there are")
        }
    }

    private func remove(_ members: [AppServicesJSON.Member], from state: inout AppServicesState) throws(Problem) {
        let reader = try Reader(.object(members), known: ["devices", "groups", "users"], at: "remove")
        for name in try reader.texts("users") ?? [] { state.platform.removeUser(name) }
        for name in try reader.texts("devices") ?? [] { state.platform.removeDevice(name.lowercased()) }
        for name in try reader.texts("groups") ?? [] { state.platform.removeGroup(name) }
    }
}

extension AppServicesControl {
    /// Reads the members of an object; complains about those that nobody knows and those of the wrong type.
    struct Reader {
        private let json: AppServicesJSON
        private let prefix: String

        init(_ json: AppServicesJSON, known: [String], at place: String) throws(Problem) {
            prefix = place.isEmpty ? "" : "\(place): "
            self.json = json
            guard let members = json.members else {
                throw Problem(description: place.isEmpty ? "the body is no JSON object" : "\(place) has objects")
            }
            if let unknown = members.first(where: { !known.contains($0.name) }) {
                throw Problem(
                    description: """
                        \(prefix)unknown member \(quoted(unknown.name.prefix(100))); known are \
                        \(known.joined(separator: ", "))
                        """)
            }
        }

        func value(_ name: String) -> AppServicesJSON? { json[name] }

        private func read<Value>(
            _ name: String, _ what: String, _ convert: (AppServicesJSON) -> Value?
        ) throws(Problem) -> Value? {
            guard let value = json[name] else { return nil }
            guard let converted = convert(value) else { throw Problem(description: "\(prefix)\(name) is \(what)") }
            return converted
        }

        func text(_ name: String) throws(Problem) -> String? { try read(name, "a text") { $0.string } }

        /// Nil when it is not there; a nil inside when it is null.
        func textOrNull(_ name: String) throws(Problem) -> String?? {
            try read(name, "a text or null") { value -> String?? in
                if value.isNull { return .some(nil) }
                return value.string.map { .some($0) }
            }
        }

        func flag(_ name: String) throws(Problem) -> Bool? { try read(name, "true or false") { $0.bool } }

        func int(_ name: String, _ range: ClosedRange<Int>) throws(Problem) -> Int? {
            try read(name, "a number from \(range.lowerBound) to \(range.upperBound)") { value in
                value.int.flatMap { range.contains($0) ? $0 : nil }
            }
        }

        func fraction(_ name: String) throws(Problem) -> Double? {
            try read(name, "a number from 0 to 1") { value in
                value.double.flatMap { (0...1).contains($0) ? $0 : nil }
            }
        }

        func object(_ name: String) throws(Problem) -> [AppServicesJSON.Member]? {
            try read(name, "an object") { $0.members }
        }

        func list(_ name: String) throws(Problem) -> [AppServicesJSON]? { try read(name, "an array") { $0.elements } }

        /// One alone may stand without its brackets.
        func listOrOne(_ name: String) throws(Problem) -> [AppServicesJSON] {
            json[name].map { $0.elements ?? [$0] } ?? []
        }

        func texts(_ name: String) throws(Problem) -> [String]? {
            try read(name, "an array of texts, none of them empty") { $0.texts }
        }

        func textLists(_ name: String) throws(Problem) -> [(name: String, texts: [String])] {
            try read(name, "an object of arrays of texts") { value in
                let lists = value.members?.map { member in member.value.texts.map { (member.name, $0) } }
                return lists.flatMap { $0.contains { $0 == nil } ? nil : $0.compactMap { $0 } }
            } ?? []
        }
    }
}

extension AppServicesJSON {
    fileprivate var texts: [String]? {
        let texts = elements?.compactMap(\.string)
        return texts?.count == elements?.count && texts?.contains("") == false ? texts : nil
    }
}
