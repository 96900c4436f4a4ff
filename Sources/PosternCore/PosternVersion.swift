/// The version of this build, as `postern --version` shows it.
public enum PosternVersion {
    public static let current = "0.1.0"
}
