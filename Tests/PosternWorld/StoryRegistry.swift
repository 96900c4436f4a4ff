// Written by scripts/write-registry.sh from the list in Package.swift.
import AppServicesStory
import CurioStory
import PosternStory
import SamsaraStory
import SeerStory
import StreamOneStory
import WebhookStory

/// What the world has to know of every type of upstream.
enum StoryRegistry {
    static let all: [any Story] = [
        SamsaraStory(),
        SeerStory(),
        CurioStory(),
        AppServicesStory(),
        StreamOneStory(),
        WebhookStory(),
    ]
}
