public import PosternCore

/// Every type of upstream there is. A new one is a folder, a folder of fixtures and a line here.
public enum UpstreamRegistry {
    public static let types: [UpstreamType] = [
        UpstreamType(SamsaraUpstream.self),
        UpstreamType(SeerUpstream.self),
        UpstreamType(CurioUpstream.self),
        UpstreamType(AppServicesUpstream.self),
        UpstreamType(StreamOneUpstream.self),
    ]
}
