import PosternCore

/// The bytes of a database file that SQLite does not use, which hold what was deleted: free pages, and in the others what
/// cells, or the end of a payload, do not fill. They are overwritten with zeros.
///
/// `secure_delete` does so only for what is deleted while it is on, and leaves copies behind when the cells of a page move. Here
/// the file is written past SQLite, which is safe as long as what is written is what neither SQLite nor a reader looks at: if the
/// write is torn, or a reader has the page, the bytes that count are the same. Format: https://www.sqlite.org/fileformat2.html.
///
/// The log has to be empty: what is in it would be moved over these pages later. Page numbers count from 1.
struct UnusedBytes {
    /// What a portion may cost: 256 pages, or correspondingly many steps along the payloads that they refer to.
    private static let costOfPortion = 2048
    private static let costOfPage = 8
    /// The page that SQLite's locks are on (1.4 on that page).
    private static let lockByte = 1 << 30

    private let file: FileDescriptor
    private let pageSize: Int
    /// The bytes of a page without those that are reserved for extensions.
    private let usable: Int
    private let pages: Int
    /// The free pages that list the others.
    private var trunks: Set<Int> = []
    /// The page of the pointer map that was read last.
    private var map: (page: Int, bytes: [UInt8]) = (0, [])

    /// Throws if the database has no pointer map. Every store that Postern has created has one.
    init(of file: FileDescriptor, pageSize: Int) throws {
        self.file = file
        self.pageSize = pageSize
        let header = try file.read(0..<100)
        guard header.integer(4, at: 52) > 0 else {
            throw StoreError.failed(detail: "the database has no pointer map, which shows what is unused")
        }
        usable = pageSize - Int(header[20])
        pages = header.integer(4, at: 28)
        var trunk = header.integer(4, at: 32)
        while trunk > 1, trunk <= pages, trunks.insert(trunk).inserted {
            trunk = try file.read(start(of: trunk)..<start(of: trunk) + 4).integer(4, at: 0)
        }
    }

    /// Overwrites a portion, from page `first` down, or from the last one. Returns the next page; 0 if there is none.
    ///
    /// Downwards, because SQLite moves pages only to a place further ahead (`incremental_vacuum`).
    mutating func overwrite(from first: Int?) throws(FileError) -> Int {
        var (page, cost) = (min(first ?? pages, pages), 0)
        while page > 0, cost < Self.costOfPortion {
            cost += try Self.costOfPage + overwrite(page)
            page -= 1
        }
        return page
    }

    private func start(of page: Int) -> Int { (page - 1) * pageSize }

    private func read(_ page: Int) throws(FileError) -> [UInt8] {
        try file.read(start(of: page)..<start(of: page) + pageSize)
    }

    private func overwrite(_ ranges: [Range<Int>], of bytes: [UInt8], in page: Int) throws(FileError) {
        let used = ranges.filter { range in bytes[range].contains { $0 != 0 } }
        guard !used.isEmpty else { return }
        var bytes = bytes
        for range in used { bytes.replaceSubrange(range, with: repeatElement(0, count: range.count)) }
        try file.write(bytes, at: start(of: page))
    }

    /// Returns what it cost besides the page itself.
    private mutating func overwrite(_ page: Int) throws(FileError) -> Int {
        switch try use(of: page) {
        case .free:
            let bytes = try read(page)
            // A trunk has the next one, a count, and that many pages.
            let kept = trunks.contains(page) ? min(8 + 4 * bytes.integer(4, at: 4), usable) : 0
            try overwrite([kept..<usable], of: bytes, in: page)
            return 0
        case .tree:
            let bytes = try read(page)
            guard let tree = TreePage(bytes, header: page == 1 ? 100 : 0, usable: usable) else { return 0 }
            try overwrite(tree.gaps, of: bytes, in: page)
            var cost = 0
            for rest in tree.rests { cost += try overwriteEnd(of: rest) }
            return cost
        // The end of a payload is overwritten with the page that has its begin.
        case .payload, .other: return 0
        }
    }

    private enum Use { case free, tree, payload, other }

