import Testing

/// A gateway in a test, and the requests that tests make most often.
public protocol GatewayHarness {
    /// The upstream that requests use by default.
    var usualUpstream: String { get }
    func connection() throws -> HTTPClient
}

extension GatewayHarness {
    public func upstream(_ name: String? = nil) throws -> JSON {
        try connection().get("/v1/upstreams/\(name ?? usualUpstream)").json
    }

    public func message(_ id: String, include: String? = nil) throws -> JSON {
        try connection().get("/v1/messages/\(id)" + (include.map { "?include=\($0)" } ?? "")).json
    }

    /// Waits until a member of a message has `value`, or is absent if that is nil.
    public func wait(for member: String, _ value: String?, of id: String) throws {
        let connection = try connection()
        var last = JSON([])
        let isThere = try eventually {
            last = try connection.get("/v1/messages/\(id)").json
            return last[member].string == value
        }
        try #require(isThere, "\(id) does not have \(member) \(value ?? "nil"): \(last)")
    }

    public func waitForState(_ state: String, of id: String) throws { try wait(for: "state", state, of: id) }

    /// The value of one sample of `/metrics`.
    public func sample(_ series: String) throws -> Double? {
        try connection().get("/metrics").text.split(separator: "\n").first { $0.hasPrefix(series + " ") }
            .flatMap { Double($0.dropFirst(series.count + 1)) }
    }
}
