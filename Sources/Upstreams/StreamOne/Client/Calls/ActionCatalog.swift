import PosternCore
package import PosternUpstream

/// Which actions read and which write (the specification's section 9). The platform does not document it; the names
/// show it, and settings add to either list.
package struct ActionCatalog: Sendable {
    package enum Nature: Sendable { case read, write, session }

    private let reads: Set<String>
    private let writes: Set<String>

    /// As `command/action`. An action in both lists is a write.
    package init(reads: [String], writes: [String]) {
        self.reads = Set(reads)
        self.writes = Set(writes)
    }

    /// The faults of a setting with such a list.
    package static let rule = Setting.Rule<[String]> { list in
        list.filter { !isEntry($0) }.map { "'\($0)' is not a command/action, e.g. item/view" }
    }

    private static func isEntry(_ text: String) -> Bool {
        let parts = text.split(separator: "/", omittingEmptySubsequences: false)
        return parts.count == 2 && parts.allSatisfy { StreamOneCall.isName($0) } && parts[0] != "session"
    }

    package func nature(of call: StreamOneCall) -> Nature {
        if call.command == "session" { return .session }
        let name = "\(call.command)/\(call.action)"
        if writes.contains(name) { return .write }
        return reads.contains(name) || Self.soundsLikeRead(call.action) ? .read : .write
    }

    private static let prefixes = ["view", "get", "my", "list", "search", "count", "stats"]

    private static func soundsLikeRead(_ action: String) -> Bool {
        action == "info" || prefixes.contains { action.hasPrefix($0) }
    }

    /// Whether responses may be cached. Those about the actor's own rights are cached only if a setting requires it
    /// (7.4).
    func isKept(_ call: StreamOneCall) -> Bool {
        guard nature(of: call) == .read else { return false }
        return !Self.isAboutRights(call) || reads.contains("\(call.command)/\(call.action)")
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
