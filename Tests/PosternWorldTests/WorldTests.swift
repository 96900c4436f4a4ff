import PosternWorld
import Testing

@Suite struct WorldTests {
    /// Worlds that broke a promise once.
    static let found: [UInt64] = [41, 56]

    @Test(arguments: Array(1...20) + found) func promises_areKept_inTheWorldOfASeed(seed: UInt64) {
        let report = World(Plan(seed: seed)).simulate()
        if report.broken != nil { Issue.record("\(report.shrunk.explanation)") }
    }

    @Test func sameSeed_givesTheSameTrace() {
        let digests = (0..<2).map { _ in World(Plan(seed: 7)).simulate().digest }
        #expect(digests[0] == digests[1])
    }
}
