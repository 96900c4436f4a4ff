import PosternCore
import PosternUpstream

/// The whitelist or the blacklist: types of notifications, each with the canonical text of its exceptions (section 4.4).
///
/// A type is its UTF-8, because nothing is normalized: as a `String`, `é` equals `e` with a combining accent.
struct PreferenceList {
    /// Types with their new exceptions. Those with nil are removed.
    typealias Changes = [[UInt8]: String?]

    private var entries: [[UInt8]: String] = [:]
    private var entryBytes = 0

    /// A list that is missing counts as empty. A list may be an array of types, which then have no exceptions.
    init(_ list: JSONValue? = nil) { apply(Self.changes(adding: list, removing: nil)) }

    static func changes(adding added: JSONValue?, removing removed: JSONValue?) -> Changes {
        var changes: Changes = [:]
        func set(_ type: JSONValue, _ exceptions: String?) {
            changes.updateValue(exceptions, forKey: type.stringBytes ?? [])
        }
        added?.elements.forEach { set($0, "[]") }
        added?.members.forEach { set($0.key, CanonicalJSON.text($0.value)) }
        removed?.elements.forEach { set($0, nil) }
        removed?.members.forEach { set($0.key, nil) }
        return changes
    }

    /// Returns the changes that undo these.
    @discardableResult mutating func apply(_ changes: Changes) -> Changes {
        var former: Changes = [:]
        for (type, exceptions) in changes {
            let old = entries[type]
            former.updateValue(old, forKey: type)
            entries[type] = exceptions
            let name = JSONEscapes.quoted(String(decoding: type, as: UTF8.self)).utf8.count + 1
            if let old { entryBytes -= name + old.utf8.count }
            if let exceptions { entryBytes += name + exceptions.utf8.count }
        }
        return former
    }

    var text: String {
        CanonicalJSON.object(entries.map { (name: String(decoding: $0, as: UTF8.self), json: $1) })
    }
    /// The number of bytes of `text`.
    var textBytes: Int { 2 + entryBytes + max(0, entries.count - 1) }
}

/// Both lists, which are always sent together.
struct PreferenceLists {
    var whitelist = PreferenceList()
    var blacklist = PreferenceList()

    init() {}

    init(_ value: JSONValue?) {
        whitelist = PreferenceList(value?["whitelist"])
        blacklist = PreferenceList(value?["blacklist"])
    }

    init(stored text: String) {
        if case .success(let lists) = JSONParser.ofThisThread.parse(Array(text.utf8), { Self($0) }) { self = lists }
    }

    var text: String { Self.text(blacklist.text, whitelist.text) }
    /// The number of bytes of `text`.
    var textBytes: Int { Self.frameBytes + blacklist.textBytes + whitelist.textBytes }

    private static let frameBytes = text("", "").utf8.count
    private static func text(_ blacklist: String, _ whitelist: String) -> String {
        #"{"blacklist":\#(blacklist),"whitelist":\#(whitelist)}"#
    }
}
