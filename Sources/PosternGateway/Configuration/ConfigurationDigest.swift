import Crypto
import PosternCore

/// Shows whether gateways that share a store have the same settings, except for those by which they may differ: where
/// they listen, what they log, where a file would be, and their names. It is short, so that it tells nothing about secrets.
struct ConfigurationDigest {
    let text: String

    init(of file: ConfigurationNode, _ environment: [String: String]) {
        let own = ["server", "log", "outbox.path", "outbox.postgres.node"]
        let ownVariables = own.map { "POSTERN_" + $0.replacing(".", with: "_").uppercased() }
        let settings =
            file.leaves.filter { leaf in !own.contains { leaf.path == $0 || leaf.path.hasPrefix("\($0).") } }
            .map { "\($0.path)=\($0.value)" }
        let variables =
            environment.filter { name, _ in
                name.hasPrefix("POSTERN_") && !ownVariables.contains { name == $0 || name.hasPrefix("\($0)_") }
            }.map { "\($0.key)=\($0.value)" }
        let digest = SHA256.hash(data: Array((settings + variables).sorted().joined(separator: "\n").utf8))
        text = digest.prefix(4).map { String(UInt16($0) + 0x100, radix: 16).dropFirst() }.joined()
    }
}

extension ConfigurationNode {
    /// The values that contain no others, with their paths.
    fileprivate var leaves: [(path: String, value: String)] {
        switch self {
        case .object(let members):
            members.flatMap { member in member.value.leaves.map { (Self.joined(member.name, $0.path), $0.value) } }
        case .array(let elements):
            elements.enumerated().flatMap { index, element in
                element.leaves.map { (Self.joined("\(index)", $0.path), $0.value) }
            }
        case .string(let text): [("", "\"\(text)")]
        case .number, .flag, .null: [("", shown)]
        }
    }

    private static func joined(_ name: String, _ rest: String) -> String { rest.isEmpty ? name : "\(name).\(rest)" }
}
