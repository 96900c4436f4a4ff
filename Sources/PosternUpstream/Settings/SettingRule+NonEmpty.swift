extension SettingRule<String> {
    /// Rejects the empty string.
    public static let nonEmpty = SettingRule("must not be empty") { !$0.isEmpty }
}
