import PosternCore
import PosternUpstream

/// The owner of an item that names no user: the token that it came with, by a digest.
///
/// The token stands for the user with whom it came, otherwise for the user who was connected to the item's device last.
/// A new token of that user is held for the alias, too, and a token that is refused for one of them is refused for all.
enum TokenAlias {
    /// No user id contains it.
    private static let mark = "~"

    static func name(of token: [UInt8]) -> String {
        let digest = TextDigest.of(["token", String(decoding: token, as: UTF8.self)])
        return mark + UUIDText.bytes(digest.0, digest.1).filter { $0 != UInt8(ascii: "-") }.map { Character(.init($0)) }
    }

    static func isOne(_ owner: String) -> Bool { owner.hasPrefix(mark) }

    /// The user of a token: `token/<alias>`.
    static func userKey(_ alias: String) -> String { "token/" + alias }
    /// The lane of an alias whose user is not known: `unclaimed/<alias>`.
    static func unclaimedKey(_ alias: String) -> String { "unclaimed/" + alias }
    /// The aliases of a user: `alias/<user>/<alias>`. The value has no meaning.
    static func root(of user: String) -> String { "alias/" + user }

    /// How long it is known whose token it is.
    static let life = Duration.seconds(30 * 86400)
    /// How long after an item without a user a message of the user may bring the same token.
    static let claimPeriod = Duration.seconds(60)
    static let most = 64
}

extension UpstreamState {
    /// The user of an owner; nil for an alias of an unknown one.
    func user(of owner: String, on device: String) -> String? {
        guard TokenAlias.isOne(owner) else { return owner }
        if let user = user(ofAlias: owner) { return user }
        let last = self.device(device).connectedUser
        return last.isEmpty ? nil : last
    }

    private func user(ofAlias alias: String) -> String? {
        value(of: TokenAlias.userKey(alias)).map { String(decoding: $0, as: UTF8.self) }
    }

    /// The aliases of a user, with whether that is known.
    private func aliases(of user: String) -> [(name: String, isKnown: Bool)] {
        values(below: TokenAlias.root(of: user), atMost: TokenAlias.most).compactMap { key, _ in
            let name = String(key.dropFirst(TokenAlias.root(of: user).count + 1))
            guard let known = self.user(ofAlias: name) else { return (name, false) }
            return known == user ? (name, true) : nil
        }
    }

    /// Whether messages that name no user wait for another token of this one.
    func hasRefusedAlias(_ user: String, at now: Timestamp) -> Bool {
        aliases(of: user).contains { credential(of: $0.name).map { !$0.isUsable(at: now) } ?? false }
    }

    /// A token of a user is there: it serves the messages of all aliases. One that only may be the user's keeps its own
    /// token as long as that is good.
    func share(_ credential: Credential, at now: Timestamp) -> [StateChange] {
        aliases(of: credential.owner).compactMap { alias in
            guard let own = self.credential(of: alias.name), own.value != credential.value,
                alias.isKnown || !own.isUsable(at: now)
            else { return nil }
            return .hold(
                Credential(
                    owner: alias.name, value: credential.value, note: credential.note,
                    expiresAt: credential.expiresAt))
        }
    }

    /// Refuses the token that was sent for `owner` for it and for everyone else who has the same.
    func refuse(_ version: Int64, of owner: String, on device: String) -> [StateChange] {
        let refused = StateChange.refuse(credentialOf: owner, version: version)
        guard let sent = credential(of: owner), sent.version == version else { return [refused] }
        // With whomever it came, or may have come.
        let alias = TokenAlias.name(of: sent.value)
        let users = Set([user(of: owner, on: device), user(ofAlias: alias)].compactMap { $0 })
        let others = users.union([alias]).union(users.flatMap { aliases(of: $0).map(\.name) }).subtracting([owner])
        return [refused]
            + others.sorted().compactMap { other in
                guard let held = credential(of: other), held.value == sent.value else { return nil }
                return .refuse(credentialOf: other, version: held.version)
            }
    }

    /// What accepting the item says about tokens and users. Its credential is stored already.
    func tokenChanges(accepting item: Item, at now: Timestamp) -> [StateChange] {
        guard !TokenAlias.isOne(item.owner) else { return changes(accepting: item, of: item.owner, at: now) }
        var changes: [StateChange] = []
        guard let held = credential(of: item.owner), !held.isRefused else { return [] }
        if item.kind.isStep {
            let alias = TokenAlias.name(of: held.value)
            if user(ofAlias: alias) != item.owner {
                changes.append(
                    .set(
                        key: TokenAlias.userKey(alias), value: Array(item.owner.utf8),
                        expiry: .init(at: now + TokenAlias.life)))
            }
            changes += claim(alias, for: item.owner, at: now)
            if wasRefused(Credential(owner: alias, value: held.value)) {
                return changes + [.refuse(credentialOf: item.owner, version: held.version)]
            }
        }
        guard held.isUsable(at: now) else { return changes }
        return changes
            + share(
                Credential(owner: item.owner, value: held.value, note: held.note, expiresAt: held.expiresAt), at: now)
    }

    /// The first message of the user with the token of items that named none.
    private func claim(_ alias: String, for user: String, at now: Timestamp) -> [StateChange] {
        let key = TokenAlias.unclaimedKey(alias)
        guard let stored = value(of: key) else { return [] }
        let words = String(decoding: stored, as: UTF8.self).split(separator: " ", maxSplits: 1)
        guard words.count == 2, let until = Int64(words[0]), until >= now.milliseconds else {
            return [.remove(key: key)]
        }
        return [
            .remove(key: key),
            .set(
                key: "\(TokenAlias.root(of: user))/\(alias)", value: [],
                expiry: .init(at: now, lane: String(words[1]))),
        ]
    }

    private func changes(accepting item: Item, of alias: String, at now: Timestamp) -> [StateChange] {
        let lane = item.laneName
        let known = user(ofAlias: alias)
        var changes: [StateChange] = []
        if known == nil {
            let until = now + TokenAlias.claimPeriod
            changes.append(
                .set(
                    key: TokenAlias.unclaimedKey(alias), value: Array("\(until.milliseconds) \(lane)".utf8),
                    expiry: .init(at: until)))
        }
        guard let user = user(of: alias, on: item.device) else { return changes }
        changes.append(
            .set(key: "\(TokenAlias.root(of: user))/\(alias)", value: [], expiry: .init(at: now, lane: lane)))
        guard let own = credential(of: alias), !own.isRefused else { return changes }
        let isRefused = wasRefused(Credential(owner: user, value: own.value))
        if isRefused { changes.append(.refuse(credentialOf: alias, version: own.version)) }
        if known != nil || isRefused, let held = credential(of: user), held.isUsable(at: now), held.value != own.value {
            changes.append(
                .hold(Credential(owner: alias, value: held.value, note: held.note, expiresAt: held.expiresAt)))
        }
        return changes
    }
}
