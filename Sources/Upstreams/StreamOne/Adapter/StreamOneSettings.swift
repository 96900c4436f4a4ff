import PosternCore
import PosternUpstream
import StreamOneClient

struct StreamOneSettings: SettingsSection {
    var apiURL = BaseURL(known: "https://api.streamonecloud.net")
    var authentication = StreamOneActor.Kind.application
    var id = ""
    var psk = ""
    /// Empty means none.
    var defaultAccount = ""
    var cache = CachePolicy()
    var readActions: [String] = []
    var writeActions: [String] = []
    var pauses = Pause.Lengths()
    var sdk = SDKSettings()
    var sdkQueueActions: [String] = []

    static let fields: [SettingField<Self>] = own + sdkFields

    private static let sdkFields =
        SettingField<Self>.sdk(
            isEnabled: \.sdk.isEnabled, prefix: \.sdk.prefix, maxBodyBytes: \.sdk.maxBodyBytes,
            requestsPerSecondPerAddress: \.sdk.requestsPerSecondPerAddress) + [
            .list(
                "sdk.queueActions", \.sdkQueueActions, rule: ActionCatalog.ruleOfNames,
                "Writes whose answer the app does not need, as command/action; queued while the platform is away.")
        ]

    var conflicts: [(property: PartialKeyPath<Self>, detail: String)] {
        guard sdk.isEnabled, id.isEmpty || psk.isEmpty else { return [] }
        return [(\.sdk.isEnabled, "needs id and psk: calls are checked against them")]
    }

    private static let own: [SettingField<Self>] = [
        .address("apiUrl", \.apiURL, "URL of the platform, with its scheme."),
        .choice("authenticationType", \.authentication, "Who signs; only an application has sessions."),
        .text("id", \.id, simulated: "9yC-4pQxT_2a", "The id of that application or user."),
        .text(
            "psk", \.psk, secret: true, simulated: "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu", "Its pre-shared key."),
        .text(
            "defaultAccountId", \.defaultAccount, rule: oneAccount,
            "Account of the calls that name neither accounts nor a customer; empty: none."),
        .choice(
            "requestCache", \.cache.requests,
            "Where cacheable responses are kept: nowhere, in memory, or also in the store, for after a restart."),
        .wholeSeconds(
            "requestCacheSeconds", 0...86400, \.cache.requestLifetime,
            "How long cacheable responses are kept; 0: not at all."),
        .integer(
            "requestCacheBytes", 65536...1 << 30, \.cache.maxBytes,
            "Memory for these, roles and tokens, and as much in the store; the oldest are removed first."),
        .choice("tokenCache", \.cache.tokens, "Where roles and tokens are kept, as `requestCache`."),
        .wholeSeconds(
            "tokenCacheSeconds", 0...86400, \.cache.tokenLifetime,
            "How long roles and tokens are kept; 0: as long as responses."),
        .bool(
            "useSessionForTokenCache", \.cache.usesSession,
            "Whether those of a session are kept with it, whatever `tokenCache` is, or for its user by `tokenCache`."),
        .list(
            "readActions", \.readActions, rule: ActionCatalog.rule,
            "Further actions that only read, as command/action; they may be cached and are not queued."),
        .list(
            "writeActions", \.writeActions, rule: ActionCatalog.rule,
            "Further actions that write, whatever their names say; they are never cached."),
        .seconds(
            "readOnlyPauseSeconds", 0.01...300, \.pauses.readOnly,
            "First pause of the queue while the platform only takes reads; doubles up to ten times as much."),
        .seconds(
            "rateLimitPauseSeconds", 0.01...900, \.pauses.rateLimited,
            "First pause after the platform blocked the actor or a login's address; doubles up to 15 times as much."),
    ]

    private static let oneAccount = Setting.Rule<String>("must have no comma: it is one account") {
        !$0.contains(",")
    }
}
