import Glibc
import Logging
import PosternAPI
import PosternCore
import PosternDelivery
import PosternHTTP
import PosternStore
import PosternUpstream

/// Builds a `GatewayConfiguration` from the sources and collects all problems.
struct ConfigurationCheck {
    private typealias Upstream = GatewayConfiguration.UpstreamConfiguration

    var problems: [ConfigurationProblem] = []
    let sources: ConfigurationSources
    let types: [UpstreamType]
    /// The encryption key if none is configured; nil except in a run with simulators.
    var simulatedKey: [UInt8]?
    private let environment: [String: String]

    init(sources: ConfigurationSources, types: [UpstreamType], environment: [String: String]) {
        self.sources = sources
        self.types = types
        self.environment = environment
        for type in types {
            precondition(
                Upstream.reserved.isDisjoint(with: type.settings.map(\.name)),
                "\(type.name) has a setting that every upstream has")
        }
    }

    /// Complete only if no problem was found.
    mutating func configuration() -> (GatewayConfiguration, ConfigurationSchema) {
        let entries = upstreamEntries()
        let schema = ConfigurationSchema(upstreams: entries.map { ($0.name, $0.type) })
        problems += schema.problems(in: sources.file)
        problems += unknownVariables(schema)

        var result = GatewayConfiguration()
        read(&result.server, at: ["server"])
        read(&result.server.admin, at: ["server", "admin"])
        checkAdmin(result.server)
        read(&result.server.http.tls, at: ["server", "tls"])
        checkTLS(result.server.http.tls)
        read(&result.auth, at: ["auth"])
        read(&result.outbox, at: ["outbox"])
        read(&result.outbox.postgres, at: ["outbox", "postgres"])
        checkEngine(result.outbox)
        checkPayloads(result.outbox)
        if result.outbox.encryptionKeys.current == nil { result.outbox.encryptionKeys.current = simulatedKey }
        read(&result.delivery, at: ["delivery"])
        checkRetries(result.delivery, at: [])
        result.upstreams = entries.compactMap { upstream($0, inheriting: result.delivery) }
        read(&result.cloudEvents, at: ["cloudevents"])
        checkFanOuts(of: result.upstreams, entries)
        problems += SDKCheck.problems(of: result.upstreams)
        result.callbacks = callbacks(to: result.upstreams, of: entries)
        read(&result.log, at: ["log"])
        for index in result.upstreams.indices { result.upstreams[index].logsAnswers = result.log.upstreamAnswers }
        result.auth.keys = keys(upstreams: entries.map(\.name))
        checkCertificateNames(result)
        checkExposure(result)
        checkEncryption(result)
        return (result, schema)
    }

    // MARK: Single settings

    /// Calls `take` with the value if there is one of the right kind. Reports the problems of the value, and those that
    /// `take` throws.
    private mutating func value(
        _ raw: RawValue?, of setting: Setting, named path: String,
        _ take: (SettingValue) throws(Setting.Mismatch) -> Void
    ) {
        guard let raw else { return }
        do throws(Setting.Mismatch) {
            try take(try setting.value(of: raw))
        } catch {
            for detail in error.details { problem(path, "is \(setting.shown(raw))\(raw.fromOrigin); \(detail)") }
        }
    }

    private mutating func read<Section: SettingsSection>(_ section: inout Section, at path: [String]) {
        for field in Section.fields {
            let settingPath = path + field.setting.path
            value(sources.value(at: settingPath), of: field.setting, named: keyPath(settingPath)) {
                (value) throws(Setting.Mismatch) in try field.set(&section, value)
            }
        }
    }

    private func origin(of path: [String]) -> String { sources.value(at: path)?.fromOrigin ?? "" }

    mutating func problem(_ path: String, _ detail: String) {
        problems.append(ConfigurationProblem(path, detail))
    }

    // MARK: Lists of objects

    /// The elements of such a list, each with its path. They can only be set in the file.
    mutating func elements(at path: [String]) -> [(path: String, node: ConfigurationNode)] {
        var node: ConfigurationNode? = sources.file
        for name in path { node = node?[name] }
        guard let node else { return [] }
        guard case .array(let elements) = node else {
            problem(keyPath(path), "is \(node.shown); expected an array of objects")
            return []
        }
        return elements.enumerated().map { ("\(keyPath(path))[\($0)]", $1) }
    }

