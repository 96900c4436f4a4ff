/// One problem of a configuration.
public struct ConfigurationProblem: Sendable, Equatable, CustomStringConvertible {
    /// The setting (`delivery.batchMaxMessages`), environment variable, or file that it concerns.
    public let path: String
    /// What is wrong and what is allowed: the rest of a sentence that starts with the path. Never contains a secret.
    public let detail: String

    public init(_ path: String, _ detail: String) {
        self.path = path
        self.detail = detail
    }

    public var description: String { "\(path) \(detail)" }
}

/// All problems of a configuration; never empty.
public struct ConfigurationProblems: Error, Sendable, Equatable, CustomStringConvertible {
    /// In the order in which they were found.
    public let problems: [ConfigurationProblem]

    public init(_ problems: [ConfigurationProblem]) {
        precondition(!problems.isEmpty, "a refusal names its reason")
        self.problems = problems
    }

    /// One per line.
    public var description: String { problems.map(\.description).joined(separator: "\n") }
}
