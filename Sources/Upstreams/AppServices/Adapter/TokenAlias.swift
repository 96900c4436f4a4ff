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
    /// The lanes of an alias whose user is not known: `unclaimed/<lane>`, until when it may be claimed. The name of a lane
    /// begins with its alias.
    static let unclaimed = "unclaimed/"
    /// The lanes of a user's aliases: `alias/<user>/<lane>`, each as long as it has messages. The value has no meaning.
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
        let lanes = values(below: TokenAlias.root(of: user), atMost: TokenAlias.most)
        let names = Set(lanes.map { $0.key.dropFirst(TokenAlias.root(of: user).count + 1).prefix { $0 != "/" } })
        return names.map(String.init).filter(TokenAlias.isOne).sorted().compactMap { name in
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
    func refuse(_ version: Int64, of owner: String, on device: String, at now: Timestamp) -> [StateChange] {
        let refused = StateChange.refuse(credentialOf: owner, version: version)
        guard let sent = credential(of: owner), sent.version == version else { return [refused] }
        // With whomever it came, or may have come.
        let alias = TokenAlias.name(of: sent.value)
        let users = Set([user(of: owner, on: device), user(ofAlias: alias)].compactMap { $0 })
        let others = users.union([alias]).union(users.flatMap { aliases(of: $0).map(\.name) }).subtracting([owner])
        // The token does not come again in this user's name, since one that was refused is not stored.
        let owned = TokenAlias.isOne(owner) ? [] : recognize(alias, as: owner, at: now)
        return owned + [refused]
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
        if item.kind.isOfSDK {
            let alias = TokenAlias.name(of: held.value)
            changes += recognize(alias, as: item.owner, at: now)
            if wasRefused(Credential(owner: alias, value: held.value)) {
                return changes + [.refuse(credentialOf: item.owner, version: held.version)]
            }
        }
        guard held.isUsable(at: now) else { return changes }
        return changes
            + share(
                Credential(owner: item.owner, value: held.value, note: held.note, expiresAt: held.expiresAt), at: now)
    }

    /// The token has come with the user.
    private func recognize(_ alias: String, as user: String, at now: Timestamp) -> [StateChange] {
        guard self.user(ofAlias: alias) != user else { return claim(alias, for: user, at: now) }
        let known = StateChange.set(
            key: TokenAlias.userKey(alias), value: Array(user.utf8), expiry: .init(at: now + TokenAlias.life))
        return [known] + claim(alias, for: user, at: now)
    }

    /// The first message of the user with the token of items that named none.
    private func claim(_ alias: String, for user: String, at now: Timestamp) -> [StateChange] {
        values(below: TokenAlias.unclaimed + alias, atMost: TokenAlias.most).flatMap { key, end in
            let isInTime = Int64(String(decoding: end, as: UTF8.self)).map { $0 >= now.milliseconds } ?? false
            let lane = String(key.dropFirst(TokenAlias.unclaimed.count))
            return [.remove(key: key)] + (isInTime ? [belongs(lane: lane, to: user, at: now)] : [])
        }
    }

    /// The alias whose lane it is may be the user's while the lane has messages.
    private func belongs(lane: String, to user: String, at now: Timestamp) -> StateChange {
        .set(key: "\(TokenAlias.root(of: user))/\(lane)", value: [], expiry: .init(at: now, lane: lane))
    }

    private func changes(accepting item: Item, of alias: String, at now: Timestamp) -> [StateChange] {
        let known = user(ofAlias: alias)
        var changes: [StateChange] = []
        if known == nil {
            let until = now + TokenAlias.claimPeriod
            changes.append(
                .set(
                    key: TokenAlias.unclaimed + item.laneName, value: Array("\(until.milliseconds)".utf8),
                    expiry: .init(at: until)))
        }
        guard let user = user(of: alias, on: item.device) else { return changes }
        changes.append(belongs(lane: item.laneName, to: user, at: now))
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