    /// Reads the settings of one element. Returns nil if it is not an object.
    ///
    /// - Parameter others: Values from other sources, by the names of their settings.
    mutating func element<Section: SettingsSection>(
        _ node: ConfigurationNode, at path: String, others: [String: RawValue] = [:]
    ) -> Section? {
        guard case .object(let members) = node else {
            problem(path, "is \(node.shown); expected an object")
            return nil
        }
        let known = Section.fields.map(\.setting.name)
        for member in members where !known.contains(member.name) {
            let near = nearestName(to: member.name, among: known)
            let advice = near.map { "did you mean \(path).\($0)?" } ?? "allowed here: \(known.joined(separator: ", "))"
            problem("\(path).\(keyPath([member.name]))", "is unknown; \(advice)")
        }
        var section = Section()
        for field in Section.fields {
            let name = field.setting.name
            let raw = others[name] ?? node[name].map { RawValue(content: .json($0), origin: nil) }
            value(raw, of: field.setting, named: "\(path).\(name)") {
                (value) throws(Setting.Mismatch) in try field.set(&section, value)
            }
        }
        return section
    }

    // MARK: Upstreams

    /// A member of `upstreams`.
    struct Entry {
        let name: String
        /// Nil if there is no such type.
        let type: UpstreamType?
    }

    /// The members of `upstreams`, ordered by name, with the type that `type` or else the name gives.
    private mutating func upstreamEntries() -> [Entry] {
        guard case .object(let members) = sources.file["upstreams"] else { return [] }
        let names = Set(members.map(\.name)).sorted()
        if names.count > 255 { problem("upstreams", "has \(names.count) members; allowed 0 to 255") }
        return names.map { Entry(name: $0, type: type(of: $0)) }
    }

    private mutating func type(of name: String) -> UpstreamType? {
        let setting = Upstream.Common.field(of: \.type).setting
        let path = ["upstreams", name, setting.name]
        let types = types
        let known = types.map(\.name)
        guard let raw = sources.value(at: path) else {
            if let type = types.first(where: { $0.name == name }) { return type }
            let advice = nearestName(to: name, among: known).map { "; or did you mean upstreams.\($0)?" } ?? ""
            problem(keyPath(path), "is missing; known types: \(known.joined(separator: ", "))\(advice)")
            return nil
        }
        var found: UpstreamType?
        value(raw, of: setting, named: keyPath(path)) { (value) throws(Setting.Mismatch) in
            found = types.first { $0.name == value.text }
            if found == nil {
                let near = nearestValue(to: value.text ?? "", among: known)
                throw Setting.Mismatch("known types: \(known.joined(separator: ", "))\(near)")
            }
        }
        return found
    }

    private mutating func upstream(
        _ entry: Entry, inheriting delivery: DeliverySettings
    ) -> GatewayConfiguration.UpstreamConfiguration? {
        let path = ["upstreams", entry.name]
        var delivery = entry.type.map(delivery.inherited(by:)) ?? delivery
        var queue = QueueCap()
        read(&delivery, at: path + ["delivery"])
        checkRetries(delivery, at: path)
        read(&queue, at: path + ["queue"])
        var log = Upstream.OwnLog()
        read(&log, at: path + ["log"])
        var common = Upstream.Common()
        // The problem with the type has been reported already.
        for field in Upstream.Common.fields where field.setting.name != Upstream.Common.name(of: \.type) {
            let settingPath = path + field.setting.path
            value(sources.value(at: settingPath), of: field.setting, named: keyPath(settingPath)) {
                (value) throws(Setting.Mismatch) in try field.set(&common, value)
            }
        }
        check(&common.connection, at: path)
        let values = entry.type.map { self.values(of: $0, at: path) } ?? [:]
        guard let name = upstreamName(entry.name), let type = entry.type else { return nil }
        var upstream = Upstream(
            name: name, type: type, isEnabled: common.isEnabled, delivery: delivery, queue: queue,
            connection: common.connection, logLevel: Logger.Level(rawValue: log.level), values: values)
        upstream.schemas = values.mapValues(Self.schemas).filter { !$0.value.isEmpty }
        return upstream
    }

