/// The version of this build, as `postern --version` shows it.
public enum PosternVersion {
    /// In the form of Semantic Versioning 2.0.0.
    public static let current = "0.2.0"
}
