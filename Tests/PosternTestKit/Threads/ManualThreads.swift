import Glibc
public import PosternCore
public import PosternThreads

/// Drives loops on the thread of the test, in virtual time. A loop turns when the test says so, or when the test's thread
/// waits for something; then what is due turns in the order of its start, or as `choose` decides, and time goes on when
/// nothing is due.
public final class ManualThreads: Threads, @unchecked Sendable {
    // @unchecked: for the thread that made it only, which `checkThread` makes sure of.
    public let time: ManualTime
    private let owner = pthread_self()
    private var loops: [Driven] = []

    /// A decision about what happens next, for a test that tries other orders.
    public enum Choice {
        /// The loop at this index of those that are due runs.
        case turn(Int)
        /// No loop runs for this time, as if the processor were busy.
        case pass(Duration)
    }
    /// Decides among loops that are due, by their number, when the test's thread waits. Nil: the one that was started
    /// first.
    public var choose: ((Int) -> Choice)?
    private var turned: [String] = []

    public init(time: ManualTime = ManualTime()) { self.time = time }

    private final class Driven: RunningLoop, @unchecked Sendable {
        let name: String
        /// Nil once it has ended or been abandoned, so that nothing keeps what it worked for.
        var loop: (any Loop)?
        let threads: ManualThreads
        /// Nil once it has ended.
        var next: MonotonicInstant? = .distantPast
        var hasBegun = false
        var isTurning = false

        init(_ loop: any Loop, on threads: ManualThreads) {
            name = loop.name
            self.loop = loop
            self.threads = threads
        }

        var mayTurn: Bool { next != nil && !isTurning && loop != nil }

        func join() {
            while mayTurn { threads.goOn(until: .distantFuture) }
        }
    }

    // MARK: Threads

    public var instant: MonotonicInstant { time.instant }

    public func start(_ loop: any Loop) -> any RunningLoop {
        checkThread()
        let driven = Driven(loop, on: self)
        loops.append(driven)
        return driven
    }

    public func wait<Element>(for inbox: Inbox<Element>, until deadline: MonotonicInstant) {
        checkThread()
        while !inbox.wait(until: .distantPast), instant < deadline { goOn(until: deadline) }
    }

    public func idleTime(_ usual: Duration) -> Duration { usual * idleFactor }

    // MARK: The test

    /// How much less often than usual idle loops turn, so that quiet hours cost little.
    public var idleFactor = 1

    /// The loops that have been started and have not ended.
    public var names: [String] { loops.map(\.name) }

    /// The loops that have something to do now.
    public var dueNames: [String] { loops.filter(isDue).map(\.name) }

    /// Runs one iteration of a loop, whether it is due or not.
    public func turn(_ name: String) {
        guard let driven = loops.first(where: { $0.name == name }) else {
            preconditionFailure("\(name) is not running")
        }
        turn(driven)
    }

    /// Runs the loops that are due until none is.
    public func turnAll() {
        var turns = 0
        while let driven = loops.first(where: isDue) {
            turn(driven)
            turns += 1
            precondition(turns < 1_000_000, "\(driven.name) turns without end")
        }
    }

    /// Advances time, and runs the loops that become due meanwhile.
    public func advance(by span: Duration) {
        let end = instant + span
        turnAll()
        while instant < end {
            goOn(until: end)
            turnAll()
        }
    }

    /// Runs no loop again, and does not end any: as if the process had been killed.
    public func abandon() {
        for driven in loops { driven.loop = nil }
        loops = []
    }

    // MARK: One step

    /// Turns one loop that is due. If there is none, time goes on to the next that will be, or to `deadline`.
    public func goOn(until deadline: MonotonicInstant) {
        let now = instant
        var due: [Driven] = []
        var next = deadline
        for driven in loops where driven.mayTurn {
            if isDue(driven, at: now) { due.append(driven) } else { next = min(next, driven.next ?? deadline) }
        }
        if let first = due.first {
            switch choose?(due.count) {
            case nil: return turn(first)
            case .turn(let index): return turn(due[index])
            case .pass(let span): return time.advance(by: span)
            }
        }
        precondition(next < .distantFuture, "nothing can end this wait")
        if next > now { time.advance(by: next - now) }
    }

    /// The loops that have turned since the last call.
    public func takeTurned() -> [String] {
        defer { turned.removeAll(keepingCapacity: true) }
        return turned
    }

    private func isDue(_ driven: Driven) -> Bool { isDue(driven, at: instant) }

    private func isDue(_ driven: Driven, at now: MonotonicInstant) -> Bool {
        guard driven.mayTurn, let next = driven.next, let loop = driven.loop else { return false }
        return next <= now || loop.wait(until: .distantPast)
    }

    private func turn(_ driven: Driven) {
        checkThread()
        guard let loop = driven.loop, driven.mayTurn else {
            preconditionFailure("\(driven.name) is in a turn, or has ended")
        }
        if !turned.contains(driven.name) { turned.append(driven.name) }
        driven.isTurning = true
        if !driven.hasBegun {
            driven.hasBegun = true
            loop.begin()
        }
        driven.next = loop.turn(at: instant)
        driven.isTurning = false
        guard driven.next == nil else { return }
        driven.loop = nil
        loops.removeAll { $0 === driven }
    }

    private func checkThread() {
        precondition(pthread_equal(owner, pthread_self()) != 0, "only the test's own thread drives these loops")
    }
}
