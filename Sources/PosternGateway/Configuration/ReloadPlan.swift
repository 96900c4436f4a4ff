import PosternCore
import PosternDelivery
import PosternHTTP
import PosternStore
import PosternUpstream

/// What a reloaded configuration changes in a running gateway.
struct ReloadPlan: Sendable, Equatable {
    /// Paths of the settings that take effect now.
    let live: [String]
    /// Paths of the settings that take effect at the next start; until then, the old values are used.
    let needsRestart: [String]
    /// The configuration in force after this reload: the running one with the live changes.
    let configuration: GatewayConfiguration

    /// Whether `auth.keys` differ.
    let changesKeys: Bool
    let changesLogLevel: Bool
    /// Upstreams that continue with new settings, new delivery settings, or both.
    let upstreams: [UpstreamName]
    /// Those of them whose own settings differ, or how they are reached. Their tokens and waits are those of the old ones,
    /// and end.
    let replaced: [UpstreamName]
    /// Upstreams that are new, or enabled again.
    let added: [UpstreamName]
    /// Upstreams that are no longer configured, or disabled.
    let removed: [UpstreamName]

    /// Whether no setting differs.
    var isEmpty: Bool { live.isEmpty && needsRestart.isEmpty }
}

extension GatewayConfiguration {
    /// Whether it listens where other machines may reach it.
    private var isExposed: Bool { !isLoopback(server.http.host) || server.admin.isOn && !isLoopback(server.admin.host) }

    /// What can change while running: keys, the log level, caps, delivery settings, upstreams, and their settings.
    func changes(to new: GatewayConfiguration) -> ReloadPlan {
        var live = new.auth.changedFields(since: auth, at: ["auth"])
        if new.auth.keys != auth.keys { live.append("auth.keys") }
        let globalDelivery = new.delivery.changedFields(since: delivery, at: ["delivery"])
        live += globalDelivery
        live += new.cloudEvents.changedFields(since: cloudEvents, at: ["cloudevents"])

        var restart = new.server.changedFields(since: server, at: ["server"])
        restart += new.server.admin.changedFields(since: server.admin, at: ["server", "admin"])
        restart += new.server.http.tls.changedFields(since: server.http.tls, at: ["server", "tls"])
        var after = self
        after.outbox.maxBytes = new.outbox.maxBytes
        restart += new.outbox.changedFields(since: after.outbox, at: ["outbox"])
        restart += new.outbox.postgres.changedFields(since: outbox.postgres, at: ["outbox", "postgres"])
        live += after.outbox.changedFields(since: outbox, at: ["outbox"])
        // Keys are not removed from a gateway that others can reach, and does not listen elsewhere before its next start.
        let opensAccess = new.auth.keys.isEmpty && !new.auth.allowAnonymous && isExposed
        if opensAccess { restart += live.filter { $0.hasPrefix("auth.") } }
        if opensAccess { live.removeAll { $0.hasPrefix("auth.") } }
        after.auth = opensAccess ? auth : new.auth
        after.delivery = new.delivery
        after.cloudEvents = new.cloudEvents
        if new.callbacks != callbacks {
            // An upstream that is disabled, or runs as another type, cannot get events.
            let canChange = new.callbacks.allSatisfy { callback in
                let pair = [self, new].map { $0.upstreams.first { $0.name == callback.upstream } }
                return pair[0].map { $0.type == pair[1]?.type } ?? true && pair[1]?.isEnabled ?? false
            }
            if canChange { after.callbacks = new.callbacks }
            if canChange { live.append("callbacks") } else { restart.append("callbacks") }
        }
        (after.log.level, after.log.upstreamAnswers) = (new.log.level, new.log.upstreamAnswers)
        var (changed, replaced) = ([UpstreamName](), [UpstreamName]())
        var (added, removed) = ([UpstreamName](), [UpstreamName]())
        for old in upstreams where !new.upstreams.contains(where: { $0.name == old.name }) {
            live.append("upstreams.\(old.name)")
            if old.isEnabled { removed.append(old.name) }
        }
        after.upstreams = []
        for next in new.upstreams {
            let old = upstreams.first { $0.name == next.name }
            // The store has no key before the next start.
            if next.isEnabled, next.storesCredentials, outbox.encryptionKeys.current == nil {
                restart.append("upstreams.\(next.name)")
                if let old { after.upstreams.append(old) }
                continue
            }
            guard let old else {
                live.append("upstreams.\(next.name)")
                if next.isEnabled { added.append(next.name) }
                after.upstreams.append(next)
                continue
            }
            // Settings of another type mean nothing to the running upstream.
            guard old.type == next.type else {
                restart += old.fixedChanges(to: next)
                after.upstreams.append(old)
                continue
            }
            live += old.liveChanges(to: next, delivery: (self.delivery, new.delivery))
            after.upstreams.append(next)
            guard old.isEnabled == next.isEnabled else {
                if next.isEnabled { added.append(next.name) } else { removed.append(next.name) }
                continue
            }
            let isReplaced =
                old.values != next.values || old.schemas != next.schemas || old.connection != next.connection
            if isReplaced { replaced.append(old.name) }
            if isReplaced || old.deliverySettings != next.deliverySettings { changed.append(old.name) }
        }
        if new.log.level != log.level { live.append("log.level") }
        if new.log.upstreamAnswers != log.upstreamAnswers { live.append("log.upstreamAnswers") }
        if new.log.format != log.format { restart.append("log.format") }

        return ReloadPlan(
            live: live, needsRestart: restart, configuration: after, changesKeys: after.auth != auth,
            changesLogLevel: new.log.level != log.level, upstreams: changed, replaced: replaced, added: added,
            removed: removed)
    }
}

