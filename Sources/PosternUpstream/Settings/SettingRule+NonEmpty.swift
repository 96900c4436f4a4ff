extension Setting.Rule<String> {
    /// Rejects the empty string.
    public static let nonEmpty = Self("must not be empty") { !$0.isEmpty }
}
