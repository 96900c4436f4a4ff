import PosternCore

/// Who is told what after a failed commit.
extension CommitLoop {
    /// Nothing of the transaction counts as stored. If there was no room, deliveries and deletions continue and messages are
    /// rejected. If the medium failed, everything is rejected until it has been checked. Otherwise, each job is retried
    /// alone, so that only the faulty one fails.
    ///
    /// Returns false if all jobs are to be done again; none was answered.
    func recover(_ jobs: [OutboxWriter.Job], from cause: any Error) -> Bool {
        let error = outbox.engine.error(cause)
        let wasFull = outbox.isFull
        switch writer.recover(from: cause) {
        case .full(let hasMoreRoom): handleFullDisk(jobs, after: error, wasFull: wasFull, hasMoreRoom: hasMoreRoom)
        case .broken(let isUndone): reject(jobs, because: error, isUndone: isUndone)
        case .other: separate(jobs, after: error)
        case .again: return false
        }
        return true
    }

    private func separate(_ jobs: [OutboxWriter.Job], after error: StoreError) {
        guard jobs.count == 1 else {
            for job in jobs { commit([job]) }
            return
        }
        if error.isFull, mayStoreCallbacks, !(outbox.callbacks ?? []).isEmpty {
            // A settlement does not fail because of its events.
            mayStoreCallbacks = false
            defer { mayStoreCallbacks = true }
            return commit(jobs)
        }
        outbox.report(error)
        reject(jobs, because: error)
    }

    /// Answers jobs of a failed commit that are not tried again. Before they are told that nothing was stored, what a
    /// commit without enough room has left is undone.
    private func reject(_ jobs: [OutboxWriter.Job], because error: StoreError, isUndone: Bool? = nil) {
        guard !jobs.isEmpty else { return }
        let isUndone = isUndone ?? (!error.isFull || writer.undoFailedCommit())
        for job in jobs { answer(job, with: isUndone ? error : error.asUnknown) }
    }

    func answer(_ job: OutboxWriter.Job, with error: StoreError) {
        switch job {
        case .append(_, _, _, let completion): completion(.failure(.store(error)))
        case .change(_, let failed): failed(error)
        case .overwriteUnused(let completion): completion(.failure(error))
        case .stop: break
        }
    }

    private func handleFullDisk(_ jobs: [OutboxWriter.Job], after error: StoreError, wasFull: Bool, hasMoreRoom: Bool) {
        var changes: [OutboxWriter.Job] = []
        // Queues that drop their oldest messages get one more try, at the cost of those.
        var evicting: [OutboxWriter.Job] = []
        var rejected: [OutboxWriter.Job] = []
        for job in jobs {
            switch job {
            case .append(let messages, _, _, _) where !wasFull && mayMakeRoom(for: messages): evicting.append(job)
            case .append: rejected.append(job)
            case .change: changes.append(job)
            case .overwriteUnused, .stop: break
            }
        }
        reject(rejected, because: error.asFull)
        if changes.count == jobs.count, !hasMoreRoom {
            separate(changes, after: error.asFull)
        } else if !changes.isEmpty {
            commit(changes)
        }
        for job in evicting { commit([job]) }
    }
}
