import CLinux
import Logging
import PosternCore

/// When the memory that a burst has left behind is given back to the system. A value: the figures are arguments.
///
/// glibc keeps free blocks for later ones. Those of closed connections lie among others in the heaps of several threads, so
/// it returns none of them by itself.
struct FreeMemory {
    /// What is resident and not in use, after the latest release or when it was least since: stacks, globals, and pages of
    /// which a part is in use.
    private var unavoidable: Int?

    /// How much more may be kept: what a gateway under load frees and uses again.
    static let allowance = 4 << 20
    static let period = Duration.seconds(5)

    /// - Parameters:
    ///   - resident: Anonymous memory, in bytes.
    ///   - inUse: Bytes of the heap.
    mutating func isWorthReleasing(resident: Int, inUse: Int) -> Bool {
        let free = max(0, resident - inUse)
        let least = min(unavoidable ?? free, free)
        unavoidable = least
        return free - least > Self.allowance
    }

    /// Nothing of what is still resident can be given back before more is freed.
    mutating func wasReleased(resident: Int, inUse: Int) { unavoidable = max(0, resident - inUse) }

    /// Gives memory back if it is worth it. Takes some milliseconds if so, during which threads may wait for memory.
    mutating func release(at time: any TimeSource, _ logger: Logger) {
        let before = postern_resident_memory()
        guard isWorthReleasing(resident: before, inUse: postern_heap_in_use()) else { return }
        let start = time.instant
        postern_release_free_pages()
        let duration = time.instant - start
        let after = postern_resident_memory()
        wasReleased(resident: after, inUse: postern_heap_in_use())
        logger.debug(
            "free memory given back",
            metadata: [
                "bytes": .stringConvertible(max(0, before - after)), "residentBytes": .stringConvertible(after),
                "durationMs": .stringConvertible(duration.inMilliseconds),
            ])
    }
}
