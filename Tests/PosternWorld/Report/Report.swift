/// What became of one world.
public struct Report: Sendable {
    public let plan: Plan
    /// The promise, and how it was broken.
    public let broken: String?
    public let digest: UInt64
    public let steps: Int
    public let hours: Double
    public let lastSteps: [String]
    public let coverage: Coverage
    public let messages: Int
    public let requests: Int
    public let runs: Int
    /// The most that the store had on the disk.
    public let storeBytes: Int
}
