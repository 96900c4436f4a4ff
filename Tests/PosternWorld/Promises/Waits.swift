import Foundation
import PosternCore
import PosternDelivery
import PosternScenarios
import PosternTestKit

@testable import PosternGateway
@testable import PosternHTTP

/// Asks for messages that wait, as an operator would, from time to time: whatever waits has to say why.
final class Waits {
    static let pause = Duration.seconds(1800)
    /// An upstream may ask for an hour, and no other wait is longer, whatever the clock does.
    private static let longest = Duration.seconds(3700)
    private unowned let world: World
    private(set) var nextAt: MonotonicInstant
    private var looks = 0
    private let progress: Progress
    /// Messages that gave no reason when nothing was sent, and how many requests their upstream had had then.
    private var silent: [Int: Int] = [:]
    /// The life of the gateway in which they gave none.
    private weak var silentRun: World.Run?

    init(_ world: World) {
        self.world = world
        progress = Progress(world)
        nextAt = world.time.instant + Self.pause
    }

    func look() {
        nextAt = world.time.instant + Self.pause
        if silentRun !== world.run { silent = [:] }
        silentRun = world.run
        let open = world.expectations.entries.suffix(400).filter {
            !$0.isSettled && $0.ids.count == 1 && $0.arrivals == 0
        }
        for entry in open.prefix(4) + open.dropFirst(4).suffix(4) { ask(entry) }
        looks += 1
        if looks % 4 == 1 {
            // No secret is in any of these, either.
            Operator.post("/metrics", method: "GET", "", in: world)
            Operator.post("/v1/gateway", method: "GET", "", in: world)
            Operator.post("/v1/upstreams?include=history", method: "GET", "", in: world) { [weak self] response, text in
                if response.status == 200 { self?.checkBooks(text) }
            }
        }
        world.promises.checkSize()
        checkEnds()
        progress.look()
        world.rateCheck.look()
        world.credentials.look()
        world.holds.look()
    }

    /// Each accepted message is in exactly one state, whenever that is asked.
    private func checkBooks(_ text: String) {
        for part in text.split(separator: #""counts":{"#).dropFirst() {
            let members = part.prefix { $0 != "}" }
            let numbers = members.split(separator: ",").compactMap { $0.split(separator: ":").last.flatMap { Int($0) } }
            if numbers.count != 7 || numbers[0] != numbers[1...].reduce(0, +) {
                world.promises.fail("the counts of an upstream balance", "{\(members)}")
            }
        }
    }

    /// Whatever waits for a time waits for one that comes.
    private func checkEnds() {
        guard world.hasSeenClock else { return }
        for (type, worker, _) in world.run?.workers ?? [] {
            let snapshot = worker.snapshot
            for end in [snapshot.reopensAt] + snapshot.endpoints.map(\.until) {
                guard let end, end - world.time.now > Self.longest else { continue }
                world.promises.fail(
                    "no wait is longer than it may be", "\(type.name) waits for \(end - world.time.now)")
            }
        }
    }

    private func ask(_ entry: Expectations.Entry) {
        let post = Post(path: "/v1/messages/\(entry.ids[0])", headers: [], body: "", method: "GET", entries: [])
        world.run?.ingress.send(post.bytes) { [weak self] response in
            guard let self, let response else { return }
            world.promises.responded(response, to: post)
            judge(entry, String(decoding: response.body, as: UTF8.self))
        }
    }

    private func judge(_ entry: Expectations.Entry, _ text: String) {
        guard text.contains(#""state":"queued""#) else {
            entry.isSettled = true
            return
        }
        if let reason = member("waitingFor", of: text) {
            silent[entry.number] = nil
            if reason == "schedule", entry.notBefore == nil, !entry.mayBeCollected {
                world.promises.fail("whatever waits says why", "\(entry.mark) says schedule, and has none: \(text)")
            }
            return world.promises.coverage.visit("message waits: \(reason)")
        }
        guard let service = world.service(entry.upstream), let run = world.run, !run.network.isBusy(with: service),
            !world.weather.isExcuse, world.snapshot(of: entry.upstream) != nil
        else {
            silent[entry.number] = nil
            return
        }
        if silent[entry.number] == service.requests {
            world.promises.fail("whatever waits says why", "\(entry.mark), \(entry.ids[0]), gives no reason: \(text)")
        }
        silent[entry.number] = service.requests
    }

    private func member(_ name: String, of text: String) -> String? {
        text.range(of: "\"\(name)\":\"").map { String(text[$0.upperBound...].prefix { $0 != "\"" }) }
    }
}
