extension UpstreamRoute {
    /// A path with parameters in braces, e.g. `/v1/messages/{id}`.
    package struct PathTemplate: Sendable, Equatable {
        /// As it was written, for labels and documentation.
        package let text: String
        private let segments: [Substring]

        package init(_ text: String) {
            self.text = text
            segments = text.split(separator: "/")
        }

        /// The values of the parameters if `path`, percent-decoded segments, matches one by one. A value may be empty.
        package func parameters(matching path: some Collection<Substring>) -> [String: String]? {
            guard path.count == segments.count else { return nil }
            var values: [String: String] = [:]
            for (segment, given) in zip(segments, path) {
                if segment.hasPrefix("{"), segment.hasSuffix("}") {
                    values[String(segment.dropFirst().dropLast())] = String(given)
                } else if segment != given {
                    return nil
                }
            }
            return values
        }
    }
}
