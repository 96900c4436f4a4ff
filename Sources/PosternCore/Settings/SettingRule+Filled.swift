extension SettingRule<String> {
    public static let filled = SettingRule("expected a text that is not empty") { !$0.isEmpty }
}
