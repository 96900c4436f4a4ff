import PosternCore
import PosternUpstream

/// The member of a payload whose equal values keep their order: a JSON Pointer (RFC 6901).
struct Pointer: Sendable, Equatable {
    /// As it is configured; empty if there is no order.
    let text: String
    private let place: JSONPointer?

    static let none = Pointer()
    static let form = "expected a JSON Pointer, which begins with a slash, or nothing"

    private init() { (text, place) = ("", nil) }

    /// Nil if `text` is not a JSON Pointer.
    init?(_ text: String) {
        guard let place = JSONPointer(text) else { return nil }
        (self.text, self.place) = (text, text.isEmpty ? nil : place)
    }

    /// The lane of a payload: none if it has no such member, or null. Values are equal if they are the same string, or
    /// another literal with the same spelling.
    func lane(of payload: JSONValue) throws(InvalidPayload) -> Lane {
        guard let value = place?.value(in: payload) else { return .none }
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
        guard let value = place?.value(in: payload) else { return nil }
        return switch value.kind {
        case .string: value.string
        case .number, .true, .false: String(decoding: value.bytes, as: UTF8.self)
        case .null, .object, .array: nil
        }
    }
}
