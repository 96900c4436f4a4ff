// Written by scripts/write-registry.sh from the list in Package.swift.
import AppServicesScenarios
import CurioScenarios
import PosternScenarios
import SamsaraScenarios
import SeerScenarios
import StreamOneScenarios
import WebhookScenarios

/// What the world has to know of every type of upstream.
enum ScenarioRegistry {
    static let all: [any TypeScenarios] = [
        SamsaraScenarios(),
        SeerScenarios(),
        CurioScenarios(),
        AppServicesScenarios(),
        StreamOneScenarios(),
        WebhookScenarios(),
    ]
}
