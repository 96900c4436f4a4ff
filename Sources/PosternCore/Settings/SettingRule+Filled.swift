extension SettingRule<String> {
    /// Rejects the empty string.
    public static let filled = SettingRule("must not be empty") { !$0.isEmpty }
}
