import Foundation

/// A JSON value. A missing member is null. Read by Foundation, not by the parser under test.
public struct JSON: CustomStringConvertible {
    private let value: Any?

    public init(_ bytes: [UInt8]) {
        value = try? JSONSerialization.jsonObject(with: Data(bytes), options: .fragmentsAllowed)
    }
    private init(value: Any?) { self.value = value }

    public subscript(_ name: String) -> JSON { JSON(value: (value as? [String: Any])?[name]) }
    public subscript(_ index: Int) -> JSON { JSON(value: array.indices.contains(index) ? array[index].value : nil) }

    public var string: String? { value as? String }
    public var int: Int? { (value as? NSNumber)?.intValue }
    public var double: Double? { (value as? NSNumber)?.doubleValue }
    public var bool: Bool? { value as? Bool }
    public var array: [JSON] { (value as? [Any])?.map { JSON(value: $0) } ?? [] }
    public var strings: [String] { array.compactMap(\.string) }
    public var keys: Set<String> { Set((value as? [String: Any])?.keys.map { $0 } ?? []) }
    /// Whether there is a value. `null` counts as none.
    public var isThere: Bool { value != nil && !(value is NSNull) }
    /// As text, members in the order of their names: equal values have equal texts.
    public var description: String {
        let options: JSONSerialization.WritingOptions = [.sortedKeys, .fragmentsAllowed]
        let text = value.flatMap { try? JSONSerialization.data(withJSONObject: $0, options: options) }
        return text.map { String(decoding: $0, as: UTF8.self) } ?? "nothing"
    }
}
