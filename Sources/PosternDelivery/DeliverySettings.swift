public import PosternCore

/// How one upstream is delivered to: the configuration's `delivery`, with the upstream's own values over it.
public struct DeliverySettings: Sendable, Equatable {
    /// Requests at a time.
    public var maxInFlight: Int
    public var batchMaxMessages: Int
    public var batchMaxBytes: Int
    /// How long messages may collect before a batch that is not full goes out.
    public var batchMaxWait: Duration
    public var retry: RetryPolicy
    /// Doubtful answers in a row after which a message that was sent alone fails.
    public var suspectTries: Int
    /// How long these last at least if nothing else could be sent in between.
    public var suspectPeriod: Duration
    /// Messages older than this are not sent any more; zero lets them grow old.
    public var expireAfter: Duration
    public var transfer: TransferOptions

    public init(
        maxInFlight: Int = 4, batchMaxMessages: Int = 500, batchMaxBytes: Int = 1 << 20,
        batchMaxWait: Duration = .milliseconds(50), retry: RetryPolicy = RetryPolicy(), suspectTries: Int = 5,
        suspectPeriod: Duration = .seconds(1800), expireAfter: Duration = .zero,
        transfer: TransferOptions = TransferOptions()
    ) {
        self.maxInFlight = maxInFlight
        self.batchMaxMessages = batchMaxMessages
        self.batchMaxBytes = batchMaxBytes
        self.batchMaxWait = batchMaxWait
        self.retry = retry
        self.suspectTries = suspectTries
        self.suspectPeriod = suspectPeriod
        self.expireAfter = expireAfter
        self.transfer = transfer
    }

    var rules: DeliveryMachine.Rules {
        .init(retry: retry, suspectTries: suspectTries, suspectPeriod: suspectPeriod)
    }
    var limits: BatchLimits { BatchLimits(maxMessages: batchMaxMessages, maxBytes: batchMaxBytes) }
}
