import Foundation
import PosternCore
import PosternSimulatedDisk
import PosternTestKit
import Testing

@testable import PosternStore

/// What is done once in the life of a store, by a process that ends inside any of the calls which change something on the
/// disk.
@Suite struct InterruptionTests {
    enum End: CaseIterable {
        case kill, powerCut

        func strike(_ disk: SimulatedDisk) {
            switch self {
            case .kill: disk.kill()
            case .powerCut: disk.powerCut()
            }
        }
    }

    /// The call inside which a process ends: the first of its kind, or a later one.
    struct Place {
        let call: DiskCall
        let number: Int

        static let changes: [DiskCall] = [.write, .truncate, .allocate, .sync, .delete, .rename, .makeFolder]
    }

    /// Calls `body` with one place after the other. If it returns false, the process has come to its end before that call,
    /// and the next kind of call follows. Of the writes, which are many, every 31st is a place.
    /// - Returns: The number of places.
    @discardableResult private func forEachPlace(_ body: (Place) throws -> Bool) rethrows -> Int {
        var count = 0
        for call in Place.changes {
            var number = 0
            while try body(Place(call: call, number: number)) {
                count += 1
                number += call == .write ? 31 : 1
            }
        }
        return count
    }

    @Test(arguments: End.allCases) func firstStart_leavesAStoreThatStarts_atAnyInterruption(end: End) throws {
        let places = try forEachPlace { place in
            let store = DiskStore(seed: place.number)
            guard store.isInterrupted(at: place, { _ = try store.run { try $0.append() } }) else { return false }
            end.strike(store.disk)
            let found = try store.contents()
            #expect(found.findings == [] && found.ids.count <= 1, "\(place)")
            store.disk.kill()
            #expect(try store.run { try $0.append() } > found.ids.max() ?? MessageID(rawValue: 0), "\(place)")
            return true
        }
        #expect(places > 20)
    }

    // MARK: Restore

    private static let (saved, former) = (2, 5)

    /// A store with a backup that has some of its messages. Its process was killed, so the latest are only in the log.
    private func killedStore() throws -> DiskStore {
        let store = DiskStore(seed: 1)
        try store.run { process in
            try process.append(Self.saved)
            _ = try StoreBackup(bytesPerSecond: 0).run(of: store.path, to: store.backup)
            try process.append(Self.former - Self.saved)
        }
        store.disk.kill()
        return store
    }

    /// The store after restores of which each has ended at its place. Nil if one came to its end.
    private func store(restoredUpTo places: [Place], _ end: End) throws -> DiskStore? {
        let store = try killedStore()
        for place in places {
            guard store.isInterrupted(at: place, { try store.restore() }) else { return nil }
            end.strike(store.disk)
        }
        return store
    }

    /// Whether a gateway starts, which is with the former store or the restored one. If it does not, it says why.
    private func starts(_ store: DiskStore) throws -> Bool {
        do {
            let found = try store.contents()
            #expect(found.findings == [] && [Self.saved, Self.former].contains(found.ids.count))
            return true
        } catch StoreError.corrupt(_, "a restore was interrupted") {
            return false
        }
    }

    private func checkRepeated(_ store: DiskStore) throws {
        store.disk.kill()
        try store.restore()
        let names = try FileManager.default.contentsOfDirectory(atPath: store.disk.folder)
        let kept = names.filter { $0.wholeMatch(of: #/store\.sqlite\.replaced-\d+/#) != nil }
        let counts = kept.compactMap { try? StoreVerification.run(store.disk.path($0)).payloads }
        #expect(counts.contains(Self.former), "\(names)")
        #expect(try store.contents().ids.count == Self.saved)
    }

    /// Also if it ends where nothing starts, and the second restore ends as well.
    @Test(arguments: End.allCases) func restore_leavesAStoreOrIsRepeated_atAnyInterruption(end: End) throws {
        var torn: [Place] = []
        let places = try forEachPlace { place in
            guard let store = try store(restoredUpTo: [place], end) else { return false }
            if try !starts(store) { torn.append(place) }
            try checkRepeated(store)
            return true
        }
        #expect(places > 20)
        let first = try #require(torn.first)
        let laterPlaces = try forEachPlace { second in
            guard let store = try store(restoredUpTo: [first, second], end) else { return false }
            _ = try starts(store)
            try checkRepeated(store)
            return true
        }
        #expect(laterPlaces > 20)
    }
}

extension InterruptionTests {
    /// The process goes on, so it may clean up; but nothing that a later start needs.
    @Test func restoreThatFails_leavesAStore_orStartsNothing() throws {
        let places = try forEachPlace { place in
            let store = try closedStore()
            store.disk.strike(.ioError, on: place.call, after: place.number)
            try? store.restore()
            let isLast = store.disk.strikesLeft > 0
            store.disk.endStrikes()
            guard !isLast else { return false }
            _ = try starts(store)
            try checkRepeated(store)
            return true
        }
        #expect(places > 20)
    }

    /// As `killedStore`, but stopped, so that nothing is in a log.
    private func closedStore() throws -> DiskStore {
        let store = try killedStore()
        try store.run(closing: true) { _ in }
        return store
    }
}

extension DiskStore {
    fileprivate var path: String { disk.path("store.sqlite") }
    fileprivate var backup: String { disk.path("backup.sqlite") }

    /// Whether the process ends at `place` in what it does.
    fileprivate func isInterrupted(at place: InterruptionTests.Place, _ work: () throws -> Void) -> Bool {
        disk.strike(.stop, on: place.call, after: place.number)
        try? work()
        defer { disk.endStrikes() }
        return disk.strikesLeft == 0
    }

    /// A second later than what was restored before.
    fileprivate func restore() throws {
        time.advance(by: .seconds(1))
        _ = try StoreRestore.run(backup, to: path, at: time.now)
    }
}
