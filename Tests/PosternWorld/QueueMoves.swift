import PosternCore
import PosternDelivery
import PosternScenarios
import PosternTestKit
import PosternThreads
import PosternUpstream

@testable import PosternGateway
@testable import PosternStore

/// Queues that pass from one worker to another, as if another gateway took them over: the worker ends, the queue is
/// dropped, and after a while a new worker adopts it. Meanwhile everything else goes on.
final class QueueMoves {
    fileprivate struct Move {
        let type: any TypeScenarios
        let run: World.Run
        let random: SeededRandom
        /// Whether the requests under way are given up.
        let isHurried: Bool
        var step: Step
        var upstream: UpstreamName? { UpstreamName(type.name) }
    }

    fileprivate enum Step {
        /// The worker ends as soon as one of its requests is under way, and at this time in any case.
        case begins(MonotonicInstant)
        /// The requests of the worker end.
        case drains
        /// The queue has no owner until then.
        case isFree(until: MonotonicInstant)
        case isOver
    }

    private unowned let world: World
    private var moves: [Move] = []
    /// How many queues were adopted while the gateway was running.
    private(set) var count = 0

    init(_ world: World) { self.world = world }

    func begin(_ type: any TypeScenarios, _ random: SeededRandom) {
        guard let run = world.run, world.snapshot(of: type.name) != nil,
            !moves.contains(where: { $0.type.name == type.name && $0.run === run })
        else { return }
        let isHurried = random.chance(0.5)
        let latest = world.time.instant + (isHurried || random.chance(0.5) ? .seconds(3600) : .zero)
        moves.append(Move(type: type, run: run, random: random, isHurried: isHurried, step: .begins(latest)))
    }

    /// Returns when this has to be called again.
    func look() -> MonotonicInstant {
        guard !moves.isEmpty else { return .distantFuture }
        // A new process has adopted all queues.
        moves.removeAll { $0.run !== world.run }
        for index in moves.indices {
            var move = moves[index]
            goOn(&move)
            guard world.run === move.run, world.promises.broken == nil else { return .distantFuture }
            moves[index] = move
        }
        moves.removeAll { if case .isOver = $0.step { true } else { false } }
        return moves.map(\.nextAt).min() ?? .distantFuture
    }

    private func goOn(_ move: inout Move) {
        let now = world.time.instant
        switch move.step {
        case .begins(let latest):
            if now >= latest || move.run.network.isSending(to: move.type.name) { release(&move) }
        case .drains:
            move.run.gateway.endRetired()
            world.noticeStop()
            guard world.run === move.run, let name = move.upstream,
                !move.run.gateway.workerGroup.isRetiring(name)
            else { return }
            move.step = .isFree(until: now + move.random.span(0...(move.random.chance(0.5) ? 3000 : 5)))
        case .isFree(let until): if now >= until { adopt(&move) }
        case .isOver: break
        }
    }

    private func release(_ move: inout Move) {
        guard let name = move.upstream, world.snapshot(of: move.type.name) != nil else { return move.step = .isOver }
        let (run, isBusy) = (move.run, move.run.network.isSending(to: move.type.name))
        world.history.record("the worker of \(name) ends\(move.isHurried ? " at once" : "")")
        world.endpoints.disturbed()
        run.gateway.release(name, isHurried: move.isHurried)
        world.noticeStop()
        run.findWorkers()
        guard world.run === run else { return }
        move.step = .drains
        guard move.isHurried else { return }
        run.network.abort(to: move.type.name)
        guard world.run === run else { return }
        if isBusy { world.promises.coverage.visit("queue: dropped with requests under way") }
        world.promises.gaveUp(move.type.name)
        // What the worker has sent without messages is over by then.
        move.step = .isFree(until: world.time.instant + move.random.span(120...3000))
    }

    private func adopt(_ move: inout Move) {
        guard let name = move.upstream else { return }
        let run = move.run
        do {
            try run.gateway.adopt(name)
        } catch {
            world.noticeStop()
            guard world.run === run else { return }
            if !world.weather.isExcuse { world.promises.fail("a queue can be adopted", "\(name): \(error)") }
            move.step = .isFree(until: world.time.instant + .seconds(60))
            return
        }
        world.noticeStop()
        guard world.run === run else { return }
        count += 1
        world.history.record("another worker of \(name) begins")
        world.promises.coverage.visit("queue: adopted again")
        run.findWorkers()
        world.promises.adopted(move.type)
        move.step = .isOver
    }
}

extension QueueMoves.Move {
    fileprivate var nextAt: MonotonicInstant {
        switch step {
        case .begins(let instant), .isFree(let instant): instant
        case .drains, .isOver: .distantFuture
        }
    }
}
