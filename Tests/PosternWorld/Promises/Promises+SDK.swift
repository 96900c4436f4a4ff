import PosternCore
import PosternScenarios
import PosternStore
import PosternUpstream

@testable import PosternGateway
@testable import PosternHTTP

/// What the gateway promises to the SDKs of the platforms. Their answers name no messages, so these are found by their marks.
extension Promises {
    /// Of the latest messages, how many may be looked at. Others are stored while an answer is on its way.
    private static let latest = 400

    /// Any answer, in the form of the platform.
    func answered(_ response: HTTPResponse, to call: SDKCall, of upstream: String) {
        let text = String(decoding: response.body, as: UTF8.self)
        checkSecrets(text, in: "an answer to an SDK of \(upstream)")
        guard response.headers.contains(where: { $0.value.hasBytes(of: "problem+json") }) else { return }
        fail("an SDK gets what its platform would answer", "\(upstream) \(call.path): \(text)")
    }

    /// What the SDK forgets, because it was told that it is accepted.
    func acceptedOfSDK(_ entries: [Expectations.Entry], _ upstream: String) {
        guard let run = world.run, !entries.isEmpty else { return }
        let stored = storedOfSDK(upstream, run)
        for entry in entries {
            (entry.isForgottenBySDK, entry.refusals) = (true, 0)
            let records = stored[entry.number] ?? []
            // Its platform has answered it, unless it is there.
            if !records.isEmpty { entry.isProxied = false }
            for record in records where !entry.ids.contains(record.id) { add(record, to: entry) }
            coverage.visit("message: of an SDK")
            guard !hasTrace(entry), !entry.isWaived, !isForgotten(entry) else { continue }
            fail("what an SDK is told is accepted is stored", "\(entry.mark), of \(upstream), is not there")
        }
    }

    /// Whether it is stored, or its upstream has it. What was delivered has no payload any more by which it could be found.
    private func hasTrace(_ entry: Expectations.Entry) -> Bool {
        !entry.ids.isEmpty || entry.arrivals > 0 || entry.wasSent && !entry.leavesMark
    }

    private func add(_ record: MessageRecord, to entry: Expectations.Entry) {
        own(record.id, entry)
        if entry.isKnownAgain, !entry.isWaived, let first = entry.ids.first {
            fail("a repeat is not stored again", "\(entry.mark) is stored as \(first), and as \(record.id)")
        }
        entry.ids.append(record.id)
        checkOrigin(of: record, entry)
        guard entry.isRejected, !entry.isWaived else { return }
        coverage.visit("message: failed when it was accepted")
        // An operator may have retried it already.
        guard record.state != .failed || record.attempts > 0, !isRequeued(entry) else { return }
        fail("what is refused is stored as failed", "\(entry.mark), \(record.id), is \(record.state.name)")
    }

    /// The latest messages that SDKs have posted, by the numbers of their entries.
    private func storedOfSDK(_ upstream: String, _ run: World.Run) -> [Int: [MessageRecord]] {
        let filter = MessageFilter(upstream: UpstreamName(upstream))
        let found = world.weather.quietly {
            try? run.gateway.outbox.messages(filter, order: .newest, after: nil, limit: Self.latest, payload: true)
        }
        var records: [Int: [MessageRecord]] = [:]
        for record in found?.messages ?? [] where record.isFromSDK && record.replayOf == nil {
            for entry in world.expectations.entries(in: record.payload ?? []) where record.kind == Kind(entry.kind) {
                records[entry.number, default: []].append(record)
            }
        }
        return records
    }

    /// At the end: what SDKs have forgotten has arrived, or has a record that says what became of it.
    func checkForgottenBySDKs() {
        for entry in world.expectations.entries
        where entry.isForgottenBySDK && !entry.isWaived && !hasTrace(entry) {
            guard !isForgotten(entry) else { continue }
            fail("what an SDK is told is accepted is stored", "\(entry.mark), of \(entry.upstream), is gone")
        }
        checkOrderOfCalls()
        if let mismatch = world.devices?.mismatch {
            fail("an app's calls leave its platform as if it had always been there", mismatch)
        }
        if let rest = world.devices?.descriptionOfRest {
            fail("an SDK gets rid of what it has once the faults have ended", rest)
        }
    }

    /// What an app has called one after the other arrives in that order, queued or not.
    private func checkOrderOfCalls() {
        var latest: [String: Expectations.Entry] = [:]
        for entry in world.expectations.entries
        where entry.isForgottenBySDK && entry.lane != nil && mayHaveBeenProxied(entry) && entry.unanswered == 0 {
            guard !entry.isExempt, !entry.isWaived, !entry.wasRequeued, let arrival = entry.firstArrival else {
                continue
            }
            let former = latest.updateValue(entry, forKey: "\(entry.upstream) \(entry.lane ?? "")")
            guard let former, former.firstArrival ?? 0 > arrival else { continue }
            return fail("an app's calls keep their order", "\(entry.mark) overtook \(former.mark)")
        }
    }

    private func mayHaveBeenProxied(_ entry: Expectations.Entry) -> Bool {
        world.service(entry.upstream)?.type.traits.contains(.answersCalls) ?? false
    }
}
