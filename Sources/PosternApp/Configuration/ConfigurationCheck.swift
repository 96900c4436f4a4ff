import Glibc
import PosternCore

/// Turns what the sources say into a `GatewayConfiguration` and collects everything that is wrong on the way.
struct ConfigurationCheck {
    private typealias Upstream = GatewayConfiguration.UpstreamConfiguration

    var problems: [ConfigurationProblem] = []
    private let sources: ConfigurationSources
    private let types: [UpstreamType]
    private let environment: [String: String]

    init(sources: ConfigurationSources, types: [UpstreamType], environment: [String: String]) {
        self.sources = sources
        self.types = types
        self.environment = environment
        for type in types {
            precondition(
                Upstream.common.isDisjoint(with: type.settings.map(\.name)),
                "\(type.name) has a setting that every upstream has")
        }
    }

    /// Complete only when no problem was found.
    mutating func configuration() -> GatewayConfiguration {
        let entries = upstreamEntries()
        let schema = ConfigurationSchema(upstreams: entries.map { ($0.name, $0.type) })
        problems += schema.problems(in: sources.file)
        problems += unknownVariables(schema)

        var result = GatewayConfiguration()
        read(&result.server, at: ["server"])
        read(&result.server.tls, at: ["server", "tls"])
        checkTLS(result.server.tls)
        read(&result.auth, at: ["auth"])
        read(&result.outbox, at: ["outbox"])
        read(&result.delivery, at: ["delivery"])
        checkRetries(result.delivery, at: [])
        result.upstreams = entries.compactMap { upstream($0, inheriting: result.delivery) }
        read(&result.log, at: ["log"])
        result.auth.keys = keys(upstreams: entries.map(\.name))
        checkExposure(result)
        return result
    }

    /// False when something about that upstream is wrong already.
    func mayBeMade(_ name: UpstreamName) -> Bool {
        !problems.contains { $0.path.hasPrefix("upstreams.\(name).") || $0.path == "upstreams.\(name)" }
    }

    // MARK: Single settings

    /// The checked value; nil when it is not configured, or wrong.
    private mutating func value(
        of setting: UpstreamType.Setting, at path: [String], rule: TextRule? = nil
    ) -> UpstreamType.Value? {
        sources.value(at: path).flatMap { value($0, of: setting, named: dotted(path), rule: rule) }
    }

    private mutating func value(
        _ raw: RawValue, of setting: UpstreamType.Setting, named path: String, rule: TextRule? = nil
    ) -> UpstreamType.Value? {
        do throws(UpstreamType.Setting.Mismatch) {
            return try setting.check(raw, rule: rule)
        } catch {
            problem(path, "is \(setting.shown(raw))\(raw.fromOrigin); \(error.expectation)")
            return nil
        }
    }

    private mutating func read<Section: ConfigurationSection>(_ section: inout Section, at path: [String]) {
        for field in Section.fields {
            guard let value = value(of: field.setting, at: path + [field.setting.name], rule: field.rule) else {
                continue
            }
            field.set(&section, value)
        }
    }

    private func origin(of path: [String]) -> String { sources.value(at: path)?.fromOrigin ?? "" }

    private mutating func problem(_ path: String, _ detail: String) {
        problems.append(ConfigurationProblem(path, detail))
    }

    // MARK: Upstreams

    private struct Entry {
        let name: String
        /// Nil when there is no such type.
        let type: UpstreamType?
    }

    /// The members of `upstreams`, ordered by name, with what `type` or else the name says.
    private mutating func upstreamEntries() -> [Entry] {
        guard case .object(let members) = sources.file["upstreams"] else { return [] }
        let names = Set(members.map(\.name)).sorted()
        if names.count > 255 { problem("upstreams", "has \(names.count) members; allowed 0 to 255") }
        return names.map { Entry(name: $0, type: type(of: $0)) }
    }

