import PosternCore

/// The operations that an OpenAPI document lists, and the query parameters of each.
///
/// Reads only as much YAML as `openapi/openapi.yaml` requires: block style, two spaces per level.
public struct OpenAPIOutline {
    public struct Operation: Hashable, Comparable, CustomStringConvertible {
        public let method: String
        public let path: String
        /// Nil if the operation validates its query itself.
        public let query: Set<String>?

        public init(_ method: String, _ path: String, query: Set<String>?) {
            self.method = method
            self.path = path
            self.query = query
        }

        /// The upstream and kind, if the path is that of one kind: an instance of `/v1/{upstream}/{kind}`.
        public var kind: (upstream: String, kind: String)? {
            let segments = path.split(separator: "/").map(String.init)
            guard method == "POST", segments.count == 3, segments[0] == "v1", !path.contains("{"),
                !UpstreamName.reserved.contains(segments[1])
            else { return nil }
            return (segments[1], segments[2])
        }

        public var description: String {
            "\(method) \(path)?\(query.map { $0.sorted().joined(separator: "&") } ?? "*")"
        }
        public static func < (left: Self, right: Self) -> Bool { left.description < right.description }
    }

    public let operations: [Operation]
    /// By "GET /path": the scopes that the operation requires, joined by a comma; "open" if it requires no key.
    public let access: [String: String]

    public init(_ yaml: String) {
        let lines = yaml.split(separator: "\n").map(Line.init)
        let shared = Self.sharedQueryParameters(lines)
        var operations: [Operation] = []
        var access: [String: String] = [:]
        var (section, path, method) = ("", "", "")
        var query: Set<String> = []
        func finishOperation() {
            if !method.isEmpty { operations.append(Operation(method, path, query: query)) }
            (method, query) = ("", [])
        }
        for (index, line) in lines.enumerated() {
            if line.indent <= 4 { finishOperation() }
            switch line.indent {
            case 0: section = line.key
            case 2 where section == "paths": path = line.key
            case 4 where section == "paths" && line.key != "parameters": method = line.key.uppercased()
            case 6 where line.text == "security: []": access["\(method) \(path)"] = "open"
            case 8 where line.text.hasPrefix("- key: [") && section == "paths":
                access["\(method) \(path)"] = String(line.text.dropFirst(8).dropLast())
            case 8 where line.text.hasPrefix("- $ref: \"#/components/parameters/"):
                let name = line.text.split(separator: "/").last?.dropLast() ?? ""
                if let name = shared[String(name)] { query.insert(name) }
            case 8 where line.text.hasPrefix("- name: "):
                if lines[index + 1].text == "in: query" { query.insert(String(line.text.dropFirst(8))) }
            default: continue
            }
        }
        finishOperation()
        self.operations = operations.sorted()
        self.access = access
    }

    private struct Line {
        let indent: Int
        let text: Substring
        /// The text without the colon at its end.
        var key: String { String(text.hasSuffix(":") ? text.dropLast() : text) }

        init(_ line: Substring) {
            indent = line.prefix { $0 == " " }.count
            text = line.dropFirst(indent)
        }
    }

    /// The names of the parameters under `components` that belong to a query, by their keys there.
    private static func sharedQueryParameters(_ lines: [Line]) -> [String: String] {
        var names: [String: String] = [:]
        var (section, part, key, name) = ("", "", "", "")
        for line in lines {
            switch line.indent {
            case 0: section = line.key
            case 2: part = line.key
            case 4: key = line.key
            case 6 where line.text.hasPrefix("name: "): name = String(line.text.dropFirst(6))
            case 6 where line.text == "in: query" && section == "components" && part == "parameters": names[key] = name
            default: continue
            }
        }
        return names
    }
}
