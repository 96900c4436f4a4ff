import PosternSimulatedDisk
import Testing

@testable import PosternStore

/// The store on a disk that fails, seed by seed.
@Suite struct StoreOnDiskTests {
    @Test(arguments: StoreTrial.Weather.allCases, 0..<8)
    func promises_areKept_whateverTheDiskDoes(weather: StoreTrial.Weather, block: Int) throws {
        for seed in block * 3 + 1...block * 3 + 3 {
            let trial = StoreTrial(seed: UInt64(seed), weather)
            #expect(throws: Never.self, "seed \(seed), \(weather)") { try trial.run() }
        }
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
