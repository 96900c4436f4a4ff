import PosternCore
import PosternUpstream

/// The parameters that an SDK has posted, decoded.
struct SDKForm: Equatable, Sendable {
    private var values: [String: String] = [:]

    /// Nil for a body that is not a form: with an invalid escape, or without a single name with a value. If a name is
    /// repeated, the last value counts.
    init?(_ body: [UInt8]) {
        guard body.contains(UInt8(ascii: "=")) else { return nil }
        for pair in body.split(separator: UInt8(ascii: "&")) {
            let equals = pair.firstIndex(of: UInt8(ascii: "="))
            // Version 1.03 for iOS leaves `&` in texts as it is: the rest of the text is a name without a value.
            guard let name = PercentEncoding.decodedForm(pair[..<(equals ?? pair.endIndex)]),
                let value = PercentEncoding.decodedForm(equals.map { pair[($0 + 1)...] } ?? [])
            else { return nil }
            guard equals != nil else { continue }
            let text = FormDecoding.text(of: value)
            let key = FormDecoding.text(of: name)
            values[key] = FormDecoding.twiceEncoded.contains(key) ? FormDecoding.decodedAgain(text) : text
        }
        if values.isEmpty { return nil }
    }

    /// Nil if the parameter is missing, or is a word that SDKs send in place of a missing one.
    subscript(name: String) -> String? {
        values[name].flatMap { Placeholder.isOne($0, for: name) ? nil : $0 }
    }

    /// The same, and nil for an empty text.
    func filled(_ name: String) -> String? { self[name].flatMap { $0.isEmpty ? nil : $0 } }
}

/// Words that SDKs send in place of a value that is missing.
enum Placeholder {
    static func isOne(_ text: String, for name: String) -> Bool {
        switch text {
        case "NULL", "(null)", "<null>": true
        case "UNKNOWN": name == "hitCode" || name == "eventCode"
        case "0": name == "sessionTimeout"
        default: false
        }
    }
}

enum FormDecoding {
    /// The texts that are encoded twice, in parameters and in the records of a batch.
    static let twiceEncoded: Set = ["pageTitle", "path", "eventKey", "eventValue"]

    /// Bytes that are not UTF-8 are ISO 8859-1, in which the SDK for Android encodes what it does not encode twice.
    static func text(of bytes: [UInt8]) -> String {
        String(validating: bytes, as: UTF8.self)
            ?? String(String.UnicodeScalarView(bytes.map { Unicode.Scalar($0) }))
    }

    /// Undoes the inner encoding of a text. One that is not encoded stays as it is.
    static func decodedAgain(_ text: String) -> String {
        PercentEncoding.decodedForm(text.utf8).flatMap { String(validating: $0, as: UTF8.self) } ?? text
    }
}
