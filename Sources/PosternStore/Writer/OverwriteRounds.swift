import PosternCore

/// The requests to overwrite what deletions have left in the medium. A round is for all that came before it, and is done in
/// portions, between commits. Belongs to the writer's thread.
struct OverwriteRounds {
    /// Gets false if a read held it up for longer than `patience`.
    typealias Completion = @Sendable (Result<Bool, StoreError>) -> Void

    private static let pause = Duration.milliseconds(50)
    /// How long a read may hold it up.
    private static let patience = Duration.seconds(30)

    private var current: [Completion] = []
    private var next: [Completion] = []
    /// Where the round goes on; nil if it has not begun.
    private var position: Int?
    private var dueAt = MonotonicInstant.distantPast
    private var isHeldUpSince: MonotonicInstant?

    mutating func add(_ completion: @escaping Completion) {
        if position == nil { current.append(completion) } else { next.append(completion) }
    }

    /// Does a portion if it is due. Returns when the next one is.
    mutating func advance(with writer: any StoreWriter, at now: MonotonicInstant) -> MonotonicInstant {
        guard !current.isEmpty else { return .distantFuture }
        guard now >= dueAt else { return dueAt }
        do throws(StoreError) {
            switch try writer.overwriteUnused(from: position) {
            case .more(let next): (position, dueAt, isHeldUpSince) = (next, now, nil)
            case .heldUp:
                let start = isHeldUpSince ?? now
                (dueAt, isHeldUpSince) = (now + Self.pause, start)
                if now - start >= Self.patience { end(with: .success(false)) }
            case .done: end(with: .success(true))
            }
        } catch {
            end(with: .failure(error))
        }
        return current.isEmpty ? .distantFuture : dueAt
    }

    /// Answers those of the current round.
    private mutating func end(with result: Result<Bool, StoreError>) {
        let ended = current
        self = OverwriteRounds(current: next)
        ended.forEach { $0(result) }
    }

    mutating func close() {
        for completion in current + next { completion(.failure(.closed)) }
        self = OverwriteRounds()
    }

    init() {}

    private init(current: [Completion]) { self.current = current }
}
