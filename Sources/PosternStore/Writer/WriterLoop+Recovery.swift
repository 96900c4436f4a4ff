import Logging
import PosternCore

/// The writer's recovery after a failed commit, and its reserve of disk space.
extension WriterLoop {
    /// Nothing of the transaction was stored. If the disk is full, deliveries and deletions continue and messages are
    /// rejected. If the disk failed, everything is rejected until it has been checked. Otherwise, each job is retried
    /// alone, so that only the faulty one fails.
    func recover(_ jobs: [OutboxWriter.Job], from cause: any Error) {
        let error = StoreError(cause, path: outbox.path)
        switch DiskFailure(cause, systemError: sql.systemError) {
        case .full: makeDo(with: jobs, after: error)
        case .broken: fail(jobs, cause: cause, error)
        case nil: separate(jobs, after: error)
        }
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
        answer(jobs[0], with: error)
    }

    func answer(_ job: OutboxWriter.Job, with error: StoreError) {
        switch job {
        case .append(_, _, let completion): completion(.failure(.store(error)))
        case .change(_, let failed): failed(error)
        case .stop: break
        }
    }

    // MARK: A full disk

    private func makeDo(with jobs: [OutboxWriter.Job], after error: StoreError) {
        let wasNotFull = !outbox.isFull
        let full = error.isFull ? error : .full(detail: "\(error)")
        outbox.becameFull(full)
        // A read may have kept the log from being reset, so that it took the room of this commit.
        let wasUsed = checkpoints.framesInLog > 0
        checkpoint(.restart)
        let hasMoreRoom = wasNotFull || wasUsed && checkpoints.framesInLog == 0
        if wasNotFull { releasePages() }
        var changes: [OutboxWriter.Job] = []
        // Queues that drop their oldest messages get one more try, at the cost of those.
        var evicting: [OutboxWriter.Job] = []
        var rejected: [OutboxWriter.Job] = []
        for job in jobs {
            switch job {
            case .append(let messages, _, _) where wasNotFull && mayMakeRoom(for: messages): evicting.append(job)
            case .append: rejected.append(job)
            case .change: changes.append(job)
            case .stop: break
            }
        }
        // What the failed commit left in the log must not become valid if the process is killed.
        let isUndone = rejected.isEmpty || undo() || !isCompleteInLog()
        for job in rejected {
            answer(job, with: isUndone ? full : .unknown(detail: "\(error)"))
        }
        if changes.count == jobs.count, !hasMoreRoom {
            separate(changes, after: full)
        } else if !changes.isEmpty {
            commit(changes)
        }
        for job in evicting { commit([job]) }
    }

    /// Frees the pages that are reserved inside the database.
    func releasePages() { _ = write { try $0.run("DELETE FROM reserve") } }

    /// Reserves the pages again, unless they are reserved.
    func takePages() {
        let isTaken = write { sql in
            guard try !sql.exists("SELECT 1 FROM reserve") else { return }
            try sql.run("INSERT INTO reserve VALUES (zeroblob(?))", DiskReserve.bytesInside)
            try self.allocatePages()
        }
        if !isTaken { outbox.becameFull(.full(detail: "the disk has no room for the reserve")) }
    }

    /// Allocates blocks for the pages that a commit is about to refer to, and for the index of the next one. Without
    /// them, a checkpoint might have no room, the log could not be reset, and nothing could be written any more.
    func allocatePages() throws {
        let maxOfACommit = outbox.isFull ? 2000 : 16_000
        try outbox.logIndex.makeRoom(forFrames: checkpoints.framesInLog + maxOfACommit)
        let pages = try sql.value("PRAGMA page_count", as: Int.self) ?? 0
        let needed = pages * StoreFile.pageSize
        guard needed > allocated else { return }
        do {
            let step = (needed / (1 << 20) + 1) << 20
            try outbox.lock.descriptor.allocate(allocated..<step)
            allocated = step
        } catch {
            try outbox.lock.descriptor.allocate(allocated..<needed)
            allocated = needed
        }
    }

    // MARK: A disk that fails

    /// After a failed sync, the kernel may have dropped what it could not write, and will not report that again:
    /// nothing may be committed on top of it (https://lwn.net/Articles/752063/).
    private func fail(_ jobs: [OutboxWriter.Job], cause: any Error, _ error: StoreError) {
        let isUndone = undo()
        outbox.becameBroken(error)
        for job in jobs { answer(job, with: isUndone ? error : .unknown(detail: "\(error)")) }
    }

    /// Overwrites what a failed commit left in the log by a small commit. Returns whether that is on disk. SQLite omits
    /// a change that changes nothing, so a counter is increased.
    private func undo() -> Bool { write { try $0.run("UPDATE store SET undone = undone + 1") } }

    /// Whether the log holds a whole commit behind the last one that succeeded, which a later start would find. Also true if
    /// that cannot be read. A commit that failed for lack of room is not whole if its last page was not written.
    private func isCompleteInLog() -> Bool {
        guard let head = outbox.logIndex.head,
            let bytes = try? Files.read(outbox.path + "-wal", for: outbox.path)
        else { return true }
        return WriteAheadLog(bytes, pageSize: StoreFile.pageSize).holdsCommit(after: head)
    }

    /// Writes every page of the log to the file again, syncs both, and empties the log: what a failed commit left is
    /// gone, and what earlier ones wrote was rewritten.
    ///
    /// Then the file is checked as the disk has it: the kernel's pages of it are dropped, and a connection that is
    /// opened for this reads everything. Readers are opened again, too. The writer's connection stays open: its only
    /// state are cached pages, which it drops. Closing it would release the locks that exclude a second process, and
    /// prove nothing more.
    func checkAfterFailure() {
        do {
            guard try checkpoints.run(.truncate, on: sql) else { return }
            try sql.run("PRAGMA shrink_memory")
            outbox.readers.renew()
            outbox.lock.descriptor.dropCachedPages()
            outbox.reserve.allocateLog()
            if try IntegrityCheck.isSound(outbox.path), undo() { outbox.isWorkingAgain() }
        } catch {
            outbox.logger.debug("disk still fails", metadata: ["error": "\(error)"])
        }
    }

    // MARK: Checkpoints

    func checkpoint(_ mode: SQLiteConnection.CheckpointMode) {
        do {
            let isComplete = try checkpoints.run(mode, on: sql)
            // A complete checkpoint truncates the file to its pages.
            if isComplete { allocated = min(allocated, outbox.lock.descriptor.size) }
            outbox.recordLog(frames: isComplete ? 0 : checkpoints.framesInLog)
        } catch {
            switch DiskFailure(error, systemError: sql.systemError) {
            case .full: outbox.becameFull(.full(detail: "no room for a checkpoint"))
            case .broken, nil: outbox.becameBroken(StoreError(error, path: outbox.path))
            }
        }
        outbox.checkThatFilesAreInPlace()
    }

    /// Runs a small transaction of the writer itself. Returns whether it was committed.
    private func write(_ body: (SQL) throws -> Void) -> Bool {
        do {
            try sql.transaction(.write) { try body(sql) }
            return true
        } catch {
            return false
        }
    }
}
