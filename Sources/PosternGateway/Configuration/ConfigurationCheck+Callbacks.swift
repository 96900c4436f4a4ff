import PosternCore
import PosternStore
import PosternUpstream

extension ConfigurationCheck {
    typealias Callback = GatewayConfiguration.CallbackConfiguration

    /// The elements of `callbacks` that have no problem.
    ///
    /// - Parameters:
    ///   - upstreams: Those without problems.
    ///   - entries: All members of `upstreams`.
    mutating func callbacks(
        to upstreams: [GatewayConfiguration.UpstreamConfiguration], of entries: [Entry]
    ) -> [Callback] {
        var found: [(path: String, callback: Callback)] = []
        for (path, node) in elements(at: ConfigurationSchema.callbacksPath) {
            guard let callback = callback(node, at: path, upstreams, entries) else { continue }
            if let first = found.first(where: { $0.callback == callback }) {
                problem(path, "is the same as \(first.path), so there would be two events for each message; remove one")
            }
            found.append((path, callback))
        }
        return found.map(\.callback)
    }

    private mutating func callback(
        _ node: ConfigurationNode, at path: String, _ upstreams: [GatewayConfiguration.UpstreamConfiguration],
        _ entries: [Entry]
    ) -> Callback? {
        let before = problems.count
        guard var entry: CallbackEntry = element(node, at: path) else { return nil }
        for name in CallbackEntry.needed where node[name] == nil { problem("\(path).\(name)", "is missing") }
        // What is wrong with a value has been reported; the entry has its default.
        let faulty = Set(problems[before...].map(\.path))
        func isGiven(_ name: String) -> Bool { !faulty.contains("\(path).\(name)") }
        let eventsName = CallbackEntry.name(of: \.events)
        let events = isGiven(eventsName) ? events(entry.events, at: "\(path).\(eventsName)") : []
        let hasEvents = !entry.events.isEmpty || !isGiven(eventsName)
        if hasEvents, node[CallbackEntry.name(of: \.states)] == nil { entry.states = [] }
        let states =
            isGiven(CallbackEntry.name(of: \.states))
            ? states(entry.states, at: "\(path).states", mayBeEmpty: hasEvents) : []
        let reported = allowedUpstreams(entry.upstreams, of: entries.map(\.name), at: path)
        if isGiven(CallbackEntry.name(of: \.upstream)), let target = target(entry.upstream, at: path, entries),
            let upstream = upstreams.first(where: { $0.name.description == target.name })
        {
            checkEnabled(upstream, at: path)
            if isGiven(CallbackEntry.name(of: \.kind)) { checkKind(entry.kind, at: path, of: upstream, target) }
        }
        guard problems.count == before, let upstream = UpstreamName(entry.upstream) else { return nil }
        return Callback(
            upstream: upstream, kind: Kind(entry.kind), states: states, events: events, upstreams: reported,
            includesPayload: entry.includesPayload)
    }

    private mutating func states(_ texts: [String], at path: String, mayBeEmpty: Bool) -> Set<MessageState> {
        if texts.isEmpty, !mayBeEmpty {
            problem(path, "is empty; allowed \(CallbackEntry.allStates.joined(separator: ", "))")
        }
        checkValues(texts, among: CallbackEntry.allStates, at: path)
        return Set(texts.compactMap { MessageState(name: $0) })
    }

    private mutating func events(_ texts: [String], at path: String) -> Set<AlertEvent> {
        checkValues(texts, among: CallbackEntry.allEvents, at: path)
        return Set(texts.compactMap { AlertEvent(rawValue: $0) })
    }

    private mutating func checkValues(_ texts: [String], among allowed: [String], at path: String) {
        for (index, text) in texts.enumerated() where !allowed.contains(text) {
            let near = nearestValue(to: text, among: allowed)
            problem(
                "\(path)[\(index)]",
                "is \(ConfigurationNode.string(text).shown); allowed \(allowed.joined(separator: ", "))\(near)")
        }
    }

    /// The upstream that gets the events; nil if there is a problem with it.
    private mutating func target(_ name: String, at path: String, _ entries: [Entry]) -> Entry? {
        let shown = ConfigurationNode.string(name).shown
        guard let target = entries.first(where: { $0.name == name }) else {
            let suitable = entries.filter { $0.type?.takesCallbacks ?? false }.map(\.name)
            let near = nearestName(to: name, among: suitable).map { "; did you mean \"\($0)\"?" } ?? ""
            problem("\(path).upstream", "is \(shown), which is not an upstream\(near)")
            return nil
        }
        // An unknown type has been reported already.
        guard let type = target.type, !type.takesCallbacks else { return target }
        let types = types.filter(\.takesCallbacks).map(\.name).joined(separator: " or ")
        problem("\(path).upstream", "is \(shown), which is of type \(type.name); callbacks need one of type \(types)")
        return nil
    }

    private mutating func checkEnabled(_ upstream: GatewayConfiguration.UpstreamConfiguration, at path: String) {
        guard !upstream.isEnabled else { return }
        problem("\(path).upstream", "is \"\(upstream.name)\", which is disabled; enable it, or remove the callback")
    }

    private mutating func checkKind(
        _ kind: String, at path: String, of upstream: GatewayConfiguration.UpstreamConfiguration, _ entry: Entry
    ) {
        guard let made = made(upstream, entry) else { return }
        let shown = ConfigurationNode.string(kind).shown
        guard made.traits.fanOuts[Kind(kind)] == nil else {
            problem("\(path).kind", "is \(shown), which is a fan-out; name a kind that is sent")
            return
        }
        let kinds = made.kinds.map(\.description)
        guard !kinds.contains(kind) else { return }
        problem("\(path).kind", "is \(shown), which \(entry.name) does not have; \(advice(for: kind, among: kinds))")
    }

    /// Nil if it has a problem of its own: it may then have other kinds than it is meant to have.
    func made(
        _ upstream: GatewayConfiguration.UpstreamConfiguration, _ entry: Entry
    ) -> (any PosternUpstream.Upstream)? {
        let own = keyPath(["upstreams", entry.name])
        guard !problems.contains(where: { $0.path.hasPrefix(own + ".") }) else { return nil }
        return try? entry.type?.make(upstream.name, upstream.values)
    }

    func advice(for kind: String, among kinds: [String]) -> String {
        nearestName(to: kind, among: kinds).map { "did you mean \"\($0)\"?" }
            ?? "allowed \(kinds.joined(separator: ", "))"
    }
}
