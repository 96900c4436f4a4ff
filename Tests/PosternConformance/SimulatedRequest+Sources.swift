import PosternCore
package import PosternSimulatorKit
import PosternTestKit
package import PosternUpstream

extension SimulatedRequest {
    /// The golden request in a file, as a client sends it: with `Host`, and with `Content-Length` if it has a body.
    ///
    /// - Parameter source: A source file in a folder next to `Fixtures`.
    package init(golden file: String, of source: StaticString = #filePath) throws {
        let text = String(decoding: try Fixture.bytes(file, of: source), as: UTF8.self)
        let parts = text.split(separator: "\n\n", maxSplits: 1, omittingEmptySubsequences: false)
        let lines = parts[0].split(separator: "\n")
        let words = lines[0].split(separator: " ")
        let url = words[1].split(separator: "/", maxSplits: 2)
        let target = "/" + url[2]
        let ends = target.split(separator: "?", maxSplits: 1).map(String.init)
        var headers = [(name: "Host", value: String(url[1]))]
        headers += lines.dropFirst().map { line in
            let pair = line.split(separator: ": ", maxSplits: 1)
            return (String(pair[0]), String(pair[1]))
        }
        let body = Array(parts[1].utf8)
        if ["POST", "PUT", "PATCH"].contains(words[0]) { headers.append(("Content-Length", "\(body.count)")) }
        self.init(
            method: String(words[0]), path: ends[0], query: ends.count > 1 ? ends[1] : nil, headers: headers, body: body
        )
    }

    /// A request of the gateway, with the headers that the transport adds.
    package init(_ request: UpstreamRequest) {
        let rest = request.url.split(separator: "://", maxSplits: 1)[1]
        let place = rest.firstIndex { $0 == "/" || $0 == "?" } ?? rest.endIndex
        let parts = rest[place...].split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
        var headers: [(name: String, value: String)] = [("Host", String(rest[..<place]))]
        if !request.headers.contains(where: { $0.name.lowercased() == "user-agent" }) {
            headers.append(("User-Agent", "Postern/0"))
        }
        headers += request.headers
        if !request.body.isEmpty || request.method == .post || request.method == .put {
            headers.append(("Content-Length", "\(request.body.count)"))
        }
        self.init(
            method: request.method.rawValue, path: parts.isEmpty || parts[0].isEmpty ? "/" : String(parts[0]),
            query: parts.count > 1 ? String(parts[1]) : nil, headers: headers, body: request.body)
    }
}
