import PosternCore
import PosternDelivery
import PosternHTTP
import PosternStore
import PosternUpstream

/// The settings that exist, given the upstreams of a file.
struct ConfigurationSchema {
    struct Section {
        let path: [String]
        let settings: [Setting]
    }

    static let sectionNames = ["server", "auth", "outbox", "delivery", "upstreams", "cloudevents", "callbacks", "log"]
    static let keysPath = ["auth", "keys"]
    static let callbacksPath = ["callbacks"]
    /// Settings that are lists of objects.
    static let lists = [keysPath, callbacksPath]

    /// The gateway's own settings, except `lists`.
    static let fixed: [Section] = [
        Section(path: ["server"], settings: GatewayConfiguration.Server.fields.map(\.setting)),
        Section(path: ["server", "admin"], settings: GatewayConfiguration.Admin.fields.map(\.setting)),
        Section(path: ["server", "tls"], settings: TLSFiles.fields.map(\.setting)),
        Section(path: ["auth"], settings: GatewayConfiguration.Auth.fields.map(\.setting)),
        Section(path: ["outbox"], settings: OutboxOptions.fields.map(\.setting)),
        Section(path: ["outbox", "postgres"], settings: PostgresOptions.fields.map(\.setting)),
        Section(path: ["delivery"], settings: DeliverySettings.fields.map(\.setting)),
        Section(path: ["cloudevents"], settings: GatewayConfiguration.CloudEvents.fields.map(\.setting)),
        Section(path: ["log"], settings: GatewayConfiguration.Log.fields.map(\.setting)),
    ]

    /// The settings that every upstream has in addition to those of its type.
    static func common(at path: [String]) -> [Section] {
        typealias Upstream = GatewayConfiguration.UpstreamConfiguration
        return [
            Section(path: path, settings: Upstream.Common.fields.map(\.setting)),
            Section(path: path + ["delivery"], settings: DeliverySettings.fields.map(\.setting)),
            Section(path: path + ["queue"], settings: QueueCap.fields.map(\.setting)),
            Section(path: path + ["log"], settings: Upstream.OwnLog.fields.map(\.setting)),
        ]
    }

    /// Paths of settings, and of the objects around them.
    let leaves: Set<[String]>
    let branches: Set<[String]>
    /// Upstreams whose own settings are unknown, because their type is.
    let open: Set<[String]>

    /// `upstreams`: every member of that object with its type; nil if there is no such type.
    init(upstreams: [(name: String, type: UpstreamType?)]) {
        var sections = Self.fixed
        for (name, type) in upstreams {
            let path = ["upstreams", name]
            sections += Self.common(at: path) + [Section(path: path, settings: type?.settings ?? [])]
        }
        leaves = Set(
            sections.flatMap { section in section.settings.map { section.path + $0.path } } + Self.lists)
        branches = Set(leaves.flatMap { leaf in (0..<leaf.count).map { Array(leaf[..<$0]) } } + [["upstreams"]])
        open = Set(upstreams.filter { $0.type == nil }.map { ["upstreams", $0.name] })
    }

    /// The structural problems of `file`: unknown members, and values where an object is required.
    func problems(in file: ConfigurationNode) -> [ConfigurationProblem] { problems(in: file, at: []) }

    private func problems(in node: ConfigurationNode, at path: [String]) -> [ConfigurationProblem] {
        guard case .object(let members) = node else {
            return [ConfigurationProblem(keyPath(path), "is \(node.shown); expected an object")]
        }
        return members.flatMap { member in
            let settingPath = path + [member.name]
            if branches.contains(settingPath) { return problems(in: member.value, at: settingPath) }
            if leaves.contains(settingPath) || open.contains(path) || isReference(member, at: path) { return [] }
            return [ConfigurationProblem(keyPath(settingPath), "is unknown; \(advice(for: settingPath))")]
        }
    }

    /// Whether it is for editors, which find the schema by it.
    private func isReference(_ member: ConfigurationNode.Member, at path: [String]) -> Bool {
        if path.isEmpty, member.name == ConfigurationFileSchema.reference, case .string = member.value {
            true
        } else {
            false
        }
    }

    /// Searches the neighboring settings first, then the same name elsewhere.
    private func advice(for settingPath: [String]) -> String {
        let parent = Array(settingPath.dropLast())
        let name = settingPath[settingPath.count - 1]
        let all = leaves.union(branches.subtracting([[]]))
        let neighbours = all.filter { Array($0.dropLast()) == parent }.map { $0[$0.count - 1] }
        if let near = nearestName(to: name, among: neighbours) { return "did you mean \(keyPath(parent + [near]))?" }
        let elsewhere = all.filter { $0[$0.count - 1].lowercased() == name.lowercased() }
            // Another upstream may be of another type.
            .filter { $0[0] != "upstreams" || parent.first != "upstreams" || $0.starts(with: parent.prefix(2)) }
            .min { (-shared($0, settingPath), keyPath($0)) < (-shared($1, settingPath), keyPath($1)) }
        if let elsewhere { return "did you mean \(keyPath(elsewhere))?" }
        let listed = parent.isEmpty ? Self.sectionNames : neighbours.sorted()
        return "allowed here: \(listed.joined(separator: ", "))"
    }

    private func shared(_ left: [String], _ right: [String]) -> Int { zip(left, right).prefix { $0 == $1 }.count }
}

/// `path` with dots; a name that is not a plain word is quoted.
func keyPath(_ path: [String]) -> String {
    path.map { isPlain($0) ? $0 : ConfigurationNode.string($0).shown }.joined(separator: ".")
}

private func isPlain(_ name: String) -> Bool {
    !name.isEmpty && name.utf8.allSatisfy { $0.isAlphanumeric || "_-".utf8.contains($0) }
}
