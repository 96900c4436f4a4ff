import PosternCore
import PosternUpstream

/// The member of a payload whose equal values keep their order: a JSON Pointer (RFC 6901).
struct Pointer: Sendable, Equatable {
    /// As it is configured; empty if there is no order.
    let text: String
    private let names: [String]

    static let none = Pointer()
    static let form = "expected a JSON Pointer, which begins with a slash, or nothing"

    private init() {
        text = ""
        names = []
    }

    /// Nil if `text` is not a JSON Pointer.
    init?(_ text: String) {
        self.text = text
        guard !text.isEmpty else {
            names = []
            return
        }
        var names: [String] = []
        for part in text.split(separator: "/", omittingEmptySubsequences: false).dropFirst() {
            guard let name = Self.unescaped(part) else { return nil }
            names.append(name)
        }
        guard text.hasPrefix("/") else { return nil }
        self.names = names
    }

    private static func unescaped(_ part: Substring) -> String? {
        var name = ""
        var rest = part
        while let character = rest.popFirst() {
            switch (character, character == "~" ? rest.popFirst() : nil) {
            case ("~", "0"): name.append("~")
            case ("~", "1"): name.append("/")
            case ("~", _): return nil
            default: name.append(character)
            }
        }
        return name
    }

    /// The lane of a payload: none if it has no such member, or null. Values are equal if they are the same string, or
    /// another literal with the same spelling.
    func lane(of payload: JSONValue) throws(InvalidPayload) -> Lane {
        guard !names.isEmpty, let value = value(in: payload) else { return .none }
        switch value.kind {
        case .string: return .digest(of: value)
        case .number, .true, .false: return .digest(of: value.bytes)
        case .null: return .none
        case .object, .array:
            throw InvalidPayload([
                PayloadError(text, "must be a string, number or boolean, because the setting orderBy names it")
            ])
        }
    }

    /// The text whose digest is the lane; nil if there is no lane.
    func name(in payload: JSONValue) -> String? {
        guard !names.isEmpty, let value = value(in: payload) else { return nil }
        return switch value.kind {
        case .string: value.string
        case .number, .true, .false: String(decoding: value.bytes, as: UTF8.self)
        case .null, .object, .array: nil
        }
    }

    /// The value that it leads to; nil if there is none.
    func value(in payload: JSONValue) -> JSONValue? {
        var value = payload
        for name in names {
            guard let next = value.kind == .array ? Self.element(name, of: value) : value[named: name] else {
                return nil
            }
            value = next
        }
        return value
    }

    private static func element(_ name: String, of array: JSONValue) -> JSONValue? {
        guard let index = Int(name), index >= 0, String(index) == name else { return nil }
        for (position, element) in array.elements.enumerated() where position == index { return element }
        return nil
    }
}
