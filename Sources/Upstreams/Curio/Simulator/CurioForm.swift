/// A parsed form-encoded body. If a name is repeated, the first value counts.
struct CurioForm {
    private(set) var values: [String: String] = [:]

    init(_ body: [UInt8], _ findings: inout Findings) {
        if body.isEmpty { findings.refuse("an empty body") }
        for pair in body.split(separator: UInt8(ascii: "&"), omittingEmptySubsequences: body.isEmpty) {
            guard let equals = pair.firstIndex(of: UInt8(ascii: "=")) else {
                findings.refuse("a part of the form without an equals sign")
                continue
            }
            guard let name = CurioText(decoding: pair[..<equals]),
                let value = CurioText(decoding: pair[pair.index(after: equals)...])
            else {
                findings.refuse("a part of the form that cannot be decoded")
                continue
            }
            for oddity in [name.oddity, value.oddity] {
                if let oddity { findings.record("\(oddity.rawValue) in the form") }
            }
            if values.updateValue(values[name.text] ?? value.text, forKey: name.text) != nil {
                findings.record("a parameter sent twice")
            }
            if value.text.utf8.contains(0) { findings.record("U+0000 in a text") }
        }
    }

    subscript(name: String) -> String { values[name] ?? "" }
}
