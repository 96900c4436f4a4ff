import Glibc
import PosternCore

/// The write-ahead log of a store that was not closed, examined before SQLite recovers it.
///
/// SQLite ends its recovery at the first frame that is not intact, which is right for a torn tail and wrong for damage:
/// every commit is synced before the next one is written, so a frame that is not intact although a later commit
/// *follows* was damaged after its commit was answered. The index in shared memory, which remains after a kill,
/// contains the number of committed frames, so damage to the last commit is detected, too. Format:
/// https://www.sqlite.org/fileformat2.html#walformat and https://www.sqlite.org/walformat.html.
struct WriteAheadLog {
    private let bytes: [UInt8]
    /// The head of the index in shared memory, if this run of the machine wrote it.
    private let index: WALIndexHead?
    private let pageSize: Int
    private let isHeaderIntact: Bool
    /// Frames up to the end of the last commit that recovery finds.
    private(set) var committed = 0
    /// The first frame that is not intact, counted from 0.
    private var firstBad = 0

    private static let headerSize = 32
    private static let frameHeaderSize = 24
    /// The bytes of a log with so many frames.
    static func size(ofFrames count: Int, pageSize: Int) -> Int { headerSize + count * (frameHeaderSize + pageSize) }
    private var frameSize: Int { Self.frameHeaderSize + pageSize }
    private var frames: Int { max(0, (bytes.count - Self.headerSize) / frameSize) }

    /// The page size of the database, for a log whose header is not intact.
    init(_ bytes: [UInt8], index: [UInt8]? = nil, pageSize: Int) {
        self.bytes = bytes
        self.pageSize = pageSize
        self.index = index.flatMap(WALIndexHead.init)
        isHeaderIntact =
            bytes.count >= Self.headerSize && bytes.bigEndian(at: 0) & ~1 == 0x377F_0682
            && bytes.bigEndian(at: 8) == UInt32(truncatingIfNeeded: pageSize)
            && Self.checksum(of: bytes, 0..<24, isBigEndian: bytes.bigEndian(at: 0) & 1 == 1)
                == (bytes.bigEndian(at: 24), bytes.bigEndian(at: 28))
        guard isHeaderIntact else { return }
        while firstBad < frames, isIntact(firstBad) {
            firstBad += 1
            if isCommit(firstBad - 1) { committed = firstBad }
        }
    }

    // MARK: Frames

    private func offset(_ frame: Int) -> Int { Self.headerSize + frame * frameSize }
    private var isBigEndian: Bool { bytes.bigEndian(at: 0) & 1 == 1 }
    private func isCommit(_ frame: Int) -> Bool { bytes.bigEndian(at: offset(frame) + 4) != 0 }
    private func hasSalt(_ frame: Int) -> Bool { bytes[offset(frame) + 8..<offset(frame) + 16] == bytes[16..<24] }

    private static let sectorSize = 512

    /// Whether commit mark and salt share a sector, so that a power cut cannot separate them. Otherwise the mark may be
    /// one of an earlier log.
    private func isAtomicWrite(_ frame: Int) -> Bool {
        let start = offset(frame)
        return isIntact(frame) || (start + 4) / Self.sectorSize == (start + 8) / Self.sectorSize
    }

    private func checksum(of frame: Int, after seed: (UInt32, UInt32)) -> (UInt32, UInt32) {
        let start = offset(frame)
        let head = Self.checksum(of: bytes, start..<start + 8, isBigEndian: isBigEndian, after: seed)
        return Self.checksum(
            of: bytes, start + Self.frameHeaderSize..<start + frameSize, isBigEndian: isBigEndian, after: head)
    }

    /// The checksum before a frame: the checksums form a chain.
    private func seed(of frame: Int) -> (UInt32, UInt32) {
        let start = frame == 0 ? 24 : offset(frame - 1) + 16
        return (bytes.bigEndian(at: start), bytes.bigEndian(at: start + 4))
    }

    /// Whether a frame belongs to this log and follows from the frame before it.
    private func isIntact(_ frame: Int) -> Bool {
        let start = offset(frame)
        return hasSalt(frame)
            && checksum(of: frame, after: seed(of: frame))
                == (bytes.bigEndian(at: start + 16), bytes.bigEndian(at: start + 20))
    }

    /// The frames that were committed although recovery would not reach them; nil if there are none.
    private var lost: Int? {
        if let index, index.committed > committed, index.isMatched(by: bytes.prefix(24)) {
            return min(index.committed, frames)
        }
        guard isHeaderIntact, firstBad < frames else { return nil }
        // A later commit follows if a commit of this log has a successor in the chain.
        var last: Int?
        for frame in firstBad..<frames - 1 where hasSalt(frame) && isCommit(frame) && isAtomicWrite(frame) {
            if last != nil || isIntact(frame + 1) { last = frame }
        }
        guard let last else { return nil }
        // What follows the last of them is intact or torn; its own commit, if there is one, counts.
        let end = (last + 1..<frames).prefix { isIntact($0) }.last { isCommit($0) }
        return (end ?? last) + 1
    }

    /// Whether the log contains only zeros.
    private var isBlank: Bool {
        bytes.withUnsafeBytes { buffer in
            guard let start = buffer.baseAddress, !buffer.isEmpty else { return true }
            return buffer[0] == 0 && memcmp(start, start + 1, buffer.count - 1) == 0
        }
    }

