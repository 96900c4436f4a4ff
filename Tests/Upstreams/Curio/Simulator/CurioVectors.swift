import PosternConformance
import PosternSimulatorKit

/// The examples of the specification's section 4.5, which are the adapter's golden requests, and the texts of 11.1.
enum CurioVectors {
    static let visitor = "7B3A9001-51C3-4F0B-9A77-3E0D6C5B4A01"
    static let session = "6d551000-a21d-11e4-8123-03ab5c7d9e1f"
    static let apiKey = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
    static let trackingCode = "GW7DEM01"

    static let e1 = Example(golden: "session-start.http")
    static let e2 = Example(golden: "screen-start.http")
    static let e3 = Example(golden: "screen-end.http")
    static let e4 = Example(golden: "event.http")
    static let e5 = Example(golden: "event-end.http")
    static let e6 = Example(golden: "session-end.http")
    static let e7 = Example(golden: "periodic-batch.http")
    static let e8 = Example(golden: "offline-batch.http")
    static let e9 = Example(golden: "push-token.http")
    static let e10 = Example(golden: "notification-read.http")
    static let e11 = Example(golden: "custom-id.http")
    static let e12 = Example(golden: "location.http")
    static let e13 = Example(golden: "user-tags.http")
    static let e14 = Example(golden: "unregister.http")

    struct Example {
        let suffix: String
        let body: String

        init(_ suffix: String, _ body: String) {
            self.suffix = suffix
            self.body = body
        }

        init(golden file: String) {
            let request = try! SimulatedRequest(golden: file)
            self.init(
                String(request.path.dropFirst("/api/v2".count)), String(decoding: request.body, as: UTF8.self))
        }
    }

    /// A text, after `enc` once, after `enc` twice.
    static let texts: [(text: String, inner: String, outer: String)] = [
        ("Master view", "Master+view", "Master%2Bview"),
        ("Master-view", "Master-view", "Master-view"),
        (
            "Ana sayfa – Şarkılar", "Ana+sayfa+%E2%80%93+%C5%9Eark%C4%B1lar",
            "Ana%2Bsayfa%2B%25E2%2580%2593%2B%25C5%259Eark%25C4%25B1lar"
        ),
        (
            "/müzik?x=1+1&y=%20", "%2Fm%C3%BCzik%3Fx%3D1%2B1%26y%3D%2520",
            "%252Fm%25C3%25BCzik%253Fx%253D1%252B1%2526y%253D%252520"
        ),
        ("100% A+B", "100%25+A%2BB", "100%2525%2BA%252BB"),
        ("Cat1>Cat2>Cat3", "Cat1%3ECat2%3ECat3", "Cat1%253ECat2%253ECat3"),
        ("~.-_*'()!", "~.-_%2A%27%28%29%21", "~.-_%252A%2527%2528%2529%2521"),
        ("日本語", "%E6%97%A5%E6%9C%AC%E8%AA%9E", "%25E6%2597%25A5%25E6%259C%25AC%25E8%25AA%259E"),
        ("😀", "%F0%9F%98%80", "%25F0%259F%2598%2580"),
        ("line1\nline2", "line1%0Aline2", "line1%250Aline2"),
        ("", "", ""),
    ]
}
