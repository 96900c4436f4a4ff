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
    /// The groups, in lower case, that the platform did not know, and when it said so.
    private let missing = Mutex<[String: Timestamp]>([:])

    private static let missingLife = Duration.seconds(60)
    private static let mostMissing = 1000

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

    func note(_ group: String, isMissing: Bool, at now: Timestamp) {
        missing.withLock { missing in
            if missing.count >= Self.mostMissing { missing = [:] }
            missing[group.lowercased()] = isMissing ? now : nil
        }
    }

    /// Whether the platform said within the last minute that there is no such group.
    func isMissing(_ group: String, at now: Timestamp) -> Bool {
        missing.withLock { $0[group.lowercased()].map { now < $0 + Self.missingLife } ?? false }
    }
}
