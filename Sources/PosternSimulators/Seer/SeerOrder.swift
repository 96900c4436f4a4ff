internal import PosternCore

/// What one `POST /control` asks for.
struct SeerOrder: Sendable {
    var settings: SeerSettings
    var revokesNow = false
    var seed: UInt64?
    /// Members that were given, known ones.
    private(set) var names: Set<String> = []
    /// One sentence each; with any of them nothing may change.
    private(set) var problems: [String] = []

    static let known = [
        "apiKey", "bundleLimit", "clientId", "clientSecret", "customPaths", "expirationForm", "refuse401Rate", "revoke",
        "revokeNow", "seed", "tokenAnswer", "tokenLifeSeconds",
    ]

    init(_ body: [UInt8], changing settings: SeerSettings) {
        self.settings = settings
        body.withUnsafeBufferPointer { read($0) }
    }

    private mutating func read(_ text: UnsafeBufferPointer<UInt8>) {
        var scanner = JSONScanner(text)
        var members: [(name: String, value: JSONScanner.Value)] = []
        guard scanner.peek() == UInt8(ascii: "{"), scanner.members({ members.append(($0.name, $1)) }),
            scanner.peek() == nil
        else { return problems = ["the body is no JSON object"] }
        for (name, value) in members {
            if let wanted = set(name, Reading(value: value, text: text)) { problems.append("\(name): \(wanted)") }
            names.insert(name)
        }
    }

    /// What is wanted instead; nil when the value was taken.
    private mutating func set(_ name: String, _ value: Reading) -> String? {
        switch name {
        case "clientId": return put(value.string, \.clientId, or: "a string")
        case "clientSecret": return put(value.string, \.clientSecret, or: "a string")
        case "apiKey": return put(value.string, \.apiKey, or: "a string")
        case "tokenLifeSeconds":
            let seconds = value.number(in: 0...1_000_000_000)
            return put(seconds.map { .milliseconds($0 * 1000) }, \.tokenLife, or: "a number from 0 to 1000000000")
        case "expirationForm":
            let names = SeerSettings.ExpirationForm.allCases.map(\.rawValue).joined(separator: ", ")
            return put(value.string.flatMap { .init(rawValue: $0) }, \.expirationForm, or: "one of \(names)")
        case "tokenAnswer":
            return put(
                value.string.flatMap { .init($0) }, \.tokenAnswer,
                or: "normal, junk, slow:<milliseconds up to 3600000> or status:<200 to 599>")
        case "refuse401Rate": return put(value.number(in: 0...1), \.refuse401Rate, or: "a number from 0 to 1")
        case "revoke": return put(value.flag, \.revokes, or: "true or false")
        case "bundleLimit": return put(value.integer(in: 0...1 << 40), \.bundleLimit, or: "an integer from 0")
        case "customPaths":
            return put(value.paths, \.customPaths, or: "an array of at most 100 different paths that are no presets")
        case "revokeNow":
            revokesNow = value.flag ?? false
            return value.flag == nil ? "true or false" : nil
        case "seed":
            seed = value.integer(in: 0...Int.max).map { UInt64($0) }
            return seed == nil ? "an integer from 0" : nil
        default: return "there is no such member; there are \(Self.known.joined(separator: ", "))"
        }
    }

    private mutating func put<Value>(
        _ value: Value?, _ place: WritableKeyPath<SeerSettings, Value>, or wanted: String
    ) -> String? {
        guard let value else { return wanted }
        settings[keyPath: place] = value
        return nil
    }
}

/// A member's value as one of the types that settings have.
private struct Reading {
    let value: JSONScanner.Value
    let text: UnsafeBufferPointer<UInt8>

    private var literal: String { String(decoding: text[value.range], as: UTF8.self) }

    var string: String? { value.kind == .string ? unescaped(text[value.range].dropFirst().dropLast()) : nil }

    var flag: Bool? { value.kind == .true ? true : value.kind == .false ? false : nil }

    func number(in range: ClosedRange<Double>) -> Double? {
        guard value.kind == .integer || value.kind == .decimal else { return nil }
        return Double(literal).flatMap { range.contains($0) ? $0 : nil }
    }

    func integer(in range: ClosedRange<Int>) -> Int? {
        guard value.kind == .integer else { return nil }
        return Int(literal).flatMap { range.contains($0) ? $0 : nil }
    }

    var paths: [SeerEndpoint]? {
        guard value.kind == .array else { return nil }
        var scanner = JSONScanner(text)
        scanner.place = value.range.lowerBound
        var entries: [SeerEndpoint?] = []
        _ = scanner.elements { element in
            entries.append(Reading(value: element, text: text).string.flatMap { SeerEndpoint(custom: $0) })
        }
        let paths = entries.compactMap(\.self)
        return paths.count == entries.count && paths.count <= 100 && Set(paths.map(\.path)).count == paths.count
            ? paths : nil
    }
}