    private static func schemas(namedBy value: SettingValue) -> [UInt8] {
        (value.objects ?? [:]).sorted { $0.key < $1.key }.compactMap { $0.value["schema"]?.text }.flatMap { file in
            (try? readFile(file, atMost: ConfigurationFile.largestFile).get()) ?? []
        }
    }

    /// Checks the files, and keeps what a reload has to compare.
    private mutating func check(_ connection: inout Upstream.Connection, at path: [String]) {
        func name(_ property: PartialKeyPath<Upstream.Common>) -> [String] {
            path + [Upstream.Common.name(of: property)]
        }
        let (authorities, certificate) = (connection.caFile, connection.clientCertificateFile)
        if !authorities.isEmpty {
            _ = usable(authorities, at: name(\.connection.caFile)) { () throws(HTTPServerError) in
                try CertificateFile(authorities)
            }
        }
        let own = [name(\.connection.clientCertificateFile), name(\.connection.clientKeyFile)]
        let keyFile = connection.clientKeyFile
        switch (certificate.isEmpty, keyFile.isEmpty) {
        case (true, true): break
        case (true, false): problem(keyPath(own[0]), "is empty; \(keyPath(own[1])) needs it")
        case (false, true): problem(keyPath(own[1]), "is empty; \(keyPath(own[0])) needs it")
        case (false, false):
            let pair = usable(certificate, at: own[0]) { () throws(HTTPServerError) in
                try CertificatePair(certificateFile: certificate, keyFile: keyFile)
            }
            connection.clientCertificate = pair?.certificate ?? ""
        }
        let (proxy, user) = (name(\.connection.proxyURL), name(\.connection.proxyUsername))
        if connection.proxyURL.isEmpty, !connection.proxyUsername.isEmpty {
            problem(keyPath(proxy), "is empty; \(keyPath(user)) needs it")
        }
        if connection.proxyUsername.isEmpty, !connection.proxyPassword.isEmpty {
            problem(keyPath(user), "is empty; \(keyPath(name(\.connection.proxyPassword))) needs it")
        }
    }

    private mutating func usable<File>(
        _ file: String, at path: [String], _ read: () throws(HTTPServerError) -> File
    ) -> File? {
        do throws(HTTPServerError) { return try read() } catch {
            let shown = ConfigurationNode.string(file).shown
            problem(keyPath(path), "is \(shown)\(origin(of: path)); \(error.detail)")
            return nil
        }
    }

    /// The configured values of a type's own settings.
    private mutating func values(of type: UpstreamType, at path: [String]) -> [String: SettingValue] {
        let before = problems.count
        var values: [String: SettingValue] = [:]
        for setting in type.settings {
            let settingPath = path + setting.path
            value(sources.value(at: settingPath), of: setting, named: keyPath(settingPath)) {
                (value) throws(Setting.Mismatch) in
                try type.check(value, of: setting)
                values[setting.name] = value
            }
        }
        guard problems.count == before else { return values }
        // Credentials of the simulator count.
        let counted = simulatedKey == nil ? values : type.simulated(values, at: "http://localhost")
        for conflict in type.conflicts(in: counted) {
            let settingPath = path + conflict.setting.path
            let shown =
                conflict.setting.isSecret
                ? "***" : (values[conflict.setting.name] ?? conflict.setting.defaultValue).json
            problem(keyPath(settingPath), "is \(shown)\(origin(of: settingPath)); \(conflict.detail)")
        }
        return values
    }

    private mutating func upstreamName(_ text: String) -> UpstreamName? {
        if let name = UpstreamName(text) { return name }
        problem(
            keyPath(["upstreams", text]),
            UpstreamName.reserved.contains(text)
                ? "has a name that the API needs for itself; choose another"
                : "is not a valid name: 1 to 31 characters a-z, 0-9, -, starting with a letter")
        return nil
    }

    /// Path of `delivery.<name>` where it is configured for the upstream at `path`, or else of the global one.
    private func deliveryPath(_ name: String, at path: [String]) -> [String] {
        let own = path + ["delivery", name]
        return sources.value(at: own) == nil ? ["delivery", name] : own
    }

