/// Something an upstream can be asked besides taking messages: `GET /v1/{upstream}/<template>`.
public struct Resource: Sendable {
    /// Below `/v1/{upstream}/`, without a slash at the start; a segment in braces is a parameter, e.g.
    /// `sessions/{sessionCode}`.
    public let template: String
    /// Reads the state it is given and nothing else; called on a reader's thread.
    public let answer: @Sendable (_ parameters: [String: String], _ state: any UpstreamState) -> ResourceAnswer
    private let segments: [Substring]

    public init(
        _ template: String,
        answer: @escaping @Sendable (_ parameters: [String: String], _ state: any UpstreamState) -> ResourceAnswer
    ) {
        self.template = template
        self.answer = answer
        segments = template.split(separator: "/")
    }

    /// The values of the template's parameters if `path` fits it, segment by segment; they are percent-decoded already.
    public func parameters(matching path: some Collection<Substring>) -> [String: String]? {
        guard path.count == segments.count else { return nil }
        var values: [String: String] = [:]
        for (segment, given) in zip(segments, path) {
            if segment.hasPrefix("{"), segment.hasSuffix("}") {
                guard !given.isEmpty else { return nil }
                values[String(segment.dropFirst().dropLast())] = String(given)
            } else if segment != given {
                return nil
            }
        }
        return values
    }
}

public enum ResourceAnswer: Sendable, Equatable {
    /// A JSON text.
    case json(String)
    case notFound(detail: String)
}
