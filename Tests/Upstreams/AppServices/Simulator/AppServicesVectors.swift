import PosternConformance
import PosternSimulatorKit

/// A request of the specification's section 13, where V1 to V15 say what each is for. They are the adapter's golden
/// requests.
func vector(_ number: Int) -> SimulatedRequest { try! SimulatedRequest(golden: "v\(number).http") }

extension SimulatedRequest {
    /// The request with headers changed, or removed by nil. The length follows the body.
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

    /// The request of another user of provider pi.
    func with(token: String) -> Self { with(["Authorization": "Bearer \(token)"]) }

    var lost: Self {
        var other = self
        other.isAnswerLost = true
        return other
    }
}