extension SettingsSection {
    /// Paths of the settings that differ.
    fileprivate func changedFields(since old: Self, at path: [String]) -> [String] {
        Self.fields.filter { $0.get(old) != $0.get(self) }.map { keyPath(path + $0.setting.path) }
    }
}

extension GatewayConfiguration.UpstreamConfiguration {
    private typealias Delivery = DeliverySettings
    private var path: [String] { ["upstreams", name.description] }
    private var common: Common { Common(type: type, isEnabled: isEnabled, connection: connection) }

    /// The changes that a reload cannot apply, if the type has changed. Nothing else of the upstream is compared.
    fileprivate func fixedChanges(to new: Self) -> [String] {
        [keyPath(path + [Common.name(of: \.type)])]
            + (isEnabled == new.isEnabled ? [] : [keyPath(path + [Common.name(of: \.isEnabled)])])
    }

    /// Omits delivery settings that only follow the global ones.
    fileprivate func liveChanges(
        to new: Self,
        delivery global: (old: DeliverySettings, new: DeliverySettings)
    ) -> [String] {
        let own = Delivery.fields.filter { field in
            let follows =
                field.get(delivery) == field.get(global.old) && field.get(new.delivery) == field.get(global.new)
            return field.get(delivery) != field.get(new.delivery) && !follows
        }
        let settings = Set(values.keys).union(new.values.keys).sorted().filter {
            values[$0] != new.values[$0] || schemas[$0] != new.schemas[$0]
        }
        var common = new.common.changedFields(since: self.common, at: path)
        let certificate = keyPath(path + [Common.name(of: \.connection.clientCertificateFile)])
        if connection.clientCertificate != new.connection.clientCertificate, !common.contains(certificate) {
            common.append(certificate)
        }
        let level = logLevel == new.logLevel ? [] : [keyPath(path + ["log", OwnLog.name(of: \.level)])]
        return common + level + settings.map { keyPath(path + Setting.path(of: $0)) }
            + own.map { keyPath(path + ["delivery"] + $0.setting.path) }
            + new.queue.changedFields(since: queue, at: path + ["queue"])
    }
}