    /// From the pointer map (1.8 on that page): a page of it, from page 2 on, has 5 bytes for each of the pages behind it.
    private mutating func use(of page: Int) throws(FileError) -> Use {
        guard page > 1 else { return .tree }
        let mapped = usable / 5 + 1
        var mapPage = (page - 2) / mapped * mapped + 2
        let lockPage = Self.lockByte / pageSize + 1
        if mapPage == lockPage { mapPage += 1 }
        guard page > mapPage, page != lockPage else { return .other }
        if map.page != mapPage { map = (mapPage, try read(mapPage)) }
        return switch map.bytes[5 * (page - mapPage - 1)] {
        case 1, 5: .tree
        case 2: .free
        case 3, 4: .payload
        default: .other
        }
    }

    /// Follows a payload to its last page. Returns the number of steps.
    private func overwriteEnd(of rest: TreePage.Rest) throws(FileError) -> Int {
        var (page, count, steps) = (rest.page, rest.count, 0)
        while count > usable - 4, page > 1, page <= pages {
            page = try file.read(start(of: page)..<start(of: page) + 4).integer(4, at: 0)
            (count, steps) = (count - (usable - 4), steps + 1)
        }
        guard page > 1, page <= pages else { return steps }
        try overwrite([4 + count..<usable], of: try read(page), in: page)
        return steps + Self.costOfPage
    }
}

/// A page of a table or an index (1.6 on that page).
private struct TreePage {
    /// Where nothing is.
    private(set) var gaps: [Range<Int>]
    /// What of payloads is in other pages.
    private(set) var rests: [Rest] = []

    struct Rest {
        /// The first page that has it.
        let page: Int
        let count: Int
    }

    /// Nil if the bytes are not such a page.
    init?(_ bytes: [UInt8], header: Int, usable: Int) {
        let (leafOfTable, insideTable, leafOfIndex, insideIndex): (UInt8, UInt8, UInt8, UInt8) = (13, 5, 10, 2)
        let type = bytes[header]
        guard [leafOfTable, insideTable, leafOfIndex, insideIndex].contains(type) else { return nil }
        let cells = header + (type == leafOfTable || type == leafOfIndex ? 8 : 12)
        let count = bytes.integer(2, at: header + 3)
        let content = bytes.integer(2, at: header + 5)
        let (gapStart, gapEnd) = (cells + 2 * count, content == 0 ? 65536 : content)
        guard gapStart <= gapEnd, gapEnd <= usable else { return nil }
        gaps = [gapStart..<gapEnd]
        var block = bytes.integer(2, at: header + 1)
        while block != 0 {
            guard block >= gapEnd, block + 4 <= usable else { return nil }
            let (next, size) = (bytes.integer(2, at: block), bytes.integer(2, at: block + 2))
            guard size >= 4, block + size <= usable, next == 0 || next > block else { return nil }
            gaps.append(block + 4..<block + size)
            block = next
        }
        guard type != insideTable else { return }
        for index in 0..<count {
            var at = bytes.integer(2, at: cells + 2 * index) + (type == insideIndex ? 4 : 0)
            guard let size = bytes.variableInteger(at: &at, before: usable),
                type != leafOfTable || bytes.variableInteger(at: &at, before: usable) != nil
            else { return nil }
            let most = type == leafOfTable ? usable - 35 : (usable - 12) * 64 / 255 - 23
            guard size > most else { continue }
            let least = (usable - 12) * 32 / 255 - 23
            let usual = least + (size - least) % (usable - 4)
            let local = usual <= most ? usual : least
            guard at + local + 4 <= usable else { return nil }
            rests.append(Rest(page: bytes.integer(4, at: at + local), count: size - local))
        }
    }
}

extension [UInt8] {
    /// A number of `count` bytes, the most significant first.
    fileprivate func integer(_ count: Int, at position: Int) -> Int {
        self[position..<position + count].reduce(0) { $0 << 8 | Int($1) }
    }

    /// Moves `position` behind the number. Nil if it does not end before `limit`.
    fileprivate func variableInteger(at position: inout Int, before limit: Int) -> Int? {
        var value = 0
        for count in 1...9 {
            guard position < limit else { return nil }
            let byte = Int(self[position])
            position += 1
            guard count < 9 else { return value << 8 | byte }
            value = value << 7 | byte & 0x7F
            if byte < 0x80 { return value }
        }
        return nil
    }
}
