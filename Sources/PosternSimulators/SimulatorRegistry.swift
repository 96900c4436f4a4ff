// Written by scripts/write-registry.sh from the list in Package.swift.
import AppServicesSimulator
import CurioSimulator
public import PosternSimulatorKit
import SamsaraSimulator
import SeerSimulator
import StreamOneSimulator
import WebhookSimulator

/// The simulator of every type of upstream, in the order of their ports.
public enum SimulatorRegistry {
    public static let all: [SimulatorType] = [
        .samsara,
        .seer,
        .curio,
        .appservices,
        .streamone,
        .webhook,
    ]
}
