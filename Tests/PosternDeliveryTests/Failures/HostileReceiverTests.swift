import PosternCore
import PosternStore
import PosternTestKit
import PosternUpstream
import Synchronization
import Testing
import WebhookAdapter

@testable import PosternDelivery

/// A receiver that refuses some messages with statuses that seem to say that the credentials or the URL are wrong,
/// that has an endpoint which leads elsewhere, resets connections, and answers late. Which of them, and in which order,
/// is drawn from a seed.
@Suite(.timeLimit(.minutes(10))) struct HostileReceiverTests {
    private struct Sent {
        let id: MessageID
        let number: Int
        let lane: Int
        let isRefused: Bool
    }

    @Test(arguments: [UInt64](0...7) + [9, 18, 32, 34]) func others_areDelivered_andOnlyRefusedMessagesFail(
        seed: UInt64
    ) throws {
        var random = SplitMix64(state: seed)
        let isOrdered = Bool.random(using: &random)
        let batch = try #require(["none", "array", "ndjson"].randomElement(using: &random))
        let upstream = try UpstreamType.webhook.make(
            #require(UpstreamName("hook")),
            [
                "url": .text("http://hook"), "batch": .text(batch), "orderBy": .text(isOrdered ? "/lane" : ""),
                "kinds": .objects(["a": ["path": "/a"], "b": ["path": "/b"], "c": ["path": "/c"]]),
            ])
        let settings = DeliverySettings.with { $0.maxInFlight = random.next().isMultiple(of: 2) ? 1 : 4 }
        let harness = try DeliveryHarness(upstream, settings: settings)
        let receiver = Receiver(&random)
        harness.transport.answerAll { receiver.answer($0) }

        var (sent, misled): ([Sent], [MessageID]) = ([], [])
        func post(lane: Int, refusedWith status: Int? = nil, as kind: Kind) throws {
            let number = sent.count
            let refusal = status.map { #","refuse":\#($0)"# } ?? ""
            let id = try harness.post([#"{"n":\#(number),"lane":"\#(lane)"\#(refusal)}"#], as: kind)[0]
            sent.append(Sent(id: id, number: number, lane: lane, isRefused: status != nil))
        }
        /// Late responses come after some seconds.
        func run(for seconds: Int) throws {
            for _ in 0..<seconds {
                try harness.run(for: .seconds(1))
                if Int.random(in: 0..<4, using: &random) == 0 { try receiver.answerLate(harness) }
            }
        }

        // Poison comes at any place, also as the first or the last one, and in bursts.
        let count = 40
        var places = Set<Int>()
        while places.count < 4 { places.insert(Int.random(in: 0..<count, using: &random)) }
        for place in 0..<count {
            if Int.random(in: 0..<8, using: &random) == 0 { misled += try harness.post([#"{"lane":"c"}"#], as: "c") }
            let status = places.contains(place) ? Receiver.statuses.randomElement(using: &random) : nil
            try post(
                lane: Int.random(in: 0..<9, using: &random), refusedWith: status,
                as: Bool.random(using: &random) ? "a" : "b")
            if Int.random(in: 0..<10, using: &random) == 0 { try run(for: Int.random(in: 1...5, using: &random)) }
        }
        // Without new messages, a batch with a message that gets 500 is sent six times before it is halved, and what was
        // refused with others may wait for a slow probe.
        try run(for: 2 * 330)
        let blocked = Set(isOrdered ? sent.filter(\.isRefused).map(\.lane) : [])
        for message in sent where !message.isRefused && !blocked.contains(message.lane) {
            #expect(try harness.state(message.id) == .delivered, "\(message.number), \(batch)")
        }

        let refused = sent.filter(\.isRefused)
        for round in 0..<600 where try !refused.allSatisfy({ try harness.state($0.id) == .failed }) {
            for kind: Kind in ["a", "b"] { try post(lane: 1000 + round, as: kind) }
            try run(for: 20)
        }
        try run(for: 120)
        for message in sent {
            let state = try harness.state(message.id)
            #expect(state == (message.isRefused ? .failed : .delivered), "\(message.number), \(batch)")
        }
        #expect(try misled.allSatisfy { try harness.state($0) == .queued })
        #expect(try harness.outbox.audit().isBalanced)
        if isOrdered {
            let arrived = Dictionary(grouping: receiver.arrived) { number in sent[number].lane }
            #expect(arrived.values.allSatisfy { $0 == $0.sorted() })
        }
    }

    private final class Receiver: Sendable {
        static let statuses = [400, 401, 403, 404, 405, 406, 302, 407, 500]
        private let state: Mutex<(random: SplitMix64, arrived: [Int])>

        init(_ random: inout SplitMix64) { state = Mutex((SplitMix64(state: random.next()), [])) }

        /// The numbers of the messages in the order in which each was taken for the first time.
        var arrived: [Int] { state.withLock { $0.arrived } }

        func answer(_ request: UpstreamRequest) -> TransferResult? {
            switch state.withLock({ Int.random(in: 0..<20, using: &$0.random) }) {
            case 0, 1: nil
            case 2: .reset
            default: take(request)
            }
        }

        func answerLate(_ harness: DeliveryHarness) throws {
            while let request = harness.transport.openRequests.first { try harness.answer(take(request)) }
        }

        private func take(_ request: UpstreamRequest) -> TransferResult {
            if request.url.hasSuffix("/c") {
                return .status(301, headers: [("Location", "http://elsewhere/c")])
            }
            if let refusal = request.text.firstMatch(of: /"refuse":([0-9]+)/), let status = Int(refusal.1) {
                return .status(status)
            }
            let numbers = request.text.matches(of: /"n":([0-9]+)/).compactMap { Int($0.1) }
            state.withLock { state in state.arrived += numbers.filter { !state.arrived.contains($0) } }
            return .status(200)
        }
    }
}