    private mutating func type(of name: String) -> UpstreamType? {
        let path = ["upstreams", name, Upstream.typeSetting.name]
        let known = types.map(\.name)
        guard let raw = sources.value(at: path) else {
            if let type = types.first(where: { $0.name == name }) { return type }
            let advice = nearestName(to: name, among: known).map { "; or did you mean upstreams.\($0)?" } ?? ""
            problem(dotted(path), "is missing; known types: \(known.joined(separator: ", "))\(advice)")
            return nil
        }
        guard case .text(let text)? = value(raw, of: Upstream.typeSetting, named: dotted(path)) else { return nil }
        if let type = types.first(where: { $0.name == text }) { return type }
        let shown = Upstream.typeSetting.shown(raw) + raw.fromOrigin
        problem(dotted(path), "is \(shown); known types: \(known.joined(separator: ", "))")
        return nil
    }

    private mutating func upstream(
        _ entry: Entry, inheriting delivery: GatewayConfiguration.DeliverySettings
    ) -> GatewayConfiguration.UpstreamConfiguration? {
        let path = ["upstreams", entry.name]
        var delivery = entry.type.map(delivery.inherited(by:)) ?? delivery
        var queue = GatewayConfiguration.QueueSettings()
        read(&delivery, at: path + ["delivery"])
        checkRetries(delivery, at: path)
        read(&queue, at: path + ["queue"])
        let enabled = value(of: Upstream.enabledSetting, at: path + ["enabled"]) ?? .flag(true)
        var values: [String: UpstreamType.Value] = [:]
        for setting in entry.type?.settings ?? [] {
            values[setting.name] = value(of: setting, at: path + [setting.name])
        }
        guard let name = upstreamName(entry.name), let type = entry.type else { return nil }
        return .init(
            name: name, type: type, isEnabled: enabled == .flag(true), delivery: delivery, queue: queue,
            values: values)
    }

    private mutating func upstreamName(_ text: String) -> UpstreamName? {
        if let name = UpstreamName(text) { return name }
        problem(
            dotted(["upstreams", text]),
            UpstreamName.reserved.contains(text)
                ? "has a name that the API needs for itself; choose another"
                : "has no valid name; allowed are 1 to 31 of a-z, 0-9 and -, starting with a letter")
        return nil
    }

    /// Path of `delivery.<name>` where it is configured for the upstream at `path`, or else of the global one.
    private func deliveryPath(_ name: String, at path: [String]) -> [String] {
        let own = path + ["delivery", name]
        return sources.value(at: own) == nil ? ["delivery", name] : own
    }

    private mutating func checkRetries(_ delivery: GatewayConfiguration.DeliverySettings, at path: [String]) {
        let base = deliveryPath("retryBaseSeconds", at: path)
        let longest = deliveryPath("retryMaxSeconds", at: path)
        // An upstream that overrides neither would only repeat the global problem.
        guard path.isEmpty || base.count > 2 || longest.count > 2, delivery.retryBase > delivery.retryMax else {
            return
        }
        problem(
            dotted(base),
            "is \(plain(delivery.retryBase.inSeconds))\(origin(of: base)); must not exceed \(dotted(longest)), "
                + "which is \(plain(delivery.retryMax.inSeconds))")
    }

    // MARK: Who may call

    private mutating func keys(upstreams: [String]) -> [GatewayConfiguration.APIKey] {
        guard let node = sources.file["auth"]?["keys"] else { return [] }
        guard case .array(let elements) = node else {
            problem("auth.keys", "is \(node.shown); expected an array of objects")
            return []
        }
        var names: [String: Int] = [:]
        var digests: [[UInt8]: Int] = [:]
        return elements.enumerated().compactMap { place, element in
            guard let key = key(element, at: "auth.keys[\(place)]", upstreams: upstreams) else { return nil }
            if let first = names[key.name] {
                let name = ConfigurationNode.string(key.name).shown
                problem("auth.keys[\(place)].name", "is \(name), as in auth.keys[\(first)]; names are given once")
            }
            if let first = digests[key.sha256] {
                problem("auth.keys[\(place)].sha256", "is that of auth.keys[\(first)]; give each caller its own key")
            }
            names[key.name] = names[key.name] ?? place
            digests[key.sha256] = digests[key.sha256] ?? place
            return key
        }
    }

