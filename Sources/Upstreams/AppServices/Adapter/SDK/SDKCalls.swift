import PosternCore
import PosternUpstream
import Synchronization

/// A response of the platform that ends a message, for a call of the SDK that waits for it. Any thread.
final class AwaitedResponse: Sendable {
    struct Found: Sendable {
        let response: UpstreamResponse
        /// The step that it answers.
        let step: Step
    }

    private struct State {
        var id: MessageID?
        var found: Found?
        var whenFound: (@Sendable (Found) -> Void)?
    }
    private let state = Mutex(State())

    /// The message; nil until it is stored.
    var id: MessageID? {
        get { state.withLock { $0.id } }
        set { state.withLock { $0.id = newValue } }
    }

    fileprivate func set(_ found: Found) {
        let body = state.withLock { state in
            state.found = found
            return state.whenFound.take()
        }
        body?(found)
    }

    /// Calls `body` with the response: at once if it is there already.
    func whenFound(_ body: @escaping @Sendable (Found) -> Void) {
        let found = state.withLock { state in
            if state.found == nil { state.whenFound = body }
            return state.found
        }
        if let found { body(found) }
    }
}

/// What is kept in memory for the calls of the SDK. Any thread.
final class SDKCalls: Sendable {
    private let awaited = Mutex<[MessageID: AwaitedResponse]>([:])
    /// What the platform has said of a group.
    private struct Group {
        /// Its `uuid`.
        var id: String?
        /// When it said that there is none.
        var missing: Timestamp?
    }
    /// By their names in lower case.
    private let groups = Mutex<[String: Group]>([:])

    private static let missingLife = Duration.seconds(60)
    private static let mostGroups = 1000

    /// Call it from the completion of what stores the message, so that no response is missed.
    func await(_ response: AwaitedResponse, to id: MessageID) {
        response.id = id
        awaited.withLock { $0[id] = response }
    }

    func forget(_ response: AwaitedResponse) {
        if let id = response.id { awaited.withLock { $0[id] = nil } }
    }

    /// The response that ends the message, or makes it wait for another token, is recorded.
    func answer(_ id: MessageID, with found: AwaitedResponse.Found) {
        awaited.withLock { $0.removeValue(forKey: id) }?.set(found)
    }

    func note(_ group: String, id: String? = nil, isMissing: Bool, at now: Timestamp) {
        groups.withLock { groups in
            if groups.count >= Self.mostGroups { groups = [:] }
            let name = group.lowercased()
            groups[name] = isMissing ? Group(missing: now) : Group(id: id ?? groups[name]?.id)
        }
    }

    /// The platform's `uuid` of the group, if it has told it since the start.
    func id(ofGroup group: String) -> String? { groups.withLock { $0[group.lowercased()]?.id } }

    /// Whether the platform said within the last minute that there is no such group.
    func isMissing(_ group: String, at now: Timestamp) -> Bool {
        groups.withLock { $0[group.lowercased()]?.missing.map { now < $0 + Self.missingLife } ?? false }
    }
}
