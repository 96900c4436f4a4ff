package import PosternSimulatorKit
package import PosternTestKit

extension SimulatedResult {
    /// The texts of the items that were accepted.
    package var texts: [String] { items.ranges.map { String(decoding: items.text[$0], as: UTF8.self) } }
    package var status: Int? { answer?.status }
    package var text: String { answer?.text ?? "" }
    package var json: JSON { JSON(answer?.body ?? []) }
}
