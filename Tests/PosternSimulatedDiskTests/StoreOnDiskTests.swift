import Foundation
import PosternSimulatedDisk
import PosternStoreTrial
import Testing

/// The store on a disk that fails, seed by seed.
@Suite struct StoreOnDiskTests {
    /// Of `POSTERN_DISK_SEEDS`, such as 1...400.
    private static let seeds = {
        let ends = (ProcessInfo.processInfo.environment["POSTERN_DISK_SEEDS"] ?? "1...16").split(separator: ".")
        return Array(ends.compactMap { UInt64($0) }.min()!...ends.compactMap { UInt64($0) }.max()!)
    }()

    @Test(arguments: StoreTrial.Weather.allCases, seeds)
    func promises_areKept_whateverTheDiskDoes(weather: StoreTrial.Weather, seed: UInt64) throws {
        try StoreTrial(seed: seed, weather).run()
    }

    /// The trials can fail: without syncs they find a loss.
    @Test func missingSyncs_areFound() {
        let found = (1...20).filter { seed in
            let trial = StoreTrial(seed: UInt64(seed), .calm)
            trial.disk.faults.secretlyLyingSyncs = 1
            return (try? trial.run()) == nil
        }
        #expect(found.count >= 10)
    }

    @Test func sameSeed_givesTheSameTrial() throws {
        func digest(_ seed: UInt64) -> [UInt64] {
            let trial = StoreTrial(seed: seed, .errors)
            try? trial.run()
            return [trial.disk.digest, UInt64(trial.accepted), UInt64(trial.restarts)]
        }
        #expect(digest(7) == digest(7))
    }
}