    private mutating func checkRetries(_ delivery: DeliverySettings, at path: [String]) {
        let base = deliveryPath("retryBaseSeconds", at: path)
        let longest = deliveryPath("retryMaxSeconds", at: path)
        // For an upstream that overrides neither, this would only repeat the global problem.
        guard path.isEmpty || base.count > 2 || longest.count > 2, delivery.retry.base > delivery.retry.longest else {
            return
        }
        problem(
            keyPath(base),
            "is \(numberText(delivery.retry.base.inSeconds))\(origin(of: base)); must not exceed \(keyPath(longest)), "
                + "which is \(numberText(delivery.retry.longest.inSeconds))")
    }

    private mutating func checkEngine(_ outbox: OutboxOptions) {
        let path = ["outbox", "postgres", PostgresOptions.name(of: \.url)]
        guard outbox.kind == .postgres, outbox.postgres.url.isEmpty,
            !problems.contains(where: { $0.path == keyPath(path) })
        else { return }
        problem(keyPath(path), "is empty\(origin(of: path)); outbox.engine needs it, which is \"postgres\"")
    }

    private mutating func checkPayloads(_ outbox: OutboxOptions) {
        guard outbox.deliveredPayloadRetention > outbox.deliveredRetention else { return }
        let path = ["outbox", OutboxOptions.name(of: \.deliveredPayloadRetention)]
        problem(
            keyPath(path),
            "is \(numberText(outbox.deliveredPayloadRetention.inSeconds))\(origin(of: path)); must not exceed "
                + "outbox.deliveredRetentionSeconds, which is \(numberText(outbox.deliveredRetention.inSeconds))")
    }

    // MARK: Who may call

    private mutating func keys(upstreams: [String]) -> [APIKey] {
        var names: [String: String] = [:]
        var digests: [[UInt8]: String] = [:]
        return elements(at: ConfigurationSchema.keysPath).compactMap { path, element in
            guard let key = key(element, at: path, upstreams: upstreams) else { return nil }
            if let first = names[key.name] {
                let name = ConfigurationNode.string(key.name).shown
                problem("\(path).name", "is \(name), as in \(first); names must be unique")
            }
            if let first = digests[key.sha256], !key.sha256.isEmpty {
                problem("\(path).sha256", "is that of \(first); give each caller its own key")
            }
            names[key.name] = names[key.name] ?? path
            digests[key.sha256] = digests[key.sha256] ?? path
            return key
        }
    }

    private mutating func key(
        _ node: ConfigurationNode, at path: String, upstreams: [String]
    ) -> APIKey? {
        let before = problems.count
        let secret = secretDigest(of: node).map { [digestName: $0] } ?? [:]
        guard let entry: KeyEntry = element(node, at: path, others: secret) else { return nil }
        let hasDigest = !secret.isEmpty || !entry.certificateName.isEmpty
        for name in KeyEntry.needed where node[name] == nil && !(name == digestName && hasDigest) {
            let allowed = name == KeyEntry.name(of: \.scopes) ? "; \(Self.allowedScopes)" : ""
            problem("\(path).\(name)", "is missing\(allowed)")
        }
        let isGiven = !problems[before...].contains { $0.path == "\(path).scopes" }
        let scopes = scopes(entry.scopes, isGiven: isGiven, at: path)
        let allowed = allowedUpstreams(entry.upstreams, of: upstreams, at: path)
        guard problems.count == before else { return nil }
        return .init(
            name: entry.name, sha256: [UInt8](hexadecimal: entry.sha256) ?? [],
            certificateName: entry.certificateName.isEmpty ? nil : entry.certificateName, scopes: scopes,
            upstreams: allowed,
            limits: entry.limits, weight: entry.weight, expiresAt: Timestamp(rfc3339: entry.expiresAt))
    }

    private var digestName: String { KeyEntry.name(of: \.sha256) }

    /// The content of the secret file `auth-keys-<name>`.
    private func secretDigest(of node: ConfigurationNode) -> RawValue? {
        guard case .string(let name)? = node[KeyEntry.name(of: \.name)] else { return nil }
        return sources.secret(at: ConfigurationSchema.keysPath + [name])
    }

