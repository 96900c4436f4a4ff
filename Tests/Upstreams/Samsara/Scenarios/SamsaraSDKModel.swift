import Foundation
package import PosternCore
package import PosternScenarios

/// The clients of Samsara: they keep the latest events, send all of them in one request, and forget them after a `202`
/// (the specification's "Buffer semantics in clients").
package struct SamsaraSDKModel: SDKModel {
    private enum Client: CaseIterable { case iOS, go, clojure }

    private struct Event {
        let entry: Expectations.Entry
        let text: String
    }
    private let client: Client
    /// Of the requests that its timers make at a time: iOS sets its timer up twice.
    private let timers: Int
    private let mostEvents: Int
    private let sources: [String]
    private let authorization: String
    private let reportsInvalid: Bool
    private var events: [Event] = []
    private var inFlight = 0
    private var requests = 0

    package init(_ device: SDKDevice, reportsInvalid: Bool = false) {
        client = device.random.pick(Client.allCases)
        timers = client == .iOS && device.random.chance(0.3) ? 2 : 1
        mostEvents = device.random.pick([5, 1000, 10_000])
        sources = (0..<2).map { "phone-\(device.number)-\($0)" }
        authorization = "Basic \(Data("sdk:\(device.key)".utf8).base64EncodedString())"
        self.reportsInvalid = reportsInvalid
    }

    package var isEmpty: Bool { events.isEmpty && inFlight == 0 }

    package mutating func use(_ stage: Stage, poison: Double) {
        for _ in 0..<(stage.random.chance(0.2) ? stage.random.from(2...6) : 1) {
            events.append(event(stage, poison: poison))
        }
        events = events.suffix(mostEvents)
    }

    private func event(_ stage: Stage, poison: Double) -> Event {
        let source = stage.random.pick(sources)
        let isInvalid = reportsInvalid && stage.random.chance(0.05)
        let entry = stage.beginOfSDK("event", lane: source, isPoison: isInvalid || stage.random.chance(poison))
        var members = [
            #""timestamp":\#(stage.now.milliseconds)"#, #""sourceId":"\#(source)""#, #""id":"\#(entry.mark)""#,
        ]
        if !isInvalid { members.append(#""eventName":"screen.shown""#) }
        switch stage.random.below(12) {
        case 0: members.append(#""number":1e400,"path":"\/a""#)
        case 1: members.append(#""text":"\ud800""#)
        case 2:
            // More than the platform's broker takes.
            members.append(#""text":"\#(String(repeating: "x", count: SamsaraScenarios.eventMaxBytes))""#)
            entry.isRejected = true
        default: break
        }
        if entry.isPoison, !isInvalid { members.append(#""poison":"clear""#) }
        if isInvalid { entry.isRejected = true }
        // If an operator retries it, it is sent after later ones.
        if entry.isRejected { entry.isExempt = true }
        let text = "{\(members.joined(separator: ","))}"
        entry.payload = text
        return Event(entry: entry, text: text)
    }

    package mutating func calls(at now: Timestamp, timerFired: Bool) -> [SDKCall] {
        guard timerFired, !events.isEmpty, client == .iOS || inFlight == 0 else { return [] }
        return (0..<timers).map { _ in
            (inFlight, requests) = (inFlight + 1, requests + 1)
            var call = SDKCall(
                requests, "/v1/events",
                headers: [
                    ("Authorization", authorization), ("Content-Type", "application/json"),
                    ("X-Samsara-publishedTimestamp", "\(now.milliseconds)"),
                ], body: "[\(events.map(\.text).joined(separator: ","))]", events.map(\.entry))
            call.isCompressed = client != .iOS
            return call
        }
    }

    package mutating func take(_ reply: SDKReply?, to call: SDKCall) -> SDKVerdict {
        inFlight -= 1
        switch reply?.status {
        case nil, 503: return .kept
        case 202:
            events.removeAll { event in call.entries.contains { $0 === event.entry } }
            return .accepted
        // Some clients take any 2xx for a success, and others this one alone.
        case let status?: return .unexpected("\(status) \(reply?.text ?? "")")
        }
    }
}