    private mutating func key(
        _ node: ConfigurationNode, at path: String, upstreams: [String]
    ) -> GatewayConfiguration.APIKey? {
        typealias Key = GatewayConfiguration.APIKey
        guard case .object(let members) = node else {
            problem(path, "is \(node.shown); expected an object")
            return nil
        }
        let before = problems.count
        let known = Key.settings.map(\.name)
        for member in members where !known.contains(member.name) {
            let near = nearestName(to: member.name, among: known)
            let advice = near.map { "did you mean \(path).\($0)?" } ?? "allowed here: \(known.joined(separator: ", "))"
            problem("\(path).\(dotted([member.name]))", "is unknown; \(advice)")
        }
        var values: [String: UpstreamType.Value] = [:]
        for setting in Key.settings {
            guard let configured = node[setting.name] else { continue }
            values[setting.name] = value(
                RawValue(content: .json(configured), origin: nil), of: setting, named: "\(path).\(setting.name)",
                rule: setting.name == "name" ? .keyName : setting.name == "sha256" ? .digest : nil)
        }
        for needed in Key.needed where node[needed] == nil {
            problem("\(path).\(needed)", "is missing")
        }
        let settings = SettingValues(values, of: Key.settings)
        let scopes = scopes(settings.list("scopes"), isGiven: values["scopes"] != nil, at: path)
        let allowed = allowedUpstreams(settings.list("upstreams"), of: upstreams, at: path)
        guard problems.count == before else { return nil }
        return Key(
            name: settings.text("name"), sha256: bytes(ofHex: settings.text("sha256")) ?? [], scopes: scopes,
            upstreams: allowed, requestsPerSecond: settings.number("requestsPerSecond"))
    }

    private mutating func scopes(
        _ texts: [String], isGiven: Bool, at path: String
    ) -> Set<GatewayConfiguration.APIKey.Scope> {
        let allowed = "allowed write, read, admin"
        if isGiven, texts.isEmpty { problem("\(path).scopes", "is empty; \(allowed)") }
        return Set(
            texts.enumerated().compactMap { place, text in
                let scope = GatewayConfiguration.APIKey.Scope(rawValue: text)
                let shown = ConfigurationNode.string(text).shown
                if scope == nil { problem("\(path).scopes[\(place)]", "is \(shown); \(allowed)") }
                return scope
            })
    }

    /// Nil: all.
    private mutating func allowedUpstreams(
        _ texts: [String], of upstreams: [String], at path: String
    ) -> Set<UpstreamName>? {
        if texts.isEmpty { problem("\(path).upstreams", "is empty; name upstreams, or \"*\" for all") }
        for (place, text) in texts.enumerated() where text != "*" && !upstreams.contains(text) {
            let near = nearestName(to: text, among: upstreams).map { "; did you mean \"\($0)\"?" } ?? ""
            let shown = ConfigurationNode.string(text).shown
            problem("\(path).upstreams[\(place)]", "is \(shown); there is no such upstream\(near)")
        }
        return texts.contains("*") ? nil : Set(texts.compactMap { UpstreamName($0) })
    }

    private mutating func checkExposure(_ configuration: GatewayConfiguration) {
        let declared = sources.file["auth"]?["keys"]
        let hasKeys = if case .array(let elements)? = declared { !elements.isEmpty } else { declared != nil }
        guard !isLoopback(configuration.server.host), !hasKeys, !configuration.auth.allowAnonymous else { return }
        let host = ConfigurationNode.string(configuration.server.host).shown
        problem(
            "server.host",
            "is \(host)\(origin(of: ["server", "host"])), where others can reach it, but auth.keys is empty; add a key (postern keys new), "
                + "listen on 127.0.0.1, or set auth.allowAnonymous to true")
    }

