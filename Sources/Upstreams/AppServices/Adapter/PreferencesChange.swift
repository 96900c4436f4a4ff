import PosternCore
import PosternUpstream

/// What an item does to the preferences of its device.
enum PreferencesChange {
    /// The lists as a whole.
    case replace(PreferenceLists)
    /// As the framework's helpers change single entries: first types of notifications are added, each with its
    /// exceptions, which replace those that it had, and then types are removed, here those without a text.
    case edit(whitelist: PreferenceList.Changes, blacklist: PreferenceList.Changes)
    /// Sends the last ones again.
    case resend

    /// Nil for anything but an object or null. The value keeps to the rules.
    init?(_ value: JSONValue) {
        switch value.kind {
        case .null: self = .resend
        case .object where Self.isEdit(value):
            let (added, removed) = (value["add"], value["remove"])
            self = .edit(
                whitelist: PreferenceList.changes(adding: added?["whitelist"], removing: removed?["whitelist"]),
                blacklist: PreferenceList.changes(adding: added?["blacklist"], removing: removed?["blacklist"]))
        case .object: self = .replace(PreferenceLists(value))
        case .array, .string, .number, .true, .false: return nil
        }
    }

    /// Whether the object has changes instead of lists.
    static func isEdit(_ value: JSONValue) -> Bool { value["add"] != nil || value["remove"] != nil }
}