    private static let allowedScopes = "allowed " + APIKey.Scope.allCases.map(\.rawValue).joined(separator: ", ")

    private mutating func scopes(
        _ texts: [String], isGiven: Bool, at path: String
    ) -> Set<APIKey.Scope> {
        let allowed = Self.allowedScopes
        if isGiven, texts.isEmpty { problem("\(path).scopes", "is empty; \(allowed)") }
        return Set(
            texts.enumerated().compactMap { index, text in
                let scope = APIKey.Scope(rawValue: text)
                let shown = ConfigurationNode.string(text).shown
                let near = nearestValue(to: text, among: APIKey.Scope.allCases.map(\.rawValue))
                if scope == nil { problem("\(path).scopes[\(index)]", "is \(shown); \(allowed)\(near)") }
                return scope
            })
    }

    /// Nil means all.
    mutating func allowedUpstreams(
        _ texts: [String], of upstreams: [String], at path: String
    ) -> Set<UpstreamName>? {
        if texts.isEmpty { problem("\(path).upstreams", "is empty; name upstreams, or \"*\" for all") }
        for (index, text) in texts.enumerated() where text != "*" && !upstreams.contains(text) {
            let near = nearestName(to: text, among: upstreams).map { "; did you mean \"\($0)\"?" } ?? ""
            let shown = ConfigurationNode.string(text).shown
            problem("\(path).upstreams[\(index)]", "is \(shown), which is not an upstream\(near)")
        }
        return texts.contains("*") ? nil : Set(texts.compactMap { UpstreamName($0) })
    }

    private mutating func checkExposure(_ configuration: GatewayConfiguration) {
        let declared = sources.file["auth"]?["keys"]
        let hasKeys = if case .array(let elements)? = declared { !elements.isEmpty } else { declared != nil }
        if hasKeys, configuration.auth.allowAnonymous {
            problem(
                "auth.allowAnonymous", "is true although auth.keys is not empty; remove one of the two")
        }
        guard !hasKeys, !configuration.auth.allowAnonymous else { return }
        checkLoopback(configuration.server.http.host, at: ["server", "host"])
        if configuration.server.admin.isOn {
            checkLoopback(configuration.server.admin.host, at: ["server", "admin", "host"])
        }
    }

    private mutating func checkLoopback(_ address: String, at path: [String]) {
        guard !isLoopback(address) else { return }
        let host = ConfigurationNode.string(address).shown
        problem(
            keyPath(path),
            "is \(host)\(origin(of: path)), where others can reach it, but auth.keys is empty; add a key (postern keys new), "
                + "listen on 127.0.0.1, or set auth.allowAnonymous to true")
    }

    private mutating func checkCertificateNames(_ configuration: GatewayConfiguration) {
        var names: [String: Int] = [:]
        for (index, key) in configuration.auth.keys.enumerated() {
            guard let name = key.certificateName else { continue }
            let path = "auth.keys[\(index)].certificateName"
            if configuration.server.http.tls.clientCAFile.isEmpty {
                problem(path, "needs server.tls.clientCAFile, which is empty")
            }
            if let first = names[name] {
                problem(path, "is that of auth.keys[\(first)]; a certificate can belong to one key only")
            }
            names[name] = names[name] ?? index
        }
    }

    private mutating func checkEncryption(_ configuration: GatewayConfiguration) {
        let (path, current) = (["outbox", "encryptionKey"], configuration.outbox.encryptionKeys.current)
        guard current == nil, !problems.contains(where: { $0.path == keyPath(path) }) else { return }
        let storing = configuration.upstreams.filter { $0.isEnabled && $0.storesCredentials }
        guard !storing.isEmpty else { return }
        let names = storing.map(\.name.description).joined(separator: ", ")
        problem(
            keyPath(path),
            "is empty\(origin(of: path)); it has to encrypt the credentials that callers hand in for \(names); make a key "
                + "(openssl rand -hex 32)")
    }

