public import ArgumentParser
import PosternCommands
public import PosternCore
import PosternGateway
public import PosternStore

// How values are written on the command line. The words are those of the API.

extension UpstreamName: ExpressibleByArgument {
    public init?(argument: String) { self.init(argument) }
}

extension MessageID: ExpressibleByArgument {
    public init?(argument: String) { self.init(argument) }
}

extension Kind: ExpressibleByArgument {
    public init?(argument: String) { self.init(argument) }
}

extension MessageState: ExpressibleByArgument {
    public init?(argument: String) { self.init(name: argument) }
    public static var allValueStrings: [String] { allCases.map(\.name) }
    // The names are sufficient; by default, each would be listed with an empty description.
    public static var allValueDescriptions: [String: String] { [:] }
    public var defaultValueDescription: String { name }
}

extension LaneRecord.State: ExpressibleByArgument {}

extension MessageOrder: ExpressibleByArgument {}

extension WaitReason: ExpressibleByArgument {}

extension AttemptError.Class: ExpressibleByArgument {}

extension MessageCursor: ExpressibleByArgument {
    public init?(argument: String) { self.init(argument) }
}

extension FailureGroup.ID: ExpressibleByArgument {
    public init?(argument: String) { self.init(argument) }
}

extension Timestamp: ExpressibleByArgument {
    public init?(argument: String) { self.init(rfc3339: argument) }
}

/// The store of a command.
struct StoreOptions: ParsableArguments {
    @Option(help: ArgumentHelp("The gateway's configuration, which names the store.", valueName: "file"))
    var config: String?

    @Option(help: ArgumentHelp("The store itself, e.g. data/postern.sqlite.", valueName: "path"))
    var store: String?

    @Flag(help: "Write JSON, for programs.")
    var json = false

    func validate() throws {
        guard (config == nil) != (store == nil) else {
            throw ValidationError("Specify the store with --config FILE or --store PATH.")
        }
    }

    func location(_ gateway: GatewayAddress.Choice = .init()) throws(CommandFailure) -> StoreLocation {
        if let config { return try StoreLocation(ConfigurationLoader(file: config), gateway) }
        guard let url = gateway.url else { return StoreLocation(path: store ?? "") }
        return StoreLocation(path: store ?? "", gateway: try GatewayAddress(gateway, orAt: url))
    }

    func inspection() throws(CommandFailure) -> OutboxInspection {
        try OutboxInspection(try location(), now: SystemTime().now)
    }
}

/// The address of the gateway, for operations that require it.
struct GatewayOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "The gateway's address while it runs; by default the one that the configuration gives it.",
            valueName: "url"))
    var url: String?

    @Option(
        help: ArgumentHelp(
            "PEM file with the authorities of the gateway's certificate; by default, exactly the certificate in the "
                + "configuration is accepted, or without a configuration one of the system's authorities.",
            valueName: "file"))
    var ca: String?

    @Flag(help: "Accept any certificate.")
    var insecure = false

    @Option(
        help: ArgumentHelp(
            "PEM file with a client certificate and its key, for a gateway that requires one.", valueName: "file"))
    var cert: String?

    func validate() throws {
        guard ca == nil || !insecure else { throw ValidationError("--ca and --insecure exclude each other.") }
    }

    var choice: GatewayAddress.Choice {
        .init(url: url, caFile: ca, isInsecure: insecure, clientCertificateFile: cert)
    }

    /// The address for a command that has no store: that of a configuration, if there is one.
    func address(config: String?) throws(CommandFailure) -> GatewayAddress {
        if let config { return try GatewayAddress(ConfigurationLoader(file: config), choice) }
        return try GatewayAddress(choice, orAt: "http://127.0.0.1:8080")
    }
}

/// The messages of a command.
struct FilterOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Only those of this upstream.", valueName: "name"))
    var upstream: UpstreamName?

    @Option(help: ArgumentHelp("Only those in this state.", valueName: "state"))
    var state: MessageState?

    @Option(help: ArgumentHelp("Only those of this kind.", valueName: "kind"))
    var kind: Kind?

    @Option(help: ArgumentHelp("Only those with this key.", valueName: "key"))
    var key: String?

    @Option(
        help: ArgumentHelp("Only those of this lane: its name, or what a list of lanes shows.", valueName: "lane")
    )
    var lane: String?

    @Option(
        help: ArgumentHelp("Only those accepted at this time or later, e.g. 2026-01-31T12:00:00Z.", valueName: "time"))
    var createdAfter: Timestamp?

    @Option(help: ArgumentHelp("Only those accepted before this time.", valueName: "time"))
    var createdBefore: Timestamp?

    @Option(help: ArgumentHelp("Only those whose last error has this class.", valueName: "class"))
    var errorClass: AttemptError.Class?

    @Option(help: ArgumentHelp("Only those whose last error contains this text.", valueName: "text"))
    var errorText: String?

    @Option(help: ArgumentHelp("Only those of this group of failures.", valueName: "id"))
    var group: FailureGroup.ID?

    var filter: MessageFilter {
        var filter = MessageFilter(upstream: upstream, kind: kind, state: state, key: key)
        filter.lane = lane
        (filter.createdAfter, filter.createdBefore) = (createdAfter, createdBefore)
        (filter.errorClass, filter.errorText, filter.group) = (errorClass, errorText, group)
        return filter
    }

    /// Throws unless messages are selected either by `ids` or by these options, and if so, in one of `states`.
    func validate(insteadOf ids: [MessageID], in states: Set<MessageState>, _ detail: String) throws {
        guard ids.isEmpty != (upstream == nil) else {
            throw ValidationError("Specify the messages, either by their ids or with --upstream NAME.")
        }
        guard ids.isEmpty || filter == MessageFilter(upstream: upstream) else {
            throw ValidationError("Options that select messages go with --upstream, not with ids.")
        }
        if let state, !states.contains(state) { throw ValidationError(detail) }
    }
}
