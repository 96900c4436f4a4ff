// Written by scripts/write-registry.sh from the list in Package.swift.
import AppServicesAdapter
import CurioAdapter
public import PosternUpstream
import SamsaraAdapter
import SeerAdapter
import StreamOneAdapter
import WebhookAdapter

/// Every type of upstream there is (see CONTRIBUTING.md).
public enum UpstreamRegistry {
    public static let all: [UpstreamType] = [
        .samsara,
        .seer,
        .curio,
        .appservices,
        .streamone,
        .webhook,
    ]
}
