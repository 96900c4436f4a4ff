import PosternCore
import PosternJSON

/// What an item does to the preferences of its device.
enum PreferencesChange {
    /// The lists as a whole.
    case replace(PreferenceLists)
    /// As the framework's helpers change single entries: first types of notifications are added, each with its
    /// exceptions, which replace those that it had, and then types are removed.
    case edit(adding: PreferenceLists, removing: PreferenceLists)
    /// Sends the last ones again.
    case resend

    /// Nil for anything but an object or null. The value keeps to the rules.
    init?(_ value: JSONValue) {
        switch value.kind {
        case .null: self = .resend
        case .object where Self.isEdit(value):
            self = .edit(adding: PreferenceLists(value["add"]), removing: PreferenceLists(value["remove"]))
        case .object: self = .replace(PreferenceLists(value))
        case .array, .string, .number, .true, .false: return nil
        }
    }

    /// Whether the object has changes instead of lists.
    static func isEdit(_ value: JSONValue) -> Bool { value["add"] != nil || value["remove"] != nil }

    /// The preferences after the change, in their canonical text. `former`: those before it; nil if there are none.
    /// Nil if there is nothing to send again.
    func applied(to former: String?) -> String? {
        switch self {
        case .replace(let lists): return lists.text
        case .resend: return former
        case .edit(let added, let removed):
            var lists = former.map(PreferenceLists.init(stored:)) ?? PreferenceLists()
            lists.whitelist.merge(added.whitelist) { $1 }
            lists.blacklist.merge(added.blacklist) { $1 }
            for type in removed.whitelist.keys { lists.whitelist[type] = nil }
            for type in removed.blacklist.keys { lists.blacklist[type] = nil }
            return lists.text
        }
    }
}

/// A whitelist and a blacklist: types of notifications, each with the canonical text of its exceptions (section 4.4).
///
/// A type is its UTF-8, because nothing is normalized: as a `String`, `é` equals `e` with a combining accent.
struct PreferenceLists {
    var whitelist: [[UInt8]: String] = [:]
    var blacklist: [[UInt8]: String] = [:]

    init() {}

    /// A list that is missing counts as empty. A list may be an array of types, which then have no exceptions.
    init(_ value: JSONValue?) {
        whitelist = Self.entries(value?["whitelist"])
        blacklist = Self.entries(value?["blacklist"])
    }

    init(stored text: String) {
        if case .success(let lists) = JSONParser.ofThisThread.parse(Array(text.utf8), { Self($0) }) { self = lists }
    }

    private static func entries(_ list: JSONValue?) -> [[UInt8]: String] {
        let types = list?.elements.map { ($0.stringBytes ?? [], "[]") } ?? []
        let entries = list?.members.map { ($0.key.stringBytes ?? [], CanonicalJSON.text($0.value)) } ?? []
        return Dictionary(types + entries) { $1 }
    }

    /// Both lists are always sent.
    var text: String {
        func object(_ list: [[UInt8]: String]) -> String {
            CanonicalJSON.object(list.map { (name: String(decoding: $0, as: UTF8.self), json: $1) })
        }
        return #"{"blacklist":\#(object(blacklist)),"whitelist":\#(object(whitelist))}"#
    }
}