    /// The damage; nil if recovery finds every commit.
    var damage: String? {
        if let index, index.committed > index.backfilled, isBlank {
            return "the write-ahead log is gone, with \(index.committed - index.backfilled) pages of answered commits"
        }
        guard let lost else {
            return isHeaderIntact || !hasForeignFrames
                ? nil : "the header of the write-ahead log is damaged"
        }
        return "the write-ahead log is damaged at frame \(firstBad + 1); \(lost - committed) pages of answered commits "
            + "are behind it"
    }

    /// Whether consecutive frames follow a header that is not intact.
    private var hasForeignFrames: Bool {
        guard frames > 1 else { return false }
        let salt = bytes[offset(0) + 8..<offset(0) + 16]
        return bytes[offset(1) + 8..<offset(1) + 16] == salt && salt.contains { $0 != 0 }
    }

    /// Whether a commit follows the last one that `head` counts. The log may still begin with the header of an earlier one,
    /// of which nothing is missing in the database.
    func holdsCommit(after head: WALIndexHead) -> Bool {
        head.isMatched(by: bytes.prefix(24)) && committed > head.committed
    }

    /// The log with every commit that was answered. Salts and checksums are rewritten; pages are not changed.
    var repaired: [UInt8] {
        var log = bytes
        if !isHeaderIntact, frames > 0 {
            let salt = Array(bytes[offset(0) + 8..<offset(0) + 16])
            log.setBigEndian(0x377F_0682, at: 0)
            log.setBigEndian(3_007_000, at: 4)
            log.setBigEndian(UInt32(truncatingIfNeeded: pageSize), at: 8)
            log.replaceSubrange(16..<24, with: salt)
            log.setChecksum(Self.checksum(of: log, 0..<24, isBigEndian: false), at: 24)
        }
        let isBigEndian = log.bigEndian(at: 0) & 1 == 1
        let salt = Array(log[16..<24])
        let end = lost ?? (0..<frames).last { log[offset($0) + 8..<offset($0) + 16].elementsEqual(salt) }.map { $0 + 1 }
        var sum = (log.bigEndian(at: 24), log.bigEndian(at: 28))
        for frame in 0..<(end ?? 0) {
            let start = offset(frame)
            log.replaceSubrange(start + 8..<start + 16, with: salt)
            if frame + 1 == end, log.bigEndian(at: start + 4) == 0, let index {
                log.setBigEndian(index.pages, at: start + 4)
            }
            sum = Self.checksum(of: log, start..<start + 8, isBigEndian: isBigEndian, after: sum)
            sum = Self.checksum(
                of: log, start + Self.frameHeaderSize..<start + frameSize, isBigEndian: isBigEndian, after: sum)
            log.setChecksum(sum, at: start + 16)
        }
        return Array(log.prefix(offset(end ?? 0)))
    }

    // MARK: Checksums

    /// SQLite's checksum over pairs of words. The length is a multiple of 8.
    static func checksum(
        of bytes: [UInt8], _ range: Range<Int>, isBigEndian: Bool, after seed: (UInt32, UInt32) = (0, 0)
    ) -> (UInt32, UInt32) {
        bytes.withUnsafeBytes { buffer in
            var (first, second) = seed
            var position = range.lowerBound
            while position < range.upperBound {
                let one = buffer.loadUnaligned(fromByteOffset: position, as: UInt32.self)
                let other = buffer.loadUnaligned(fromByteOffset: position + 4, as: UInt32.self)
                first &+= (isBigEndian ? one.bigEndian : one.littleEndian) &+ second
                second &+= (isBigEndian ? other.bigEndian : other.littleEndian) &+ first
                position += 8
            }
            return (first, second)
        }
    }
}

/// The head of the log's index in shared memory: how far the log was committed when the process ended.
struct WALIndexHead {
    let committed: Int
    /// Frames that a checkpoint has moved into the database.
    let backfilled: Int
    /// Pages of the database after the last commit.
    let pages: UInt32
    private let salt: [UInt8]

    static let size = 136
    static let pagesOffset = 20
    static let backfilledOffset = 96

    /// Nil if the head is not intact: it is written twice, and both copies have to agree.
    init?(_ bytes: [UInt8]) {
        func native(_ offset: Int) -> UInt32 {
            bytes.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: offset, as: UInt32.self) }
        }
        guard bytes.count >= Self.size, bytes[0..<48] == bytes[48..<96], native(0) == 3_007_000, bytes[12] == 1,
            WriteAheadLog.checksum(of: bytes, 0..<40, isBigEndian: UInt32(1).bigEndian == 1)
                == (native(40), native(44))
        else { return nil }
        committed = Int(native(16))
        pages = native(Self.pagesOffset)
        salt = Array(bytes[32..<40])
        backfilled = Int(native(Self.backfilledOffset))
    }

    /// Whether it belongs to the log that begins with `header`.
    func isMatched(by header: ArraySlice<UInt8>) -> Bool { header.count >= 24 && header[16..<24].elementsEqual(salt) }
}

extension [UInt8] {
    fileprivate func bigEndian(at offset: Int) -> UInt32 {
        withUnsafeBytes { UInt32(bigEndian: $0.loadUnaligned(fromByteOffset: offset, as: UInt32.self)) }
    }

    fileprivate mutating func setBigEndian(_ value: UInt32, at offset: Int) {
        withUnsafeMutableBytes { $0.storeBytes(of: value.bigEndian, toByteOffset: offset, as: UInt32.self) }
    }

    fileprivate mutating func setChecksum(_ sum: (UInt32, UInt32), at offset: Int) {
        setBigEndian(sum.0, at: offset)
        setBigEndian(sum.1, at: offset + 4)
    }
}