    private mutating func checkTLS(_ tls: GatewayConfiguration.TLS) {
        if tls.certificateFile.isEmpty != tls.keyFile.isEmpty {
            let (missing, given) =
                tls.keyFile.isEmpty ? ("keyFile", "certificateFile") : ("certificateFile", "keyFile")
            problem("server.tls.\(missing)", "is empty; server.tls.\(given) needs it")
        }
        if !tls.clientCAFile.isEmpty, !tls.isOn, tls.keyFile.isEmpty {
            problem("server.tls.certificateFile", "is empty; server.tls.clientCAFile needs it")
        }
        for field in GatewayConfiguration.TLS.fields {
            guard case .text(let file) = field.get(tls), !file.isEmpty,
                case .failure(let failure) = readFile(file, atMost: ConfigurationLoader.largestFile)
            else { continue }
            let path = ["server", "tls", field.setting.name]
            let shown = ConfigurationNode.string(file).shown
            problem(dotted(path), "is \(shown)\(origin(of: path)); the file \(failure.detail)")
        }
    }

    // MARK: Environment

    private func unknownVariables(_ schema: ConfigurationSchema) -> [ConfigurationProblem] {
        let ours = environment.filter { $0.key.hasPrefix("POSTERN_") && $0.key != ConfigurationSources.secretsVariable }
        guard !ours.isEmpty else { return [] }
        var known: [String: [[String]]] = [:]
        for path in schema.leaves where path != ConfigurationSchema.keysPath {
            known[sources.environmentName(of: path), default: []].append(path)
        }
        let open = schema.open.map { sources.environmentName(of: $0) + "_" }
        return ours.sorted { $0.key < $1.key }.compactMap { name, value in
            if let paths = known[name] {
                guard paths.count > 1 else { return nil }
                let both = paths.map(dotted).sorted().joined(separator: " and ")
                return ConfigurationProblem(name, "fits \(both); rename one of these upstreams")
            }
            if open.contains(where: name.hasPrefix) || isServiceLink(name, value) { return nil }
            return ConfigurationProblem(name, "matches no setting; \(advice(for: name, among: known.keys))")
        }
    }

    private func advice(for variable: String, among known: some Sequence<String>) -> String {
        if variable.hasPrefix("POSTERN_AUTH_KEYS") { return "auth.keys can only be set in the file" }
        if let near = nearestName(to: variable, among: known) { return "did you mean \(near)?" }
        if variable.hasPrefix("POSTERN_UPSTREAMS_") { return "is its upstream in the file?" }
        return "correct its name, or remove it"
    }
}

extension TextRule {
    fileprivate static let keyName = TextRule(expected: "1 to 64 of letters, digits, '.', '_' and '-'") {
        $0.wholeMatch(of: #/[A-Za-z0-9._\-]{1,64}/#) != nil
    }
    fileprivate static let digest = TextRule(expected: "64 hexadecimal digits, as postern keys new prints them") {
        bytes(ofHex: $0)?.count == 32
    }
}

/// Kubernetes tells every container of a namespace about its services in variables such as `POSTERN_SERVICE_HOST` and
/// `POSTERN_PORT_8080_TCP_ADDR`: not ours, though a service called `postern` makes them look so.
private func isServiceLink(_ name: String, _ value: String) -> Bool {
    name.hasSuffix("_SERVICE_HOST") || name.firstMatch(of: #/_SERVICE_PORT(_|$)/#) != nil
        || name.firstMatch(of: #/_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$/#) != nil
        || (name.hasSuffix("_PORT") && value.firstMatch(of: #/^(tcp|udp|sctp):///#) != nil)
}

/// 127.0.0.0/8, also written as IPv6, ::1 and `localhost`.
func isLoopback(_ host: String) -> Bool {
    if host.lowercased() == "localhost" { return true }
    var four = in_addr()
    if inet_pton(AF_INET, host, &four) == 1 { return UInt32(bigEndian: four.s_addr) >> 24 == 127 }
    var six = in6_addr()
    guard inet_pton(AF_INET6, host, &six) == 1 else { return false }
    let bytes = withUnsafeBytes(of: &six) { Array($0) }
    let mapped: [UInt8] = Array(repeating: 0, count: 10) + [0xFF, 0xFF]
    return bytes == Array(repeating: 0, count: 15) + [1] || (bytes.starts(with: mapped) && bytes[12] == 127)
}