    private mutating func checkAdmin(_ server: GatewayConfiguration.Server) {
        let path = ["server", "admin"]
        guard server.admin.isOn else {
            if server.admin.port != 0 { problem(keyPath(path + ["host"]), "is empty; server.admin.port needs it") }
            return
        }
        let hosts = [server.http.host, server.admin.host]
        let overlaps = hosts[0] == hosts[1] || hosts.contains { ["0.0.0.0", "::"].contains($0) }
        guard server.admin.port != 0, server.admin.port == server.http.port, overlaps else { return }
        let port = path + ["port"]
        problem(
            keyPath(port), "is \(server.admin.port)\(origin(of: port)), as is server.port; the listeners need two ports"
        )
    }

    private mutating func checkTLS(_ tls: TLSFiles) {
        if tls.certificateFile.isEmpty != tls.keyFile.isEmpty {
            let (missing, given) =
                tls.keyFile.isEmpty ? ("keyFile", "certificateFile") : ("certificateFile", "keyFile")
            problem("server.tls.\(missing)", "is empty; server.tls.\(given) needs it")
        }
        if !tls.clientCAFile.isEmpty, !tls.isOn, tls.keyFile.isEmpty {
            problem("server.tls.certificateFile", "is empty; server.tls.clientCAFile needs it")
        }
        for field in TLSFiles.fields {
            guard case .text(let file) = field.get(tls), !file.isEmpty,
                case .failure(let failure) = readFile(file, atMost: ConfigurationFile.largestFile)
            else { continue }
            let path = ["server", "tls", field.setting.name]
            let shown = ConfigurationNode.string(file).shown
            problem(keyPath(path), "is \(shown)\(origin(of: path)); the file \(failure.detail)")
        }
    }

    // MARK: Environment

    private func unknownVariables(_ schema: ConfigurationSchema) -> [ConfigurationProblem] {
        let others = [ConfigurationSources.secretsVariable, ConfigurationSources.commandKeyVariable]
        let ours = environment.filter { $0.key.hasPrefix("POSTERN_") && !others.contains($0.key) }
        guard !ours.isEmpty else { return [] }
        var known: [String: [[String]]] = [:]
        for path in schema.leaves where !ConfigurationSchema.lists.contains(path) {
            known[environmentName(of: path), default: []].append(path)
        }
        let open = schema.open.map { environmentName(of: $0) + "_" }
        return ours.sorted { $0.key < $1.key }.compactMap { name, value in
            if let paths = known[name] {
                // Two names of one setting, such as `monitoringEnabled` and `monitoring.enabled`, both get the value.
                guard Set(paths.map { $0.prefix(2) }).count > 1 else { return nil }
                let both = paths.map(keyPath).sorted().joined(separator: " and ")
                return ConfigurationProblem(name, "fits \(both); rename one of these upstreams")
            }
            if open.contains(where: name.hasPrefix) || isServiceLink(name, value) { return nil }
            return ConfigurationProblem(name, "matches no setting; \(advice(for: name, among: known.keys))")
        }
    }

    private func advice(for variable: String, among known: some Sequence<String>) -> String {
        for list in ConfigurationSchema.lists where variable.hasPrefix(environmentName(of: list)) {
            return "\(keyPath(list)) can only be set in the file"
        }
        if let near = nearestName(to: variable, among: known) { return "did you mean \(near)?" }
        if variable.hasPrefix("POSTERN_UPSTREAMS_") { return "check that its upstream is in the file" }
        return "correct its name, or remove it"
    }
}

/// Kubernetes sets variables such as `POSTERN_SERVICE_HOST` and `POSTERN_PORT_8080_TCP_ADDR` in every container of a
/// namespace with a service called `postern`. They are not settings.
private func isServiceLink(_ name: String, _ value: String) -> Bool {
    name.hasSuffix("_SERVICE_HOST") || name.firstMatch(of: #/_SERVICE_PORT(_|$)/#) != nil
        || name.firstMatch(of: #/_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$/#) != nil
        || isLinkedPort(name, value)
}

/// Whether the variable is one of these with the address of a service, such as `tcp://10.0.0.1:8080`. A service called
/// `postern-server` gives it the name of the setting `server.port`, for which that is never a value.
func isLinkedPort(_ name: String, _ value: String) -> Bool {
    name.hasSuffix("_PORT") && value.firstMatch(of: #/^(tcp|udp|sctp)://.+:[0-9]+$/#) != nil
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
