import PosternCore

/// A text from the configuration that must not be shown. Its descriptions and its mirror do not contain it.
package struct Secret: Sendable, Equatable, CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// The text itself, for requests only.
    package let value: String

    package init(_ value: String) { self.value = value }

    package var isEmpty: Bool { value.isEmpty }
    package var description: String { isEmpty ? "no secret" : "a secret" }
    package var debugDescription: String { description }
    package var customMirror: Mirror { Mirror(self, children: []) }
}

/// Whether the text has no control character, which would end a header line or be invisible in one.
package func isPrintable(_ text: String) -> Bool {
    text.unicodeScalars.allSatisfy { $0.properties.generalCategory != .control }
}

extension Setting.Rule<String> {
    /// Rejects control characters.
    package static let printable = Self("must not contain a control character", isMet: isPrintable)
}

extension SettingField {
    /// A secret in one line.
    package static func secret(
        _ name: String, _ property: Property<Secret>, simulated: String? = nil, _ summary: String,
        problem: @escaping @Sendable (String) -> String? = { _ in nil }
    ) -> Self {
        Self(name, .text, property, secret: true, simulated: simulated, summary) {
            .text($0.value)
        } decode: { value throws(Setting.Mismatch) in
            guard let text = value.text else { return nil }
            guard isPrintable(text) else { throw Setting.Mismatch("must not contain a control character") }
            if let detail = problem(text) { throw Setting.Mismatch(detail) }
            return Secret(text)
        }
    }
}
