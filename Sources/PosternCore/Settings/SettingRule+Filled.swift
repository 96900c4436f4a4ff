extension SettingRule<String> {
    /// Rejects the empty string.
    public static let filled = SettingRule("expected a text that is not empty") { !$0.isEmpty }
}
