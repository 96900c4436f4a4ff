package import PosternSimulatorKit
import PosternTestKit

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
}
