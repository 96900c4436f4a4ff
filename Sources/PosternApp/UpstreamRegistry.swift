public import PosternCore
public import PosternSimulators
import PosternUpstreams

/// Every type of upstream there is, in the order of the ports of their simulators. A new one is a folder and a line
/// here (see CONTRIBUTING.md).
public enum UpstreamRegistry {
    public static let all: [(type: UpstreamType, simulator: SimulatorType)] = [
        (.samsara, .samsara),
        (.seer, .seer),
        (.curio, .curio),
        (.appservices, .appservices),
        (.streamone, .streamone),
    ]

    public static let types = all.map(\.type)
    public static let simulators = all.map(\.simulator)
}
