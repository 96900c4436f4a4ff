/// One thing that is wrong with a configuration.
public struct ConfigurationProblem: Sendable, Equatable, CustomStringConvertible {
    /// The setting (`delivery.batchMaxMessages`), the environment variable or the file that it is about.
    public let path: String
    /// What is wrong with it and what is allowed: the rest of a sentence that starts with the path. Never a secret.
    public let detail: String

    public init(_ path: String, _ detail: String) {
        self.path = path
        self.detail = detail
    }

    public var description: String { "\(path) \(detail)" }
}

/// Everything that is wrong with a configuration; never empty.
public struct ConfigurationProblems: Error, Sendable, Equatable, CustomStringConvertible {
    public let problems: [ConfigurationProblem]

    public init(_ problems: [ConfigurationProblem]) {
        precondition(!problems.isEmpty, "a refusal names its reason")
        self.problems = problems
    }

    /// One per line.
    public var description: String { problems.map(\.description).joined(separator: "\n") }
}
