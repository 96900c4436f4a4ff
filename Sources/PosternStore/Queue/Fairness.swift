import PosternCore
public import PosternUpstream

/// By what the messages of a queue take turns: the setting `delivery.fairBy`.
public enum FairBy: Sendable, Equatable {
    /// They do not: what was accepted first is sent first, as far as lanes permit.
    case none
    /// By the names of the API keys that they were posted with.
    case caller
    /// By their own keys.
    case key
    /// By a string or number in their payloads; with the text of the setting.
    case value(JSONPointer, text: String)

    static let form = "expected caller, key, none, or a JSON Pointer such as /tenant"

    /// Nil if `text` is not a value of the setting.
    public init?(_ text: String) {
        switch text {
        case "none": self = .none
        case "caller": self = .caller
        case "key": self = .key
        default:
            guard text.hasPrefix("/"), let pointer = JSONPointer(text) else { return nil }
            self = .value(pointer, text: text)
        }
    }

    /// As it is configured.
    public var text: String {
        switch self {
        case .none: "none"
        case .caller: "caller"
        case .key: "key"
        case .value(_, let text): text
        }
    }
}

extension SettingField {
    /// The values of `FairBy`.
    public static func fairBy(_ name: String, _ property: Property<FairBy>, _ summary: String) -> Self {
        Self(name, .text, property, summary) {
            .text($0.text)
        } decode: { value throws(Setting.Mismatch) in
            guard let text = value.text else { return nil }
            guard let by = FairBy(text) else { throw Setting.Mismatch(FairBy.form) }
            return by
        }
    }
}

/// How the messages of a queue take turns.
///
/// A turn is a digest of what its messages have in common. Two that collide merely share turns. 0 is the turn of messages
/// that were stored while there were none, and of events about other messages.
public struct Fairness: Sendable, Equatable {
    let by: FairBy
    /// The messages of a turn that are sent for each one of another, by turn; 1 for those that are missing.
    let weights: [Int64: Int]

    /// - Parameter callers: The weights of the API keys, by name.
    public init(by: FairBy, callers: [String: Int] = [:]) {
        self.by = by
        weights = Dictionary(callers.map { (Self.turn(ofCaller: $0), $1) }) { max($0, $1) }
    }

    /// The turn of an accepted message: what has no value of its own waits in the turn of its caller.
    ///
    /// - Parameter caller: The turn of the API key; nil without one.
    public func turn(ofCaller caller: Int64?, key: String?, payload: JSONValue?) -> Int64 {
        switch by {
        case .key: if let key { return Self.turn(.digest(of: key.utf8), salt: 2) }
        case .value(let pointer, _):
            let value = payload.flatMap { pointer.value(in: $0) }
            if let value, value.kind == .string { return Self.turn(.digest(of: value), salt: 2) }
            if let value, value.kind == .number { return Self.turn(.digest(of: value.bytes), salt: 2) }
        case .caller, .none: break
        }
        return caller ?? Self.turn(.digest(of: "".utf8), salt: 1)
    }

    /// Whether the turn may depend on the payload.
    public var readsPayload: Bool { if case .value = by { true } else { false } }

    public static func turn(ofCaller name: String) -> Int64 { turn(.digest(of: name.utf8), salt: 1) }

    /// Names of keys differ from values. Neither 0 nor the least number, behind which all turns are.
    private static func turn(_ digest: Lane, salt: Int64) -> Int64 {
        let turn = digest.number ^ salt
        return turn == 0 || turn == .min ? 1 : turn
    }
}
