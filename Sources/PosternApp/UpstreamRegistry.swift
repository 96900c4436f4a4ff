// Written by scripts/write-registry.sh from the list in Package.swift.
import AppServicesAdapter
import AppServicesSimulator
import CurioAdapter
import CurioSimulator
public import PosternCore
public import PosternSimulatorKit
import SamsaraAdapter
import SamsaraSimulator
import SeerAdapter
import SeerSimulator
import StreamOneAdapter
import StreamOneSimulator

/// Every type of upstream there is, in the order of the ports of their simulators (see CONTRIBUTING.md).
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
