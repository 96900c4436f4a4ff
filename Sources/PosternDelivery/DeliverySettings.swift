public import Logging
public import PosternCore
public import PosternStore
public import PosternUpstream

/// How messages are delivered to one upstream: the configuration's `delivery`, with the upstream's overrides.
public struct DeliverySettings: Sendable, Equatable {
    /// The maximum number of concurrent requests.
    public var maxInFlight = 4
    /// 1 to 10,000; a type may have a lower limit or its own default.
    public var batchMaxMessages = 500
    /// The maximum size of a request before compression.
    public var batchMaxBytes = 1 << 20
    /// How long messages are collected before a batch that is not full is sent.
    public var batchMaxWait = Duration.milliseconds(50)
    /// The backoff of batches and of circuits.
    public var retry = RetryPolicy()
    /// The number of doubtful responses in a row after which a message that was sent alone fails.
    var suspectTries = 5
    /// The time that these have to span if nothing else could be sent in between.
    var suspectPeriod = Duration.seconds(1800)
    /// How fast requests are sent.
    var pace = Pace.Limits()
    /// When an endpoint that rejects most messages is held.
    var rejectionGuard = RejectionGuard.Limits(share: 0.5, window: 100)
    /// By what messages take turns.
    public var fairBy = FairBy.caller
    /// The age at which messages expire; zero means never.
    public var expireAfter = Duration.zero
    /// How long a message may be due before callbacks tell it.
    public var queueOld = Duration.seconds(900)
    /// Timeouts and TLS of upstream requests.
    public var transfer = TransferOptions()
    /// The level of the log lines about the upstream; nil means that of the gateway.
    public var logLevel: Logger.Level?
    /// Whether the log contains what responses say, which may repeat payloads.
    public var logsAnswers = false

    public init() {}

    var limits: BatchLimits { BatchLimits(maxMessages: batchMaxMessages, maxBytes: batchMaxBytes) }
}

extension DeliverySettings: SettingsSection {
    /// The settings under `delivery`.
    public static let fields: [SettingField<Self>] = [
        .integer("maxInFlight", 1...256, \.maxInFlight, "Requests to one upstream at a time."),
        .number(
            "maxRequestsPerSecond", 0...100_000, \.pace.requests,
            "Requests to one upstream in a second, evenly spaced; 0: no limit."),
        .number(
            "maxMessagesPerSecond", 0...1_000_000, \.pace.messages,
            "Messages to one upstream in a second; 0: no limit. A request carries at most what one second permits."),
        .bool(
            "adaptive", \.pace.isAdaptive,
            "Whether fewer requests are sent after 429 and 503 and while they take longer, and more again later, never above the limits."
        ),
        .integer("batchMaxMessages", 1...10_000, \.batchMaxMessages, "Messages in one upstream request."),
        .integer(
            "batchMaxBytes", 1024...67_108_864, \.batchMaxBytes,
            "Size of one upstream request before compression; a larger message is sent alone."),
        .seconds(
            "batchMaxWaitSeconds", 0...3600, \.batchMaxWait, "How long a message waits for others to share a batch."),
        .seconds(
            "retryBaseSeconds", 0.01...3600, \.retry.base, "Ceiling of the first retry's delay; it doubles each time."),
        .seconds(
            "retryMaxSeconds", 0.01...86_400, \.retry.longest,
            "Ceiling of any retry's delay; not below `retryBaseSeconds`."),
        .integer(
            "suspectTries", 1...100, \.suspectTries,
            "Doubtful answers in a row, while others succeed, after which a message sent alone fails."),
        .seconds(
            "suspectSeconds", 1...86_400, \.suspectPeriod,
            "How long doubtful answers have to last if order lets nothing else be sent."),
        .number(
            "guard.share", 0...1, \.rejectionGuard.share,
            "An endpoint that rejected more than this share of its latest messages is held; 0: never."),
        .integer(
            "guard.window", 10...1000, \.rejectionGuard.window,
            "The number of different messages that `guard.share` looks at."),
        .fairBy(
            "fairBy", \.fairBy,
            "By what messages take turns where lanes leave a choice: `caller`, by API key, if several may post to the "
                + "upstream; `key`, by the messages' own keys; a JSON Pointer such as `/tenant`, by that string or number in "
                + "payloads; `none`. What lacks the value waits in the turn of its caller."),
        .seconds(
            "expireAfterSeconds", 0...315_360_000, \.expireAfter,
            "Age at which a message expires; 0: never. After a retry by hand it counts from the retry."),
        .seconds(
            "queueOldSeconds", 1...2_592_000, \.queueOld,
            "How long the oldest message may be due before `callbacks` with the event `queue.old` tell it."),
        .seconds("connectTimeoutSeconds", 0.1...600, \.transfer.connectTimeout, "Time to connect to an upstream."),
        .seconds(
            "requestTimeoutSeconds", 0.1...3600, \.transfer.requestTimeout,
            "Time for a whole upstream request, connecting included."),
        .seconds(
            "connectionMaxAgeSeconds", 1...86_400, \.transfer.connectionMaxAge,
            "How long a connection is used, from its first request; names are resolved again at least as often."),
    ]
}
