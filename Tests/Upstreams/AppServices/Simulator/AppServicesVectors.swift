import PosternConformance
import PosternSimulatorKit

/// The requests of the specification's section 13, which are the adapter's golden requests.
enum AppServicesVectors {
    /// Register the device (item field `deviceId` = `C0FFEE11-2233-4455-8677-8899AABBCCDD`).
    static let v1 = request("v1.http")
    /// Register the user.
    static let v2 = request("v2.http")
    /// Connect; no body.
    static let v3 = request("v3.http")
    /// Save preferences.
    static let v4 = request("v4.http")
    /// The same user registered again.
    static let v5 = request("v5.http")
    /// Register a device with an MI token, another notifier, no device details.
    static let v6 = request("v6.http")
    /// Preferences outside ASCII (UTF-8, slash not escaped).
    static let v7 = request("v7.http")
    /// Look a missing group up.
    static let v8 = request("v8.http")
    /// Create it.
    static let v9 = request("v9.http")
    /// Add the user; no body.
    static let v10 = request("v10.http")
    /// Remove the user.
    static let v11 = request("v11.http")
    /// Disconnect.
    static let v12 = request("v12.http")
    /// Unregister the device (blank the push token).
    static let v13 = request("v13.http")
    /// Connect a user whose id needs percent-encoding.
    static let v14 = request("v14.http")
    /// Upload metrics.
    static let v15 = request("v15.http")

    private static func request(_ file: String) -> SimulatedRequest { try! SimulatedRequest(golden: file) }
}

extension SimulatedRequest {
    /// With headers changed, or taken away by nil; the length follows the body.
    func with(
        method: String? = nil, path: String? = nil, query: String?? = nil, body: String? = nil,
        _ changes: [String: String?] = [:]
    ) -> Self {
        var other = self
        other.method = method ?? self.method
        other.path = path ?? self.path
        other.query = query ?? self.query
        if let body {
            other.body = Array(body.utf8)
            other.headers.removeAll { $0.name == "Content-Length" }
            other.headers.append(("Content-Length", "\(body.utf8.count)"))
        }
        for (name, value) in changes {
            other.headers.removeAll { $0.name.lowercased() == name.lowercased() }
            if let value { other.headers.append((name, value)) }
        }
        return other
    }

    /// As another user of provider pi.
    func with(token: String) -> Self { with(["Authorization": "Bearer \(token)"]) }

    var lost: Self {
        var other = self
        other.isAnswerLost = true
        return other
    }
}
