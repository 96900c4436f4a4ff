public import PosternCore
public import PosternUpstream

/// The state of an upstream, set by a test.
public struct DictionaryState: UpstreamState, Sendable {
    public var values: [String: [UInt8]]
    /// The number of queued messages by lane.
    public var queued: [String: Int] = [:]
    /// Messages that are still there.
    public var open: Set<MessageID> = []
    public var credentials: [String: HeldCredential] = [:]
    /// As one that is not set: what a draft changes is applied at once.
    public var draft: StateChange.Draft?
    private var expiries: [String: StateChange.Expiry] = [:]
    /// The credentials that were rejected, by owner.
    public private(set) var refused: [String: Set<[UInt8]>] = [:]

    public init(_ values: [String: [UInt8]] = [:]) { self.values = values }

    public func value(of key: String) -> [UInt8]? { values[key] }

    public func values(below key: String, atMost most: Int) -> [(key: String, value: [UInt8])] {
        values.filter { $0.key.hasPrefix(key + "/") }.sorted { $0.key.utf8.lexicographicallyPrecedes($1.key.utf8) }
            .prefix(most).map { ($0.key, $0.value) }
    }

    public func queued(inLane name: String, atMost most: Int) -> Int { min(most, queued[name] ?? 0) }

    public func isQueued(_ id: MessageID) -> Bool { open.contains(id) }
    public func credential(of owner: String) -> HeldCredential? { credentials[owner] }
    public func wasRefused(_ credential: Credential) -> Bool {
        refused[credential.owner]?.contains(credential.value) ?? false
    }

    /// Deletes the values that the store may delete by now.
    public mutating func expire(at now: Timestamp) {
        for (key, expiry) in expiries where expiry.at <= now {
            if let lane = expiry.lane, queued(inLane: lane, atMost: 1) > 0 { continue }
            (values[key], expiries[key]) = (nil, nil)
        }
    }

    private mutating func hold(_ credential: Credential) {
        guard !wasRefused(credential) else { return }
        let held = credentials[credential.owner]
        let isTheSame = held?.value == credential.value
        credentials[credential.owner] = HeldCredential(
            value: credential.value, note: credential.note, version: (held?.version ?? 0) + (isTheSame ? 0 : 1),
            expiresAt: credential.expiresAt ?? (isTheSame ? held?.expiresAt : nil))
    }

    private mutating func refuse(credentialOf owner: String, version: Int64) {
        guard let held = credentials[owner], held.version == version else { return }
        refused[owner, default: []].insert(held.value)
        credentials[owner] = HeldCredential(
            value: [], note: held.note, version: version, expiresAt: held.expiresAt, isRefused: true)
    }

    /// Applies the changes as the store would, except for their effects on lanes.
    public mutating func apply(_ changes: [StateChange]) {
        for change in changes {
            switch change {
            case .set(let key, let value, let expiry): (values[key], expiries[key]) = (value, expiry)
            case .remove(let key): values[key] = nil
            case .cache(let key, let value, _): values[key] = value
            case .removeAll(let key): values = values.filter { !$0.key.hasPrefix(key + "/") }
            case .release, .wake, .repeats: break
            case .draft(let draft): apply(draft.changes)
            case .hold(let credential): hold(credential)
            case .drop(let owner): credentials[owner] = nil
            case .refuse(let owner, let version): refuse(credentialOf: owner, version: version)
            }
        }
    }
}
