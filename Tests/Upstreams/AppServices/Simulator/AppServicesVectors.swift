import PosternSimulatorKit
@testable import AppServicesSimulator

/// The requests of the specification's section 13 unchanged, line by line; lines end with CR LF on the wire.
enum AppServicesVectors {
    /// Register the device (item field `deviceId` = `C0FFEE11-2233-4455-8677-8899AABBCCDD`).
    static let v1 = request(
        #"""
        PUT /appservices/acme/campus-dev/device/c0ffee11-2233-4455-8677-8899aabbccdd?api_key=SAMPLEKEY7Q2W9E4R6T1Y8U3I5O0PAS1 HTTP/1.1
        Host: mobileservices.openclasslabs.com
        Content-Type: application/json
        Authorization: Bearer PiTok-7f.abc_DEF~123
        X-Auth-Provider: pi
        Content-Length: 231
        """#,
        body: #"""
            {"apple.notifier.id":"7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed","deviceModel":"iPhone 5s","deviceOSVersion":"8.1.3","devicePlatform":"iPhone OS","type":"device","uuid":"c0ffee11-2233-4455-8677-8899aabbccdd"}
            """#)

    /// Register the user.
    static let v2 = request(
        #"""
        POST /appservices/acme/campus-dev/users?api_key=SAMPLEKEY7Q2W9E4R6T1Y8U3I5O0PAS1 HTTP/1.1
        Host: mobileservices.openclasslabs.com
        Content-Type: application/json
        Authorization: Bearer PiTok-7f.abc_DEF~123
        X-Auth-Provider: pi
        Content-Length: 47
        """#,
        body: #"""
            {"username":"ffffffff54d00d1e0b07c0de5eed0011"}
            """#)

    /// Connect; no body.
    static let v3 = request(
        #"""
        POST /appservices/acme/campus-dev/users/ffffffff54d00d1e0b07c0de5eed0011/devices/c0ffee11-2233-4455-8677-8899aabbccdd?api_key=SAMPLEKEY7Q2W9E4R6T1Y8U3I5O0PAS1 HTTP/1.1
        Host: mobileservices.openclasslabs.com
        Content-Type: application/json
        Authorization: Bearer PiTok-7f.abc_DEF~123
        X-Auth-Provider: pi
        Content-Length: 0
        """#)

    /// Save preferences.
    static let v4 = request(
        #"""
        PUT /appservices/acme/campus-dev/device/c0ffee11-2233-4455-8677-8899aabbccdd?api_key=SAMPLEKEY7Q2W9E4R6T1Y8U3I5O0PAS1 HTTP/1.1
        Host: mobileservices.openclasslabs.com
        Content-Type: application/json
        Authorization: Bearer PiTok-7f.abc_DEF~123
        X-Auth-Provider: pi
        Content-Length: 107
        """#,
        body: #"""
            {"mobileplatform":{"preferences":{"blacklist":{},"whitelist":{"assignments":[],"forum":["chat","polls"]}}}}
            """#)

    /// The same user registered again.
    static let v5 = request(
        #"""
        POST /appservices/acme/campus-dev/users?api_key=SAMPLEKEY7Q2W9E4R6T1Y8U3I5O0PAS1 HTTP/1.1
        Host: mobileservices.openclasslabs.com
        Content-Type: application/json
        Authorization: Bearer PiTok-7f.abc_DEF~123
        X-Auth-Provider: pi
        Content-Length: 47
        """#,
        body: #"""
            {"username":"ffffffff54d00d1e0b07c0de5eed0011"}
            """#)

    /// Register a device with an MI token, another notifier, no device details.
    static let v6 = request(
        #"""
        PUT /appservices/acme/campus-dev/device/5d3a1f77-0b1c-4e8e-9f10-62a4c1d7e902?api_key=SAMPLEKEY7Q2W9E4R6T1Y8U3I5O0PAS1 HTTP/1.1
        Host: mobileservices.openclasslabs.com
        Content-Type: application/json
        X-Authorization: MITOK:00042|a9b8c7d6
        X-Auth-Provider: mi
        Content-Length: 163
        """#,
        body: #"""
            {"apple-distribution.notifier.id":"3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3","type":"device","uuid":"5d3a1f77-0b1c-4e8e-9f10-62a4c1d7e902"}
            """#)

    /// Preferences outside ASCII (UTF-8, slash not escaped).
    static let v7 = request(
        #"""
        PUT /appservices/acme/campus-dev/device/5d3a1f77-0b1c-4e8e-9f10-62a4c1d7e902?api_key=SAMPLEKEY7Q2W9E4R6T1Y8U3I5O0PAS1 HTTP/1.1
        Host: mobileservices.openclasslabs.com
        Content-Type: application/json
        X-Authorization: MITOK:00042|a9b8c7d6
        X-Auth-Provider: mi
        Content-Length: 110
        """#,
        body: #"""
            {"mobileplatform":{"preferences":{"blacklist":{},"whitelist":{"Übungen 1/2":["Prüfung „A“","試験"]}}}}
            """#)

    /// Look a missing group up.
    static let v8 = request(
        #"""
        GET /appservices/acme/campus-dev/groups/Fall-2014-Biology?api_key=SAMPLEKEY7Q2W9E4R6T1Y8U3I5O0PAS1 HTTP/1.1
        Host: mobileservices.openclasslabs.com
        Content-Type: application/json
        Authorization: Bearer PiTok-7f.abc_DEF~123
        X-Auth-Provider: pi
        """#)

    /// Create it.
    static let v9 = request(
        #"""
        POST /appservices/acme/campus-dev/groups?api_key=SAMPLEKEY7Q2W9E4R6T1Y8U3I5O0PAS1 HTTP/1.1
        Host: mobileservices.openclasslabs.com
        Content-Type: application/json
        Authorization: Bearer PiTok-7f.abc_DEF~123
        X-Auth-Provider: pi
        Content-Length: 56
        """#,
        body: #"""
            {"path":"Fall-2014-Biology","title":"Fall-2014-Biology"}
            """#)

    /// Add the user; no body.
    static let v10 = request(
        #"""
        POST /appservices/acme/campus-dev/groups/Fall-2014-Biology/users/ffffffff54d00d1e0b07c0de5eed0011?api_key=SAMPLEKEY7Q2W9E4R6T1Y8U3I5O0PAS1 HTTP/1.1
        Host: mobileservices.openclasslabs.com
        Content-Type: application/json
        Authorization: Bearer PiTok-7f.abc_DEF~123
        X-Auth-Provider: pi
        Content-Length: 0
        """#)

    /// Remove the user.
    static let v11 = request(
        #"""
        DELETE /appservices/acme/campus-dev/groups/Fall-2014-Biology/users/ffffffff54d00d1e0b07c0de5eed0011?api_key=SAMPLEKEY7Q2W9E4R6T1Y8U3I5O0PAS1 HTTP/1.1
        Host: mobileservices.openclasslabs.com
        Content-Type: application/json
        Authorization: Bearer PiTok-7f.abc_DEF~123
        X-Auth-Provider: pi
        """#)

    /// Disconnect.
    static let v12 = request(
        #"""
        DELETE /appservices/acme/campus-dev/users/ffffffff54d00d1e0b07c0de5eed0011/devices/c0ffee11-2233-4455-8677-8899aabbccdd?api_key=SAMPLEKEY7Q2W9E4R6T1Y8U3I5O0PAS1 HTTP/1.1
        Host: mobileservices.openclasslabs.com
        Content-Type: application/json
        Authorization: Bearer PiTok-7f.abc_DEF~123
        X-Auth-Provider: pi
        """#)

    /// Unregister the device (blank the push token).
    static let v13 = request(
        #"""
        PUT /appservices/acme/campus-dev/device/c0ffee11-2233-4455-8677-8899aabbccdd?api_key=SAMPLEKEY7Q2W9E4R6T1Y8U3I5O0PAS1 HTTP/1.1
        Host: mobileservices.openclasslabs.com
        Content-Type: application/json
        Authorization: Bearer PiTok-7f.abc_DEF~123
        X-Auth-Provider: pi
        Content-Length: 86
        """#,
        body: #"""
            {"apple.notifier.id":"","type":"device","uuid":"c0ffee11-2233-4455-8677-8899aabbccdd"}
            """#)

    /// Connect a user whose id needs percent-encoding.
    static let v14 = request(
        #"""
        POST /appservices/acme/campus-dev/users/pat.lee%40example.edu/devices/19f0c2a4-6b7d-4f31-8a55-d0e1f2a3b403?api_key=SAMPLEKEY7Q2W9E4R6T1Y8U3I5O0PAS1 HTTP/1.1
        Host: mobileservices.openclasslabs.com
        Content-Type: application/json
        X-Authorization: ST-00917-qrstuv
        X-Auth-Provider: mi
        Content-Length: 0
        """#)

    /// Upload metrics.
    static let v15 = request(
        #"""
        POST /appservices/acme/campus-dev/apm/apmMetrics HTTP/1.1
        Host: mobileservices.openclasslabs.com
        Content-Type: application/json; charset=utf-8
        Content-Length: 311
        """#,
        body: #"""
            {"appName":"campus-dev","fullAppName":"acme_campusdev","instaOpsApplicationId":21493,"logs":[{"logLevel":"E","logMessage":"timeout","tag":"sync","timeStamp":"1412079990000"}],"metrics":[],"orgName":"acme","sessionMetrics":{"appId":"21493","isNetworkChanged":"false","sdkType":"iOS"},"timeStamp":"1412080000123"}
            """#)

    private static func request(_ head: String, body: String = "") -> SimulatedRequest {
        let lines = head.split(separator: "\n")
        let words = lines[0].split(separator: " ")
        let target = words[1].split(separator: "?", maxSplits: 1)
        return SimulatedRequest(
            method: String(words[0]), path: String(target[0]), query: target.count > 1 ? String(target[1]) : nil,
            headers: lines.dropFirst().map { line in
                let parts = line.split(separator: ": ", maxSplits: 1)
                return (String(parts[0]), String(parts[1]))
            }, body: Array(body.utf8))
    }
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
