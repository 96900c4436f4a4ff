import Logging
import PosternAPI
import PosternCore
public import PosternHTTP
import PosternStore
import PosternThreads
public import PosternUpstream

// The settings of the gateway itself: name, range, property, meaning. The defaults are those of the properties.

extension GatewayConfiguration.Server: SettingsSection {
    public static let fields: [SettingField<Self>] = [
        .text("host", \.http.host, rule: .nonEmpty, "Address to listen on; any but loopback requires API keys."),
        .integer("port", 0...65_535, \.http.port, "TCP port to listen on; 0: any free port."),
        .integer("workerThreads", 0...256, \.http.workerThreads, "Threads that serve connections; 0: one per core."),
        .integer("maxConnections", 1...1_000_000, \.http.maxConnections, "Connections that may be open at a time."),
        .integer(
            "maxConnectionsPerAddress", 0...1_000_000, \.http.maxConnectionsPerAddress,
            "Open connections of one client address; 0: no limit."),
        .integer(
            "maxBodyBytes", 1024...1_073_741_824, \.limits.maxBodyBytes,
            "Size of a request body after decompression; larger ones get 413."),
        .integer(
            "maxBodyMemoryBytes", 0...(1 << 40), \.maxBodyMemoryBytes,
            "Memory for bodies, for parsing them and for large responses in flight; beyond it requests get 503. A body of "
                + "more than 64 KiB takes eight times its size. 0: half of the cgroup's memory limit, or of the machine's "
                + "memory."),
        .integer(
            "maxMessagesPerRequest", 1...1_000_000, \.limits.maxMessagesPerRequest,
            "Messages that one request may carry."),
        .seconds(
            "headerTimeoutSeconds", 1...3600, \.http.headerTimeout, "Time a client has to send a request's headers."),
        .seconds(
            "idleTimeoutSeconds", 1...86_400, \.http.idleTimeout,
            "Time after which a connection without traffic is closed. Longer than that of a load balancer or proxy."),
        .seconds(
            "shutdownGraceSeconds", 0...3600, \.shutdownGrace,
            "Time that transfers have to end after SIGTERM before they are cut off."),
        .list(
            "hosts", \.hosts, rule: .hosts,
            "Host names, without port, under which clients may call besides `localhost` and IP addresses; any other "
                + "gets 403."),
        .list(
            "corsOrigins", \.corsOrigins, rule: .origins,
            "Origins (`https://app.example`) whose web pages may do more than read, besides the gateway's own; any other "
                + "gets 403."),
        .bool("console", \.console, "Serve the operator's console at `/console`."),
    ]
}

extension Setting.Rule<[String]> {
    fileprivate static let hosts = Self("expected host names without scheme, port and path") { names in
        names.allSatisfy { !$0.isEmpty && $0.utf8.allSatisfy { byte in !":/@?#[]* ,".utf8.contains(byte) } }
    }

    fileprivate static let origins = Self("expected origins such as https://app.example:8443, without a path") {
        $0.allSatisfy { origin in
            guard let scheme = ["http://", "https://"].first(where: { origin.lowercased().hasPrefix($0) }) else {
                return false
            }
            let authority = origin.dropFirst(scheme.count)
            return !authority.isEmpty && authority.utf8.allSatisfy { !"/@?#* ,".utf8.contains($0) }
        }
    }
}

extension TLSFiles: SettingsSection {
    public static let fields: [SettingField<Self>] = [
        .text("certificateFile", \.certificateFile, "PEM file with the certificate chain; empty: plain HTTP."),
        .text("keyFile", \.keyFile, "PEM file with the certificate's private key."),
        .text(
            "clientCAFile", \.clientCAFile,
            "PEM file with the authorities of client certificates; empty: none is requested."),
    ]
}

extension GatewayConfiguration.Admin: SettingsSection {
    public static let fields: [SettingField<Self>] = [
        .text(
            "host", \.host,
            "Address of a second listener for operators, with the same keys and TLS; empty: none. If there is one, probes, "
                + "metrics and steering are served there only; reads and POST /v1/messages on both."),
        .integer("port", 0...65_535, \.port, "Its TCP port; 0: any free port."),
    ]
}

extension GatewayConfiguration.Auth: SettingsSection {
    public static let fields: [SettingField<Self>] = [
        .bool(
            "allowAnonymous", \.allowAnonymous,
            "Whether callers without a key are served although other machines can reach the gateway."),
        .bool("openMetrics", \.openMetrics, "Serve `/metrics` to callers without a key."),
    ]
}

