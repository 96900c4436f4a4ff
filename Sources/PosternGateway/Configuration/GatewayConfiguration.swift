public import Logging
public import PosternAPI
public import PosternCore
import PosternDelivery
public import PosternHTTP
public import PosternStore
import PosternUpstream

/// All settings of an operator, checked and in the units of the code.
///
/// The values of the properties here are the defaults. `ConfigurationLoader` replaces those that are configured.
public struct GatewayConfiguration: Sendable, Equatable {
    public var server = Server()
    public var auth = Auth()
    public var outbox = OutboxOptions()
    /// The settings of upstreams that override nothing. Each upstream has its own merged copy.
    var delivery = DeliverySettings()
    /// Ordered by name, disabled ones included.
    public var upstreams: [UpstreamConfiguration] = []
    var cloudEvents = CloudEvents()
    var callbacks: [CallbackConfiguration] = []
    public var log = Log()

    public init() {}

    /// The section `server`.
    public struct Server: Sendable, Equatable {
        public var http = HTTPServerSettings()
        /// Limits of single requests.
        var limits = RequestLimits()
        /// 0 means half of the memory that the process may use.
        var maxBodyMemoryBytes = 0
        /// 0 to 3600 s; transfers that are still running after it are cancelled.
        var shutdownGrace = Duration.seconds(20)
        /// Names that are accepted in `Host`, in addition to `localhost` and IP addresses.
        var hosts: [String] = []
        /// Origins of web pages that may do more than read, in addition to the gateway's own.
        var corsOrigins: [String] = []
        /// Whether the operator's console is served.
        var console = true
        public var admin = Admin()

        public init() {}
    }

    /// A second listener, for operators.
    public struct Admin: Sendable, Equatable {
        /// Empty if there is none.
        public var host = ""
        /// 0 means any free port.
        public var port = 0

        /// Whether there is a separate listener for operators.
        public var isOn: Bool { !host.isEmpty }
        public init() {}
    }

    /// The section `auth`.
    public struct Auth: Sendable, Equatable {
        /// Whether the gateway may listen beyond loopback without any key.
        var allowAnonymous = false
        /// Whether `/metrics` requires no key.
        var openMetrics = false
        /// If empty, no caller needs a key.
        public var keys: [APIKey] = []

        public init() {}
    }

    /// How events find their upstreams.
    struct CloudEvents: Sendable, Equatable {
        /// `<upstream>.<kind>` by an event's type.
        var types: [String: String] = [:]

        public init() {}
    }

    /// An element of `callbacks`.
    struct CallbackConfiguration: Sendable, Equatable {
        /// The enabled upstream that gets the events. Its type takes callbacks.
        var upstream: UpstreamName
        /// One of its kinds.
        var kind: Kind
        /// Which ends of messages are reported.
        var states: Set<MessageState>
        /// Which alerts are.
        var events: Set<AlertEvent> = []
        /// Whose messages and alerts are reported; nil means those of all.
        var upstreams: Set<UpstreamName>?
        var includesPayload: Bool
    }

    /// A member of `upstreams`.
    public struct UpstreamConfiguration: Sendable, Equatable {
        public let name: UpstreamName
        /// Name of its `UpstreamType`.
        public let type: String
        /// See `ConfigurableUpstream.storesCredentials`.
        let storesCredentials: Bool
        /// If false, nothing is accepted for it or sent to it; its messages are kept.
        public var isEnabled: Bool
        /// The global settings with this upstream's overrides.
        var delivery: DeliverySettings
        /// `queue`, or the section of this upstream.
        var queue: QueueCap
        var connection: Connection
        /// The level of the log lines about it; nil means that of the gateway.
        public var logLevel: Logger.Level?
        /// The gateway's `log.upstreamAnswers`.
        var logsAnswers = false
        /// A value for each setting of the type, so that two upstreams can be compared.
        let values: [String: SettingValue]
        /// The texts of the files that settings name as a `schema`, by setting, so that a changed file is a change.
        var schemas: [String: [UInt8]] = [:]

        /// How the upstream is reached.
        struct Connection: Sendable, Equatable {
            /// PEM file with the authorities that may have issued its certificate; empty means those of the system.
            var caFile = ""
            /// PEM files with the certificate that is presented to it, and its key; both or none are empty.
            var clientCertificateFile = ""
            var clientKeyFile = ""
            /// The text of `clientCertificateFile`, so that a replaced file is a change.
            var clientCertificate = ""
            /// Empty if there is no proxy.
            var proxyURL = ""
            var proxyUsername = ""
            var proxyPassword = ""
            /// `host:port:address`.
            var resolve: [String] = []
        }

        /// Settings that `values` omits have their default, and `delivery` has the default for that type.
        init(
            name: UpstreamName, type: UpstreamType, isEnabled: Bool = true, delivery: DeliverySettings? = nil,
            queue: QueueCap = .init(), connection: Connection = .init(), logLevel: Logger.Level? = nil,
            values: [String: SettingValue] = [:]
        ) {
            self.name = name
            self.type = type.name
            storesCredentials = type.storesCredentials
            self.isEnabled = isEnabled
            self.delivery = delivery ?? DeliverySettings().inherited(by: type)
            self.queue = queue
            self.connection = connection
            self.logLevel = logLevel
            self.values = type.defaults.merging(values) { $1 }
        }
    }

    /// The section `log`.
    public struct Log: Sendable, Equatable {
        public enum Format: String, Sendable, CaseIterable { case text, json }

        /// Takes effect on reload.
        var level = Logger.Level.info
        /// Takes effect on reload.
        var upstreamAnswers = false
        /// Takes effect on restart only.
        public var format = Format.text

        public init() {}
    }
}

extension DeliverySettings {
    /// The settings for an upstream of that type without its own `delivery`.
    func inherited(by type: UpstreamType) -> Self {
        var settings = self
        settings.batchMaxMessages = type.batchMaxMessages ?? batchMaxMessages
        return settings
    }
}
