import PosternCore
import PosternUpstream

/// The preferences of the devices that the messages of a request change. Each device's are read and written once, however
/// many messages change them.
final class PreferencesDraft: StateChange.Draft, @unchecked Sendable {
    // @unchecked: like any draft.
    private var devices: [String: EditedPreferences] = [:]
    /// The bytes of the lists that were read so that messages can change them.
    private var bytesRead = 0

    /// A request does not read more than that, because all of it is one transaction, for which others wait. Whole lists do
    /// not count: they are in the request, which has a limit of its own.
    static let maxBytesRead = 2 << 20

    /// Throws if the device has no preferences to send again, or the change makes more of anything than is allowed. Then the
    /// preferences remain what they were.
    func apply(
        _ change: PreferencesChange, to device: String, by id: MessageID, in state: any UpstreamState
    ) throws(AcceptanceError) {
        if devices[device] == nil { devices[device] = try read(device, for: change, in: state) }
        switch devices[device]?.apply(change, by: id, atMost: Rules.maxBytes) {
        case .applied, nil: break
        case .nothingToSend:
            throw Self.error("there are no preferences of the device to send again; send both lists first")
        case .tooLarge:
            throw Self.error("the preferences of the device would be larger than \(Rules.maxBytes) bytes")
        }
    }

    private func read(
        _ device: String, for change: PreferencesChange, in state: any UpstreamState
    ) throws(AcceptanceError) -> EditedPreferences {
        if case .replace = change { return EditedPreferences(state.preferences(of: device)) }
        guard bytesRead <= Self.maxBytesRead else { throw Self.tooMany }
        let stored = state.preferences(of: device)
        bytesRead += stored?.lists.utf8.count ?? 0
        guard bytesRead <= Self.maxBytesRead else { throw Self.tooMany }
        return EditedPreferences(stored)
    }

    private static var tooMany: AcceptanceError {
        error(
            "the items of the request change lists of more than \(maxBytesRead >> 20) MiB in all; send them in several "
                + "requests")
    }

    private static func error(_ detail: String) -> AcceptanceError {
        AcceptanceError(.invalidPayload, detail, at: "/preferences")
    }

    override var changes: [StateChange] {
        devices.sorted { $0.key < $1.key }.compactMap { device, edited in
            edited.preferences.map { .set(key: Preferences.key(device), value: $0.stored) }
        }
    }
}

/// The preferences of a device while they are changed. Their lists are decoded only for changes of single entries.
struct EditedPreferences {
    enum Outcome { case applied, nothingToSend, tooLarge }

    /// Nil if there are none. While they are decoded, `lists` has the lists.
    private var stored: Preferences?
    private var lists: PreferenceLists?

    init(_ stored: Preferences?) { self.stored = stored }

    var preferences: Preferences? {
        guard var preferences = stored else { return nil }
        if let lists { preferences.lists = lists.text }
        return preferences
    }

    /// Has no effect unless it returns `applied`. `limit`: for the bytes of the request that sends them.
    @discardableResult mutating func apply(
        _ change: PreferencesChange, by id: MessageID, atMost limit: Int
    ) -> Outcome {
        switch change {
        case .resend: if stored == nil { return .nothingToSend }
        case .replace(let new):
            guard Self.bodyBytes(new) <= limit else { return .tooLarge }
            stored = Preferences(revision: id, sent: stored?.sent, lists: new.text)
            lists = nil
        case .edit(let whitelist, let blacklist):
            if lists == nil { lists = stored.map { PreferenceLists(stored: $0.lists) } ?? PreferenceLists() }
            let former = (lists?.whitelist.apply(whitelist), lists?.blacklist.apply(blacklist))
            guard lists.map(Self.bodyBytes) ?? 0 <= limit else {
                lists?.whitelist.apply(former.0 ?? [:])
                lists?.blacklist.apply(former.1 ?? [:])
                return .tooLarge
            }
            if stored == nil { stored = Preferences(revision: id, lists: "") }
        }
        stored?.revision = id
        return .applied
    }

    /// The bytes of the request that sends the lists.
    private static func bodyBytes(_ lists: PreferenceLists) -> Int {
        Requests.preferences("").utf8.count + lists.textBytes
    }
}
