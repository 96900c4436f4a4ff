import PosternConformance
import PosternSimulatorKit

/// The examples of the specification's section 4.5, which are the adapter's golden requests.
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
}
