import PosternConformance
import PosternSimulatorKit

/// The examples of the specification's section 4.5, which are the adapter's golden requests.
enum CurioVectors {
    static let visitor = "7B3A9001-51C3-4F0B-9A77-3E0D6C5B4A01"
    static let session = "6d551000-a21d-11e4-8123-03ab5c7d9e1f"
    static let apiKey = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
    static let trackingCode = "GW7DEM01"

    struct Example {
        /// The part of the path after `/api/v2`.
        let suffix: String
        let body: String
    }

    /// - Parameter name: of the file, without `.http`.
    static func golden(_ name: String) -> Example {
        let request = try! SimulatedRequest(golden: name + ".http")
        return Example(
            suffix: String(request.path.dropFirst("/api/v2".count)), body: String(decoding: request.body, as: UTF8.self)
        )
    }
}
