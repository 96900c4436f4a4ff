import PosternWorld
import Testing

@Suite struct WorldTests {
    /// Worlds that broke a promise once.
    static let found: [UInt64] = [
        4, 14, 21, 22, 41, 56, 63, 132, 144, 178, 198, 211, 228, 241, 249, 379, 1024, 1083, 1428, 1702, 1847, 3147,
        30087, 30226, 30556, 31377, 42891, 42906, 106034, 201923,
    ]
    /// Worlds in which a bit of the log flips, or of the store.
    static let damaged: [UInt64] = [31, 39]

    @Test(arguments: Array(Set(1...20).union(found + damaged)).sorted()) func promises_areKept_inTheWorldOfASeed(
        seed: UInt64
    ) {
        let report = World(Plan(seed: seed)).simulate()
        if report.broken != nil { Issue.record("\(report.shrunk.explanation)") }
    }

    /// The world can fail: what was not synced is missed after a power cut.
    @Test func missingSyncs_areFound_byTheWorld() {
        let broken = (1...4).compactMap { World(Plan(seed: $0).withoutSyncs()).simulate().broken }
        #expect(!broken.isEmpty)
    }

    @Test func sameSeed_givesTheSameTrace() {
        let digests = (0..<2).map { _ in World(Plan(seed: 7)).simulate().digest }
        #expect(digests[0] == digests[1])
    }
}
