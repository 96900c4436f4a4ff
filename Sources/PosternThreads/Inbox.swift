public import Glibc
public import PosternCore

/// Passes elements from any thread to one thread that blocks until there are some.
///
/// Bounded by what its users can have outstanding, so it never refuses. Any thread may `put`; one thread takes.
///
/// Inlinable, so that the module of its user compiles it for the elements: looking up their type costs as much again.
public final class Inbox<Element: Sendable>: @unchecked Sendable {
    // @unchecked: `elements`, `isWaiting` and `isNudged` are touched with `mutex` held; the pointers never change.
    @usableFromInline let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    @usableFromInline let arrival = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
    @usableFromInline var elements: [Element] = []
    @usableFromInline var isWaiting = false
    @usableFromInline var isNudged = false

    public init() {
        pthread_mutex_init(mutex, nil)
        var attributes = pthread_condattr_t()
        pthread_condattr_init(&attributes)
        // The deadline of a wait must not move when the clock is set.
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
        pthread_cond_init(arrival, &attributes)
        pthread_condattr_destroy(&attributes)
    }

    deinit {
        pthread_cond_destroy(arrival)
        pthread_mutex_destroy(mutex)
        arrival.deallocate()
        mutex.deallocate()
    }

    /// Adds an element and wakes the waiting thread. Never blocks for long.
    @inlinable public func put(_ element: Element) {
        pthread_mutex_lock(mutex)
        elements.append(element)
        wakeLocked()
        pthread_mutex_unlock(mutex)
    }

    /// Wakes the waiting thread without adding an element.
    @inlinable public func nudge() {
        pthread_mutex_lock(mutex)
        isNudged = true
        wakeLocked()
        pthread_mutex_unlock(mutex)
    }

    @inlinable func wakeLocked() {
        guard isWaiting else { return }
        isWaiting = false
        pthread_cond_signal(arrival)
    }

    /// Whether the inbox is empty at the moment.
    @inlinable public var isEmpty: Bool {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return elements.isEmpty
    }

    /// Takes all elements, oldest first, without waiting.
    @inlinable public func takeAll() -> [Element] {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        isNudged = false
        return exchangeLocked()
    }

    /// Waits until there is an element, a nudge, or the machine's monotonic clock reaches `deadline`; then takes all
    /// elements. Nil means no deadline.
    @inlinable public func takeAll(waitingUntil deadline: MonotonicInstant?) -> [Element] {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        _ = waitLocked(until: deadline ?? .distantFuture)
        isNudged = false
        return exchangeLocked()
    }

    /// Waits in the same way and takes nothing; a nudge is remembered until the next take. Returns whether there is an
    /// element or was a nudge.
    @inlinable public func wait(until deadline: MonotonicInstant) -> Bool {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return waitLocked(until: deadline)
    }

    @inlinable func waitLocked(until deadline: MonotonicInstant) -> Bool {
        while elements.isEmpty, !isNudged {
            guard deadline > .distantPast else { return false }
            isWaiting = true
            defer { isWaiting = false }
            guard deadline < .distantFuture else {
                pthread_cond_wait(arrival, mutex)
                continue
            }
            var time = timespec()
            time.tv_sec = Int(deadline.nanoseconds / 1_000_000_000)
            time.tv_nsec = Int(deadline.nanoseconds % 1_000_000_000)
            if pthread_cond_timedwait(arrival, mutex, &time) != 0 { break }
        }
        return !elements.isEmpty || isNudged
    }

    @inlinable func exchangeLocked() -> [Element] {
        guard !elements.isEmpty else { return [] }
        var taken: [Element] = []
        swap(&taken, &elements)
        return taken
    }
}
