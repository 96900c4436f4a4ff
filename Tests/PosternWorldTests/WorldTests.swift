import PosternWorld
import Testing

@Suite struct WorldTests {
    /// Worlds in which a bit of the log flips, or of the store.
    static let damaged: [UInt64] = [31, 39]

    /// Few: a change of the world changes what each seed makes, so that none is worth more than another. `make simulate`
    /// tries as many as it is told.
    @Test(arguments: Array(1...10) + damaged) func promises_areKept_inTheWorldOfASeed(seed: UInt64) {
        let report = World(Plan(seed: seed)).simulate()
        if report.broken != nil { Issue.record("\(report.shrunk.explanation)") }
    }

    /// The world can fail: what was not synced is missed after a power cut.
    @Test func missingSyncs_areFound_byTheWorld() {
        #expect((1...4).contains { World(Plan(seed: $0).withoutSyncs()).simulate().broken != nil })
    }

    @Test func sameSeed_givesTheSameTrace() {
        let digests = (0..<2).map { _ in World(Plan(seed: 7)).simulate().digest }
        #expect(digests[0] == digests[1])
    }
}
