package import PosternSimulatorKit
package import PosternTestKit

/// A test's client that calls a simulator directly, without a server.
package protocol SimulatorClient {
    associatedtype Served: Simulator
    var simulator: Served { get }
}

extension SimulatorClient {
    /// Posts `body` to a path below `/control`, or gets the path if it is nil. Returns nil if there is no such path.
    @discardableResult package func control(
        _ body: String? = nil, at path: String = "/control", method: String? = nil
    ) -> SimulatedAnswer? {
        simulator.control(
            SimulatedRequest(
                method: method ?? (body == nil ? "GET" : "POST"), path: path, body: Array((body ?? "").utf8)))
    }

    /// The state that `/control` returns.
    package var shown: JSON { control()?.json ?? JSON([]) }
}

extension SimulatedAnswer {
    package var text: String { String(decoding: body, as: UTF8.self) }
    package var json: JSON { JSON(body) }
}

extension SimulatedResult {
    /// The texts of the items that were accepted.
    package var texts: [String] { items.ranges.map { String(decoding: items.text[$0], as: UTF8.self) } }
    package var status: Int? { answer?.status }
    package var text: String { answer?.text ?? "" }
    package var json: JSON { JSON(answer?.body ?? []) }
}
