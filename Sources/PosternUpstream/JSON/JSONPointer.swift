/// A JSON Pointer (RFC 6901): the place of a value in a document.
public struct JSONPointer: Sendable, Equatable {
    private let names: [String]

    /// Nil if `text` is not a JSON Pointer. An empty one leads to the document itself.
    public init?(_ text: String) {
        guard text.isEmpty || text.hasPrefix("/") else { return nil }
        var names: [String] = []
        for part in text.split(separator: "/", omittingEmptySubsequences: false).dropFirst() {
            guard let name = Self.unescaped(part) else { return nil }
            names.append(name)
        }
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

    /// The value that it leads to; nil if there is none.
    public func value(in document: JSONValue) -> JSONValue? {
        var value = document
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

    // MARK: Naming a member

    /// The reference token of a member (RFC 6901, section 3): `/a~1b` for `a/b`.
    public static func member(_ name: String) -> String {
        "/"
            + name.split(separator: "~", omittingEmptySubsequences: false).joined(separator: "~0")
            .split(separator: "/", omittingEmptySubsequences: false).joined(separator: "~1")
    }

    /// The same for a member's key. A very long name is cut.
    public static func member(_ key: JSONValue) -> String {
        guard key.rawString.count > longestName else { return member(key.string ?? "") }
        return member(String(decoding: key.rawString.prefix(longestName), as: UTF8.self) + "…")
    }

    private static let longestName = 200
}
