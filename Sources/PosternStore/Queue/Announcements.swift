import PosternCore
import PosternUpstream

/// The committed messages of a queue that no claim has examined yet, as far as the writer has announced them. A plain
/// value; the mailbox holds it.
///
/// Announcements name ids. As long as these ascend, the commits do, too. A claim reads a snapshot of the store, and the
/// writer announces a commit after it, so a claim can see rows before their announcement: an announcement up to an id that
/// a claim has already reached is dropped, and what a claim has reached is removed. Whatever the order of the two, the
/// rest is exactly what no claim has examined, and the first arrival after an idle time finds the value empty.
///
/// Where several writers commit, an announcement can follow one with later ids, or a claim that has seen later ids. Claims
/// may have passed such a late arrival, so they have to go back to it. They recognize what they have seen already.
struct Announcements {
    /// Commits that were announced together, or joined because there were too many.
    private struct Record {
        var newest: MessageID
        var messages: Int
        var bytes: Int
        /// When the first of them arrived.
        let since: MonotonicInstant
    }

    /// The maximum number of records. Beyond that, the newest two are joined, which shortens the time for which
    /// messages are collected, and never extends it.
    static let recordLimit = 64

    private var records: [Record] = []
    /// Every id up to this one has been examined.
    private(set) var reached = MessageID(rawValue: 0)

    /// The newest id that was announced; ids up to it are in every later snapshot.
    private(set) var newest = MessageID(rawValue: 0)

    /// Whether ids may be committed after later ones.
    private let hasOtherWriters: Bool
    /// No claim has examined an id after this one.
    private var frontier = MessageID(rawValue: 0)
    /// The oldest message that was announced since the current scan began; only with other writers.
    private var firstSinceScan: MessageID?

    init(newest: MessageID = MessageID(rawValue: 0), hasOtherWriters: Bool = false) {
        (self.newest, self.hasOtherWriters) = (newest, hasOtherWriters)
    }

    var isEmpty: Bool { records.isEmpty }

    /// What an announcement means for the worker.
    enum Announcement: Equatable {
        /// `wakes`: whether the worker has to be woken, for the first arrival after an idle time, and when a full batch
        /// has been collected.
        case collected(wakes: Bool)
        /// Later ids were announced or examined before: claims have to go back to the first of these.
        case late
    }

    /// Announces the messages of a commit.
    mutating func add(_ notice: AppendNotice, at instant: MonotonicInstant, limits: BatchLimits) -> Announcement {
        if hasOtherWriters, notice.messages > 0 { firstSinceScan = min(firstSinceScan ?? notice.first, notice.first) }
        if notice.first <= newest || hasOtherWriters && notice.first <= frontier {
            newest = max(newest, notice.newest)
            return notice.messages > 0 ? .late : .collected(wakes: false)
        }
        newest = notice.newest
        guard notice.messages > 0, newest > reached else { return .collected(wakes: false) }
        let (wasEmpty, wasFull) = (isEmpty, isFull(limits))
        if records.count == Self.recordLimit {
            records[records.count - 1].newest = newest
            records[records.count - 1].messages += notice.messages
            records[records.count - 1].bytes += notice.bytes
        } else {
            records.append(
                Record(newest: newest, messages: notice.messages, bytes: notice.bytes, since: instant))
        }
        return .collected(wakes: wasEmpty || (!wasFull && isFull(limits)))
    }

    /// A claim begins to read: what is announced after this may be missing from its snapshot.
    mutating func beginScan() { firstSinceScan = nil }

    /// The claim has examined no row after `id`. Returns the first message that was announced meanwhile, if it may have been
    /// passed.
    mutating func endScan(through id: MessageID) -> MessageID? {
        guard hasOtherWriters else { return nil }
        frontier = max(frontier, id)
        return firstSinceScan.flatMap { $0 <= id ? $0 : nil }
    }

    /// A claim has examined every row up to `id`; these were `count` messages of `size` payload bytes.
    mutating func looked(through id: MessageID, count: Int, size: Int) {
        guard id > reached else { return }
        reached = id
        var (count, size) = (count, size)
        let open = records.firstIndex { $0.newest > id } ?? records.count
        for record in records[..<open] {
            count -= record.messages
            size -= record.bytes
        }
        records.removeFirst(open)
        guard var first = records.first else { return }
        // Rows that an earlier run left are counted too, so that only a part may be of this record.
        count = min(max(count, 0), first.messages - 1)
        size = min(max(size, 0), first.bytes)
        first.messages -= count
        first.bytes -= size
        records[0] = first
    }

    /// When the messages have been collected for `wait`, or at once if they fill a batch. Nil if there are none.
    func readyAt(after wait: Duration, limits: BatchLimits) -> MonotonicInstant? {
        guard let first = records.first else { return nil }
        return isFull(limits) ? first.since : first.since + wait
    }

    private func isFull(_ limits: BatchLimits) -> Bool {
        records.reduce(0) { $0 + $1.messages } >= limits.maxMessages
            || records.reduce(0) { $0 + $1.bytes } >= limits.maxBytes
    }
}

/// When the next scheduled message, or the next lane, is due, as far as is known. A plain value; the mailbox holds
/// it.
struct NextDue {
    /// `scanNow` until the worker has looked; `never` if only an announcement can change that.
    private(set) var moment = Self.scanNow

    static let scanNow = Timestamp(milliseconds: 0)

    init(_ moment: Timestamp = scanNow) { self.moment = moment }

    /// Announces that something is due at `moment`. Returns whether the worker has to be woken: it is earlier than any
    /// known time, or the worker has not looked since the last wake-up.
    mutating func announce(_ moment: Timestamp) -> Bool {
        defer { self.moment = min(self.moment, moment) }
        return moment < self.moment || self.moment == Self.scanNow
    }

    /// A claim begins to read: what is announced after this may be missing from its snapshot. Returns the known time.
    mutating func beginScan() -> Timestamp {
        defer { moment = .never }
        return moment
    }

    /// The claim has found that the next one is due at `found`.
    mutating func endScan(_ found: Timestamp) { moment = min(moment, found) }
}