extension GatewayConfiguration.CloudEvents: SettingsSection {
    public static let fields: [SettingField<Self>] = [
        .strings(
            "types", \.types, rule: .destinations,
            "The upstream and kind of events by their type, e.g. `{\"com.example.click\": \"samsara.event\"}`. A type that is "
                + "not listed is itself `<upstream>.<kind>`.")
    ]
}

extension Setting.Rule<[String: String]> {
    fileprivate static let destinations = Self("expected values of the form <upstream>.<kind>") { types in
        types.values.allSatisfy { $0.wholeMatch(of: #/[a-z][a-z0-9\-]*\..+/#) != nil }
    }
}

extension GatewayConfiguration.Log: SettingsSection {
    public static let fields: [SettingField<Self>] = [
        .choice("level", \.level, "The least important lines that are written."),
        .choice("format", \.format, "Lines for people, or one JSON object per line."),
        .bool(
            "upstreamAnswers", \.upstreamAnswers,
            "Whether lines quote what upstreams answer, which may repeat payloads; if not, they have its status and length."
        ),
    ]
}

extension GatewayConfiguration.UpstreamConfiguration {
    /// The settings that every upstream has in addition to those of its type.
    struct Common: SettingsSection {
        var type = ""
        var isEnabled = true
        var connection = Connection()

        static let fields: [SettingField<Self>] = [
            .text("type", \.type, "Its type; required if its name is not a type."),
            .bool("enabled", \.isEnabled, "Whether it accepts messages and gets requests."),
            .text(
                "caFile", \.connection.caFile,
                "PEM file with the authorities that the upstream's certificate has to come from, in place of the system's; "
                    + "empty: the system's."),
            .text(
                "clientCertificateFile", \.connection.clientCertificateFile,
                "PEM file with the certificate that is presented to the upstream (mTLS), and those between it and the "
                    + "authority; empty: none."),
            .text(
                "clientKeyFile", \.connection.clientKeyFile,
                "PEM file with the key of that certificate, not encrypted; may be the same file."),
            // Of this kind, it is never shown with credentials that it should not have.
            SettingField(
                "proxyURL", .url, \.connection.proxyURL,
                "HTTP proxy, `http://host:port`, through which all requests go (`CONNECT`); empty: none. That of the "
                    + "environment is never used.", encode: SettingValue.text
            ) { value throws(Setting.Mismatch) in
                guard let url = value.text else { return nil }
                guard url.isEmpty || isProxy(url) else {
                    throw Setting.Mismatch(
                        "expected http://host:port, without user name and password, which are proxyUsername and "
                            + "proxyPassword")
                }
                return url
            },
            .text(
                "proxyUsername", \.connection.proxyUsername, rule: userName,
                "User name for the proxy; without a colon. Empty: no authentication."),
            .text(
                "proxyPassword", \.connection.proxyPassword, rule: .printable, secret: true, "Password for the proxy."),
            .list(
                "resolve", \.connection.resolve, rule: addresses,
                "Addresses of names, each `host:port:address`, in place of those that the system finds, e.g. for a test."
            ),
        ]

        private static func isProxy(_ url: String) -> Bool {
            url.wholeMatch(of: #/http:\/\/([A-Za-z0-9._\-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})\/?/#).map {
                (1...65_535).contains(Int($0.2) ?? 0)
            } ?? false
        }

        private static let userName = Setting.Rule<String>("must not contain a colon or a control character") {
            !$0.contains(":") && isPrintable($0)
        }

        private static let addresses = Setting.Rule<[String]>(
            "expected a list of texts such as api.example:443:127.0.0.1"
        ) {
            $0.allSatisfy {
                $0.wholeMatch(of: #/[A-Za-z0-9._\-]+:[0-9]{1,5}:([0-9.]+|[0-9A-Fa-f:.]+|\[[0-9A-Fa-f:.]+\])/#) != nil
            }
        }
    }

    /// The section `log` of an upstream.
    struct OwnLog: SettingsSection {
        /// Empty means that of the gateway.
        var level = ""

        static let fields: [SettingField<Self>] = [
            .text(
                "level", \.level, rule: known,
                "The least important lines about this upstream that are written, as in `log.level`; empty: what that says."
            )
        ]

        private static let known = Setting.Rule<String>(
            "allowed \(Logger.Level.allCases.map(\.rawValue).joined(separator: ", "))"
        ) { $0.isEmpty || Logger.Level(rawValue: $0) != nil }
    }

    /// Names that no type may use for its own settings.
    static let reserved = Set(["delivery", "log", "queue"] + Common.fields.map(\.setting.name))
}

/// An element of `callbacks` as it is written.
struct CallbackEntry: SettingsSection {
    var upstream = ""
    var kind = ""
    var states = Self.allStates
    var events: [String] = []
    var upstreams = ["*"]
    var includesPayload = false

    static let fields: [SettingField<Self>] = [
        .text(
            "upstream", \.upstream, "The upstream that gets an event for each message; of type `webhook`, and enabled."),
        .text("kind", \.kind, "The kind of the events; one of that upstream's."),
        .list(
            "states", \.states,
            "The ends of messages that are reported; at least one unless there are `events`. With `events`, the default is "
                + "none."),
        .list(
            "events", \.events,
            "Alerts that are reported: " + allEvents.map { "`\($0)`" }.joined(separator: ", ") + "."),
        .list("upstreams", \.upstreams, "Upstreams whose messages and alerts are reported; `*`: all."),
        .bool("includePayload", \.includesPayload, "Whether an event contains the payload of its message."),
    ]

    /// Settings that are required.
    static let needed = [\Self.upstream, \Self.kind].map { name(of: $0) }

    /// A caller that cancels a message knows that it ended.
    static let allStates = [MessageState.delivered, .failed, .expired, .dropped].map(\.name)
    static let allEvents = AlertEvent.allCases.map(\.rawValue)
}

/// An element of `auth.keys` as it is written.
struct KeyEntry: SettingsSection {
    var name = ""
    /// The digest, in 64 hexadecimal digits.
    var sha256 = ""
    var scopes: [String] = []
    var upstreams = ["*"]
    var limits = RateLimits()
    var weight = 1
    /// A time as in RFC 3339; empty means never.
    var expiresAt = ""
    var certificateName = ""

    static let fields: [SettingField<Self>] = [
        .text("name", \.name, rule: keyName, "Name of the key in logs; unique."),
        .text(
            "sha256", \.sha256, rule: digest, secret: true,
            "SHA-256 of the key, 64 hexadecimal digits; `postern keys new` prints both. A secret file `auth-keys-<name>` "
                + "may hold it instead."),
        .list("scopes", \.scopes, "Scopes of the key: `write`, `read`, `admin`; at least one."),
        .list("upstreams", \.upstreams, "Upstreams that the key may use; `*`: all."),
        .number("requestsPerSecond", 0...1_000_000, \.limits.requestsPerSecond, "More get 429; 0: no limit."),
        .number("messagesPerSecond", 0...1_000_000_000, \.limits.messagesPerSecond, "More get 429; 0: no limit."),
        .integer(
            "burst", 0...1_000_000_000, \.limits.burst,
            "Requests and messages that may come at once after a pause; 0: as many as one second allows."),
        .integer(
            "weight", 1...100, \.weight,
            "Messages with the key that are sent for one of a key with weight 1, where both wait; see `delivery.fairBy`."
        ),
        .text(
            "expiresAt", \.expiresAt, rule: time, "Time at which it expires, e.g. `2027-01-31T00:00:00Z`; empty: never."
        ),
        .text(
            "certificateName", \.certificateName,
            "Common name of the client certificates that stand for the key; they have to be verified by "
                + "`server.tls.clientCAFile`. Empty: none do."),
    ]

    /// Settings that are required.
    static let needed = [\Self.name, \Self.sha256, \Self.scopes].map { name(of: $0) }

    private static let keyName = Setting.Rule<String>("expected 1 to 64 of letters, digits, '.', '_' and '-'") {
        $0.wholeMatch(of: #/[A-Za-z0-9._\-]{1,64}/#) != nil
    }
    private static let time = Setting.Rule<String>("expected a time as in RFC 3339, e.g. 2027-01-31T00:00:00Z") {
        $0.isEmpty || Timestamp(rfc3339: $0) != nil
    }
    private static let digest = Setting.Rule<String>(
        "expected 64 hexadecimal digits, as postern keys new prints them"
    ) { [UInt8](hexadecimal: $0)?.count == 32 }
}
