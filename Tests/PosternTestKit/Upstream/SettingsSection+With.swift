public import PosternUpstream

extension SettingsSection {
    /// The defaults with some changes.
    public static func with(_ change: (inout Self) -> Void) -> Self {
        var settings = Self()
        change(&settings)
        return settings
    }
}
