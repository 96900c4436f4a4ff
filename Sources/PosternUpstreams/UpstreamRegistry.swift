public import PosternCore

/// The types of upstream there are.
public enum UpstreamRegistry {
    public static let types: [UpstreamType] = []
}
