import PosternCore

// The settings of the gateway itself: name, range, place in memory, meaning. The defaults are those of the properties.

private let tenYears = 315_360_000.0
private let pebibyte: Int64 = 1 << 50

extension GatewayConfiguration.Server: ConfigurationSection {
    static let fields: [Field<Self>] = [
        .text("host", \.host, rule: .filled, "Address to listen on; anything but loopback wants API keys."),
        .integer("port", 0...65_535, \.port, "TCP port to listen on; 0: any that is free."),
        .integer("workerThreads", 0...256, \.workerThreads, "Threads that serve connections; 0: one per core."),
        .integer("maxConnections", 1...1_000_000, \.maxConnections, "Open connections at a time."),
        .integer(
            "maxConnectionsPerAddress", 0...1_000_000, \.maxConnectionsPerAddress,
            "Open connections of one client address; 0: no limit."),
        .integer(
            "maxBodyBytes", 1024...1_073_741_824, \.maxBodyBytes,
            "Size of a request's body after decompression; larger ones get 413."),
        .integer(
            "maxMessagesPerRequest", 1...1_000_000, \.maxMessagesPerRequest, "Messages that one request may carry."),
        .seconds(
            "headerTimeoutSeconds", 1...3600, \.headerTimeout, "Time a client has to send a request's headers."),
        .seconds(
            "idleTimeoutSeconds", 1...86_400, \.idleTimeout,
            "Time after which a connection without traffic is closed."),
        .seconds(
            "shutdownGraceSeconds", 0...3600, \.shutdownGrace,
            "Time that transfers have to end after SIGTERM before they are cut off."),
    ]
}

extension GatewayConfiguration.TLS: ConfigurationSection {
    static let fields: [Field<Self>] = [
        .text("certificateFile", \.certificateFile, "PEM file with the certificate chain; empty: plain HTTP."),
        .text("keyFile", \.keyFile, "PEM file with the certificate's private key."),
        .text(
            "clientCAFile", \.clientCAFile,
            "PEM file with the authorities that client certificates must come from; empty: none is asked for."),
    ]
}

extension GatewayConfiguration.Auth: ConfigurationSection {
    static let fields: [Field<Self>] = [
        .flag(
            "allowAnonymous", \.allowAnonymous,
            "Serve callers without a key even where others than this machine can reach the gateway.")
    ]
}

extension GatewayConfiguration.OutboxSettings: ConfigurationSection {
    static let fields: [Field<Self>] = [
        .text("path", \.path, rule: .filled, "The SQLite file, from the working directory; its directory is made."),
        .integer("maxBytes", 0...pebibyte, \.maxBytes, "Size at which writes get 503; 0: no cap."),
        .seconds(
            "deliveredRetentionSeconds", 0...tenYears, \.deliveredRetention, "How long delivered messages are kept."),
        .seconds(
            "failedRetentionSeconds", 0...tenYears, \.failedRetention,
            "How long messages are kept that ended in any other way."),
        .seconds(
            "idempotencyRetentionSeconds", 0...tenYears, \.idempotencyRetention,
            "How long an `Idempotency-Key` is remembered."),
        .key(
            "encryptionKey", \.encryptionKey,
            "64 hexadecimal digits that encrypt the credentials callers hand in; empty: those stay in memory."),
        .keys(
            "previousEncryptionKeys", \.previousEncryptionKeys,
            "Former values of `encryptionKey`, as long as something may be encrypted with them: until the next start, "
                + "or `postern keys rotate-encryption`."),
    ]
}

extension GatewayConfiguration.DeliverySettings: ConfigurationSection {
    static let fields: [Field<Self>] = [
        .integer("maxInFlight", 1...256, \.maxInFlight, "Requests to one upstream at a time."),
        .integer("batchMaxMessages", 1...10_000, \.batchMaxMessages, "Messages in one upstream request."),
        .integer(
            "batchMaxBytes", 1024...67_108_864, \.batchMaxBytes,
            "Size of one upstream request before compression; a larger message travels alone."),
        .seconds(
            "batchMaxWaitSeconds", 0...3600, \.batchMaxWait, "How long a message waits for others to share a batch."),
        .seconds(
            "retryBaseSeconds", 0.01...3600, \.retryBase, "Ceiling of the first retry's delay; it doubles each time."),
        .seconds(
            "retryMaxSeconds", 0.01...86_400, \.retryMax, "Ceiling of any retry's delay; not below `retryBaseSeconds`."),
        .seconds("expireAfterSeconds", 0...tenYears, \.expireAfter, "Age at which a message is given up; 0: never."),
        .seconds("connectTimeoutSeconds", 0.1...600, \.connectTimeout, "Time to connect to an upstream."),
        .seconds(
            "requestTimeoutSeconds", 0.1...3600, \.requestTimeout,
            "Time for a whole upstream request, connecting included."),
    ]
}

extension GatewayConfiguration.QueueSettings: ConfigurationSection {
    static let fields: [Field<Self>] = [
        .integer("maxMessages", 0...1_000_000_000_000, \.maxMessages, "Messages that may wait; 0: no cap."),
        .integer("maxBytes", 0...pebibyte, \.maxBytes, "Bytes of payload that may wait; 0: no cap."),
        .choice("whenFull", \.whenFull, "At a cap: refuse new messages with 503, or drop the oldest ones."),
    ]
}

extension GatewayConfiguration.Log: ConfigurationSection {
    static let fields: [Field<Self>] = [
        .choice("level", \.level, "The least important lines that are written."),
        .choice("format", \.format, "Lines for people, or one JSON object per line."),
    ]
}

extension GatewayConfiguration.UpstreamConfiguration {
    static let typeSetting = UpstreamType.Setting(
        "type", .text, default: .text(""), "Its type; needed when its name is none.")
    static let enabledSetting = UpstreamType.Setting(
        "enabled", .flag, default: .flag(true), "Does it take messages and get requests?")

    /// Names that no type may use for settings of its own.
    static let common: Set<String> = ["type", "enabled", "delivery", "queue"]
}

extension GatewayConfiguration.APIKey {
    /// Members that an element of `auth.keys` cannot do without.
    static let needed = ["name", "sha256", "scopes"]

    /// Members of an element of `auth.keys`.
    static let settings: [UpstreamType.Setting] = [
        .init("name", .text, default: .text(""), "What logs call the key; no two have the same."),
        .init(
            "sha256", .text, default: .text(""), secret: true,
            "SHA-256 of the key, 64 hexadecimal digits; `postern keys new` prints both."),
        .init("scopes", .list, default: .list([]), "What it allows: `write`, `read`, `admin`; at least one."),
        .init("upstreams", .list, default: .list(["*"]), "Upstreams it is good for; `*`: all."),
        .init("requestsPerSecond", .number(0...1_000_000), default: .number(0), "More get 429; 0: no limit."),
    ]
}
