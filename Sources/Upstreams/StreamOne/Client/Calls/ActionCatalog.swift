import PosternCore
package import PosternUpstream

/// Which actions read and which write (the specification's section 9). The platform does not document it; the names
/// show it, and settings add to either list.
package struct ActionCatalog: Sendable {
    package enum Nature: Sendable { case read, write, session }

    private let reads: Set<String>
    private let writes: Set<String>
    /// Actions of the SDKs that may be queued.
    private let queued: Set<String>

    /// As `command/action`. An action in both of the first lists is a write.
    package init(reads: [String], writes: [String], queued: [String] = []) {
        self.reads = Set(reads)
        self.writes = Set(writes)
        self.queued = Set(queued)
    }

    /// The faults of a setting with such a list.
    package static let rule = Setting.Rule<[String]> { list in
        list.filter { call(named: $0).map { $0.command == "session" } ?? true }.map(fault)
    }

    /// The same for a list that may name actions of sessions.
    package static let ruleOfNames = Setting.Rule<[String]> { list in
        list.filter { call(named: $0) == nil }.map(fault)
    }

    private static func fault(of name: String) -> String { "'\(name)' is not a command/action, e.g. item/view" }

    private static func call(named name: String) -> StreamOneCall? {
        let parts = name.split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 2, parts.allSatisfy({ StreamOneCall.isName($0) }) else { return nil }
        return StreamOneCall(command: String(parts[0]), action: String(parts[1]))
    }

    package func nature(of call: StreamOneCall) -> Nature {
        if call.command == "session" { return .session }
        if writes.contains(call.name) { return .write }
        return reads.contains(call.name) || Self.soundsLikeRead(call.action) ? .read : .write
    }

    /// Whether the call of an SDK, outside a session, may be queued.
    func mayBeQueued(_ call: StreamOneCall) -> Bool { queued.contains(call.name) && nature(of: call) == .write }

    /// Those of the actions to be queued that never are, and why.
    package var neverQueued: [(name: String, reason: String)] {
        queued.sorted().compactMap { name in
            switch Self.call(named: name).map(nature) {
            case .read: (name, "only reads")
            case .session: (name, "is about a session")
            case .write, nil: nil
            }
        }
    }

    private static let prefixes = ["view", "get", "my", "list", "search", "count", "stats"]

    private static func soundsLikeRead(_ action: String) -> Bool {
        action == "info" || prefixes.contains { action.hasPrefix($0) }
    }

    /// Whether responses may be cached. Those about the actor's own rights are cached only if a setting requires it
    /// (7.4).
    func isKept(_ call: StreamOneCall) -> Bool {
        guard nature(of: call) == .read else { return false }
        return !Self.isAboutRights(call) || reads.contains(call.name)
    }

    /// The commands that have such actions.
    static let commandsAboutRights = ["user", "application", "api"]

    static func isAboutRights(_ call: StreamOneCall) -> Bool {
        call.action == "getmyroles" || (call.command == "api" && call.action == "mytokens")
    }

    /// Whether the action removes something. If so, its absence is the result that the caller asked for.
    package static func isDeletion(_ call: StreamOneCall) -> Bool {
        call.action.hasPrefix("delete") || call.action.hasPrefix("remove")
    }
}
