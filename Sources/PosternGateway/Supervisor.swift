import PosternCore
import PosternProcess
import PosternThreads

/// The work of the main thread while the gateway runs: reloads the configuration on request, does what is done now and
/// then, such as loading renewed TLS files, and ends when the gateway has to stop.
final class Supervisor: Loop, @unchecked Sendable {
    // @unchecked: belongs to the thread that turns.
    let name = "postern"
    private let signals: Signals
    private let reload: () -> Void
    private let tasks: [Task]
    private let isOver: () -> Bool
    /// When each of the tasks is due.
    private var due: [MonotonicInstant]

    /// Work that is done at the start, after each reload, and then in each period.
    struct Task {
        let period: Duration
        let run: () -> Void
    }

    /// How often the TLS files are checked.
    static let certificatePeriod = Duration.seconds(10)

    /// - Parameter isOver: Whether the gateway has to stop without a signal; asked after each turn.
    init(
        _ signals: Signals, reload: @escaping () -> Void, tasks: [Task], isOver: @escaping () -> Bool = { false }
    ) {
        self.signals = signals
        self.reload = reload
        self.tasks = tasks
        self.isOver = isOver
        due = tasks.map { _ in .distantPast }
    }

    func turn(at now: MonotonicInstant) -> MonotonicInstant? {
        while let signal = signals.take() {
            if signal == .stop { return nil }
            reload()
            due = tasks.map { _ in now }
        }
        for (index, task) in tasks.enumerated() where now >= due[index] {
            task.run()
            due[index] = now + task.period
        }
        return isOver() ? nil : due.min() ?? .distantFuture
    }

    func wait(until deadline: MonotonicInstant) -> Bool { signals.wait(until: deadline) }
}
