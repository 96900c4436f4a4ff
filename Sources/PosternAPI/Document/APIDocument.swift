import COpenAPI
import PosternCore
import PosternUpstream
import Synchronization

/// The description of the API as it is served: `openapi/openapi.yaml`, with an operation for each kind that the
/// configuration defines.
///
/// Its text is made once between two reloads, for each set of upstreams that a caller may use. Any thread.
final class APIDocument: Sendable {
    /// The text for some callers, and its entity tag.
    struct Version: Sendable {
        let text: [UInt8]
        let tag: String

        init(_ text: [UInt8]) {
            self.text = text
            tag = "\"\(sha256([], text).prefix(16).hexadecimal)\""
        }
    }

    /// Those whose kinds are described.
    private let upstreams: [ConfiguredUpstream]
    private let versions = Mutex<[[UpstreamName]: Version]>([:])

    init(_ upstreams: [ConfiguredUpstream]) {
        self.upstreams = upstreams.filter { !$0.adapter.traits.documentedKinds.isEmpty }
    }

    /// What a caller gets: no kind of an upstream that it may not use.
    func version(for caller: Caller?) -> Version {
        let shown = upstreams.map(\.name).filter { caller?.mayUse($0) ?? true }
        return versions.withLock { versions in
            if let known = versions[shown] { return known }
            let version = Version(ServedText(Self.embedded).including(Set(shown), of: upstreams))
            versions[shown] = version
            return version
        }
    }

    private static var embedded: UnsafeBufferPointer<UInt8> {
        let document = postern_openapi_document()
        return UnsafeBufferPointer(start: document.bytes, count: document.count)
    }
}

/// The lines of the embedded document, and what their places are.
private struct ServedText {
    private typealias Line = Slice<UnsafeBufferPointer<UInt8>>

    private let lines: [Line]
    /// The lines of each path.
    private var paths: [(name: String, lines: Range<Int>)] = []
    /// The paths that cannot be left out, because others refer to their anchors.
    private var anchored: Set<String> = []
    private var operations: [(id: String, path: String)] = []
    private var schemas: Set<String> = []
    private var endOfPaths = 0
    private var startOfSchemas = 0

    init(_ text: UnsafeBufferPointer<UInt8>) {
        lines = text.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
        var (section, part) = ("", "")
        for (index, line) in lines.enumerated() where !line.isEmpty && line.first != UInt8(ascii: "#") {
            let depth = line.prefix { $0 == UInt8(ascii: " ") }.count
            if depth == 0 {
                if section == "paths:" { endOfPaths = index }
                section = Self.text(line)
            } else if depth == 2 {
                part = Self.text(line)
                if section == "paths:" { paths.append((String(part.dropFirst(2).dropLast()), index..<index)) }
                if section == "components:", part == "  schemas:" { startOfSchemas = index + 1 }
            }
            if section == "paths:", let path = paths.last?.name {
                paths[paths.count - 1].lines = paths[paths.count - 1].lines.lowerBound..<index + 1
                if depth == 6, line.starts(with: Self.operationID) {
                    operations.append((Self.text(line.dropFirst(Self.operationID.count)), path))
                }
                if line.contains(UInt8(ascii: "&")) { anchored.insert(path) }
            } else if section == "components:", part == "  schemas:", depth == 4, line.last == UInt8(ascii: ":") {
                schemas.insert(String(Self.text(line).dropFirst(4).dropLast()))
            }
        }
    }

    private static let operationID = Array("      operationId: ".utf8)
    private static func text(_ line: Line) -> String { String(decoding: line, as: UTF8.self) }

    /// The text with the kinds of those of `upstreams` that are `shown`. They replace paths of the same upstream.
    func including(_ shown: Set<UpstreamName>, of upstreams: [ConfiguredUpstream]) -> [UInt8] {
        func isReplaced(_ path: String, by names: some Collection<UpstreamName>) -> Bool {
            !anchored.contains(path) && names.contains { path.hasPrefix("/v1/\($0)/") }
        }
        // The names depend on all upstreams, so that they are the same for each caller.
        var identifiers = UniqueNames(
            operations.filter { !isReplaced($0.path, by: upstreams.map(\.name)) }.map(\.id))
        var components = UniqueNames(schemas)
        var (newPaths, newSchemas) = ("", "")
        for upstream in upstreams {
            for kind in upstream.kinds {
                guard let schema = upstream.adapter.traits.documentedKinds[kind.kind] else { continue }
                let name = camelCased("\(upstream.name)") + camelCased(kind.text)
                let id = identifiers.unique("post" + name)
                let parts = SchemaComponents(of: schema, named: name, &components)
                guard shown.contains(upstream.name) else { continue }
                newPaths += path(of: kind, of: upstream, id: id, parts)
                for part in parts.components { newSchemas += "    \(part.name): \(part.schema)\n" }
            }
        }
        let left = Set(paths.filter { isReplaced($0.name, by: shown) }.flatMap(\.lines))
        var text: [UInt8] = []
        for (index, line) in lines.enumerated() {
            if index == endOfPaths { text += newPaths.utf8 }
            if index == startOfSchemas { text += newSchemas.utf8 }
            guard !left.contains(index) else { continue }
            text += line
            if index < lines.count - 1 { text.append(UInt8(ascii: "\n")) }
        }
        return text
    }

    private func path(
        of kind: ConfiguredUpstream.KindEndpoint, of upstream: ConfiguredUpstream, id: String,
        _ schema: SchemaComponents
    ) -> String {
        let reference = "$ref: \"#/components/schemas/\(schema.components[0].name)\""
        // An array that can be a payload itself is a list of payloads.
        let body =
            schema.isOfObject
            ? """
            oneOf:
                            - \(reference)
                            - type: array
                              items:
                                \(reference)
            """ : reference
        let more =
            kind.legs.isEmpty
            ? ""
            : "\n      description: The payload is stored as several messages, and the response has an id for each."
        let parameters = ["dryRun", "prefer", "contentEncoding", "traceparent", "requestId"]
            .map { "        - $ref: \"#/components/parameters/\($0)\"" }.joined(separator: "\n")
        return """
              /v1/\(upstream.name)/\(kind.text):
                post:
                  operationId: \(id)
                  tags: [Writing]
                  summary: Sends payloads of the kind `\(kind.text)` to the upstream `\(upstream.name)`.\(more)
                  parameters:
            \(parameters)
                    - name: Idempotency-Key
                      in: header
                      schema:
                        $ref: "#/components/schemas/IdempotencyKey"
                  requestBody:
                    required: true
                    content:
                      application/json:
                        schema:
                          \(body)
                      application/x-ndjson:
                        schema:
                          $ref: "#/components/schemas/JSONLines"
                  security:
                    - key: [write]
                  responses: *ingestResponses

            """
    }
}

/// Names that differ by more than upper and lower case, as some generators of clients require.
struct UniqueNames {
    private var taken: Set<String>

    init(_ taken: some Sequence<String>) { self.taken = Set(taken.map { $0.lowercased() }) }

    /// `name`, with a number if it is taken.
    mutating func unique(_ name: String) -> String {
        var (candidate, number) = (name, 1)
        while !taken.insert(candidate.lowercased()).inserted {
            number += 1
            candidate = "\(name)\(number)"
        }
        return candidate
    }
}

/// The letters and digits of `text`, each part after another character in upper case.
func camelCased(_ text: String) -> String {
    text.split { !($0.isASCII && ($0.isLetter || $0.isNumber)) }.map { $0.prefix(1).uppercased() + $0.dropFirst() }
        .joined()
}
